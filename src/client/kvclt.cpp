// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <random>
#include <utility>

#include <paracel/error.hpp>

#include "client/multi_request.hpp"

namespace paracel {

namespace {

constexpr std::size_t initial_window = 1024;
// How often a blocked call looks whether the job has ended.
constexpr std::chrono::milliseconds look_up_interval{100};
// What a shard remembers of a client's requests (server/dedup.hpp), less those that a handler may add.
constexpr std::uint64_t most_unanswered = 3072;

/// What a request is about.
enum class subject { key, keys, other };
constexpr subject subject_of(net::verb v) noexcept {
  using net::verb;
  if (v >= verb::pull && v <= verb::update_at) return subject::key;
  if (v >= verb::pull_multi && v <= verb::update_at_multi) return subject::keys;
  switch (v) {
    case verb::clear: case verb::scan: case verb::top_k: case verb::reduce: case verb::remove_if:
    case verb::set_pull: case verb::set_push: case verb::set_update: case verb::set_bupdate: return subject::keys;
    default: return subject::other;
  }
}

std::uint64_t new_incarnation() {
  std::random_device source;
  return (static_cast<std::uint64_t>(source()) << 32U) | source();
}

}  // namespace

void kvclt::check_key(std::string_view key) {
  if (key.size() > net::max_key_bytes)
    throw protocol_error("a key of " + std::to_string(key.size()) + " bytes is over the limit of " +
                         std::to_string(net::max_key_bytes));
}

kvclt::kvclt(net::transport& transport, membership servers, std::uint32_t rank, kvclt_options options,
             std::shared_ptr<abort_signal> ended, std::shared_ptr<membership_board> board)
    : members_(std::move(servers)),
      router_(members_),
      options_(options),
      ended_(std::move(ended)),
      port_(transport.open()),
      incarnation_(options.incarnation != 0 ? options.incarnation : new_incarnation()),
      rank_(rank),
      keeps_(members_.may_change()),
      board_(board != nullptr ? std::move(board) : std::make_shared<membership_board>()),
      window_(initial_window) {
  open_channels();
}

void kvclt::open_channels() {
  first_channel_.clear();
  channels_.clear();
  for (const auto& s : members_.servers) {
    first_channel_.push_back(static_cast<std::uint32_t>(channels_.size()));
    const auto add = [&](const std::string& address) {
      auto& c = channels_.emplace_back();
      c.address = address;
      c.open = takes_part(s.state);
      c.slot = s.slot;
    };
    for (const auto& address : s.shards) add(address);
    add(s.clock);
    add(s.control);
  }
}

kvclt::~kvclt() = default;

net::request_header kvclt::header_of(const call& c) const noexcept {
  net::request_header h;
  h.what = c.what;
  h.flags = c.flags;
  h.clock = c.clock;
  h.function = c.function;
  h.table = c.table;
  h.credit = c.credit;
  return h;
}

template <class Reached>
void kvclt::drive(const Reached& reached, sequence s) {
  auto last_sign = std::chrono::steady_clock::time_point{};  // read the time only once something is late
  while (!reached()) {
    follow();
    if (receive(keeps_ ? follow_interval : look_up_interval)) {
      last_sign = {};
      continue;
    }
    if (ended_) ended_->check();
    note_silence(keeps_ ? follow_interval : look_up_interval);
    if (options_.timeout.count() == 0) continue;
    const auto late = answered(s) ? low_ : s;  // there is more to come than `s`
    if (answered(late) || slot(late).what == net::verb::clock_wait) continue;
    const auto now = std::chrono::steady_clock::now();
    if (last_sign == std::chrono::steady_clock::time_point{}) last_sign = now - look_up_interval;
    const auto silence = std::chrono::duration_cast<std::chrono::milliseconds>(now - last_sign);
    if (silence >= options_.timeout) give_up(late, silence);
  }
}

template <class Send>
void kvclt::send_and_finish(const Send& send_all, const std::size_t& unanswered) {
  const auto first = next_;
  try {
    send_all();
    drive([&] { return unanswered == 0; }, first);
  } catch (...) {
    forget(first, next_ - 1);
    throw;
  }
}

kvclt::sequence kvclt::send(std::uint32_t channel, net::request_header& h, std::string_view key,
                            std::span<const std::byte> prefix, std::span<const std::byte> payload, blob tail,
                            handler done) {
  if (ended_) ended_->check();
  check_key(key);
  const auto total = net::request_header_bytes + key.size() + prefix.size() + payload.size() + tail.size();
  if (total > options_.max_message_bytes)
    throw network_error("a request of " + std::to_string(total) + " bytes is over the limit of " +
                            std::to_string(options_.max_message_bytes),
                        false);
  make_room(total);
  if (before_) {
    const auto about = subject_of(h.what);
    if (about != subject::other) before_(h.what, about == subject::key ? &key : nullptr);
    widen();  // what was sent before this has taken room
  }

  const auto s = next_;
  h.job = members_.job;
  h.client = incarnation_;
  h.sequence = s;
  h.low_watermark = low_;
  h.rank = rank_;
  h.epoch = members_.epoch;
  // Others may take as long as they like for an iteration; only the end of the job ends that wait.
  const bool has_time = h.what == net::verb::clock_wait || h.what == net::verb::subscribe;
  h.deadline_ms = has_time ? 0 : static_cast<std::uint32_t>(options_.timeout.count());
  h.key_bytes = static_cast<std::uint32_t>(key.size());
  h.body_bytes = static_cast<std::uint32_t>(key.size() + prefix.size() + payload.size());
  h.tail_bytes = tail.size();
  // Without copies the first one does: a ping over another connection is refused then.
  if (keeps_ || !channels_[channel].begun) [[unlikely]] begin_stream(channel, h);
  front_.resize(net::request_header_bytes + key.size() + prefix.size());
  net::encode(h, std::span<std::byte, net::request_header_bytes>(front_.data(), net::request_header_bytes));
  const auto after_key = std::ranges::copy(net::bytes_of(key), front_.begin() + net::request_header_bytes).out;
  std::ranges::copy(prefix, after_key);

  if (h.what == net::verb::subscribe) {
    transmit(channels_[channel], {.head = front_, .body = payload, .tail = std::move(tail)});
    parked_.emplace(s, subscription{channel, h.clock, std::move(done)});
    ++next_;
    close_front();
    return s;
  }
  auto& p = slot(s);
  if (keeps_) [[unlikely]] keep(p, h, channel, payload, tail);
  transmit(channels_[channel], {.head = front_, .body = payload, .tail = std::move(tail)});
  if (front_.capacity() > kept_buffer_bytes) front_ = {};

  p.done = std::move(done);
  p.channel = channel;
  p.bytes = static_cast<std::uint32_t>(std::min<std::size_t>(total, UINT32_MAX));
  p.what = h.what;
  p.open = true;
  p.group = false;
  ++next_;
  ++in_flight_;
  outstanding_bytes_ += p.bytes;
  return s;
}

void kvclt::transmit(channel_state& to, const net::outgoing& message) {
  if (!to.open) {  // whoever asked for the place did it before the server was lost
    left_behind_ = true;
    return;
  }
  if (to.number < 0) to.number = port_->connect(to.address);
  port_->send(to.number, message);
}

void kvclt::make_room(std::size_t bytes) {
  // A handler that runs while we wait may send too, so look at the window only afterwards.
  if (!in_handler_ && in_flight_ > 0 && outstanding_bytes_ + bytes > options_.max_outstanding_bytes)
    drive([&] { return in_flight_ == 0 || outstanding_bytes_ + bytes <= options_.max_outstanding_bytes || waits_in_vain(); },
          low_);
  if (keeps_ && !in_handler_ && next_ - low_ >= most_unanswered)
    drive([&] { return next_ - low_ < most_unanswered || waits_in_vain(); }, low_);
  widen();
}

void kvclt::widen() {
  if (next_ - low_ < window_.size()) return;
  std::vector<pending> wider(window_.size() * 2);
  for (auto s = low_; s < next_; ++s) wider[s & (wider.size() - 1)] = std::move(slot(s));
  window_ = std::move(wider);
}

kvclt::sequence kvclt::request(const call& c, std::string_view key, const value_view& value, handler done, blob large) {
  follow();
  const stay here(*this);
  auto h = header_of(c);
  const auto at = router_.locate(key);
  h.partition = at.partition;
  h.tag = value.tag;
  const auto channel = first_channel_[at.server] + at.shard;
  auto payload = value.bytes;
  if (large) {
    payload = {};
  } else if (payload.size() > net::tail_threshold_bytes) {
    large = blob::copy_of(payload);
    payload = {};
  }
  return send(channel, h, key, c.prefix, payload, std::move(large), std::move(done));
}

kvclt::sequence kvclt::shard_request(const call& c, std::uint32_t channel, std::uint32_t count, value_tag tag,
                                     std::span<const std::byte> payload, handler done, blob large) {
  auto h = header_of(c);
  h.count = count;
  h.tag = tag;
  return send(channel, h, {}, {}, payload, std::move(large), std::move(done));
}

kvclt::sequence kvclt::shard_request(const call& c, std::uint32_t server, std::uint32_t shard, std::string_view key,
                                     std::span<const std::byte> payload, handler done) {
  const stay here(*this);
  auto h = header_of(c);
  return send(first_channel_[server] + shard, h, key, {}, payload, {}, std::move(done));
}

void kvclt::broadcast(const call& c, std::string_view key, std::span<const std::byte> payload, const handler& each) {
  follow();
  if (keeps_) remember(c, key, payload);
  if (keeps_ && c.what == net::verb::clear) return clear_everywhere(c, each);
  std::size_t unanswered = 0;
  const auto send_all = [&] {
    const stay here(*this);
    for (std::size_t server = 0; server < members_.servers.size(); ++server) {
      if (!serves(first_channel_[server])) continue;
      for (std::uint32_t shard = 0; shard < members_.servers[server].shards.size(); ++shard) {
        auto h = header_of(c);
        ++unanswered;
        send(first_channel_[server] + shard, h, key, {}, payload, {}, [&](const kv_result& r) {
          --unanswered;
          each(r);
        });
      }
    }
  };
  send_and_finish(send_all, unanswered);
}

kvclt::sequence kvclt::subscribe(std::uint32_t server, std::uint32_t shard, std::uint32_t clock,
                                 std::span<const std::byte> items, std::uint32_t count, handler done) {
  const stay here(*this);
  net::request_header h;
  h.what = net::verb::subscribe;
  h.clock = clock;
  h.count = count;
  return send(first_channel_[server] + shard, h, {}, {}, items, {}, std::move(done));
}

std::uint32_t kvclt::clock_channel() const noexcept {
  const auto server = router_.clock_server();
  return first_channel_[server] + static_cast<std::uint32_t>(members_.servers[server].shards.size());
}

kvclt::sequence kvclt::clock_request(net::verb what, std::uint32_t clock, handler done, std::uint16_t flags) {
  follow();
  const stay here(*this);
  net::request_header h;
  h.what = what;
  h.flags = flags;
  h.clock = clock;
  subscribes_ = subscribes_ || what == net::verb::subscribe;
  return send(clock_channel(), h, {}, {}, {}, {}, std::move(done));
}

kvclt::sequence kvclt::control_request(net::verb what, std::uint32_t server, handler done) {
  follow();
  const stay here(*this);
  net::request_header h;
  h.what = what;
  const auto shards = static_cast<std::uint32_t>(members_.servers.at(server).shards.size());
  return send(first_channel_[server] + shards + 1, h, {}, {}, {}, {}, std::move(done));
}

bool kvclt::receive(std::chrono::milliseconds timeout) {
  if (!port_->receive(incoming_, timeout)) return false;
  silence_ = {};
  net::reply_view reply;
  if (const char* reason = net::decode(incoming_.frame, incoming_.tail.size(), reply); reason != nullptr)
    throw protocol_error(std::string("a server sent a malformed reply: ") + reason);
  // A server that ends. Whether the job has ended, and with which status, is for the scheduler or its silence to say.
  if (reply.header.result == net::status::job_ended && (ended_ != nullptr || keeps_)) return true;
  // Somebody else has the address of a server that is gone. Of that one the scheduler will tell.
  if (reply.header.result == net::status::wrong_job && keeps_) return true;
  if (reply.header.result == net::status::reconnected) {
    note_broken(incoming_.channel);
    if (!keeps_) give_up_connection(incoming_.channel);
    return true;
  }
  const auto s = reply.header.sequence;
  if (reply.header.what == net::verb::ping && s == 0) {
    note_alive(incoming_.channel);
    return true;
  }
  if (const auto parked = parked_.find(s); parked != parked_.end()) {
    const auto done = std::move(parked->second.done);
    parked_.erase(parked);
    run(done, {reply.header, reply.body, std::move(incoming_.tail)});
    return true;
  }
  if (s < low_ || s >= next_ || !slot(s).open) return true;  // answered before, or never asked
  auto& p = slot(s);
  if (p.group) return true;
  if (p.kept != nullptr && !takes(p, reply)) [[unlikely]] return true;
  const auto done = std::move(p.done);
  close(p);
  run(done, {reply.header, reply.body, std::move(incoming_.tail)});
  return true;
}

void kvclt::close_front() noexcept {
  while (low_ < next_ && !slot(low_).open) ++low_;
}

void kvclt::run(const handler& done, const kv_result& result) {
  if (!done) return;
  const no_waiting handling(*this);
  done(result);
}

void kvclt::close(pending& p) noexcept {
  p.open = false;
  if (p.kept != nullptr) [[unlikely]] recycle(p);
  --in_flight_;
  outstanding_bytes_ -= p.bytes;
  close_front();
}

void kvclt::give_up_connection(int number) const {
  const auto to = std::ranges::find(channels_, number, &channel_state::number);
  throw network_error("the connection to " + to->address + " of s" + std::to_string(to->slot) +
                          " broke, and what was on its way is lost: it is unknown whether the server executed it. With "
                          "--replicas 2 or --elastic it would have been sent again",
                      true);
}

void kvclt::give_up(sequence s, std::chrono::milliseconds silence) const {
  const auto& p = slot(s);
  throw network_error(std::string("no answer to ") + net::name_of(p.what) + " from " + channels_[p.channel].address +
                          " for " + std::to_string(silence.count()) +
                          " ms; it is unknown whether the server executed it",
                      true, exit_status::timeout);
}

bool kvclt::answered(sequence s) const noexcept { return s < low_ || (s < next_ && !slot(s).open); }

void kvclt::wait(sequence s) {
  try {
    drive([&] { return answered(s); }, s);
  } catch (...) {
    forget(s, s);  // its handler may refer to the caller's stack
    throw;
  }
}

void kvclt::wait_all() {
  drive([&] { return in_flight_ == 0; }, low_);
}

std::size_t kvclt::poll() {
  follow();
  std::size_t n = 0;
  while (in_flight_ + parked_.size() > 0 && receive(std::chrono::milliseconds{0})) ++n;
  if (ended_) ended_->check();
  if (n == 0 && in_flight_ != 0) note_silence_while_polling();
  return n;
}

}  // namespace paracel
