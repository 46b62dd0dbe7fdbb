// SPDX-License-Identifier: BSD-3-Clause
#include "worker/kvclt.hpp"

#include <algorithm>
#include <random>
#include <utility>

#include <paracel/error.hpp>

namespace paracel {

namespace {

constexpr std::size_t initial_window = 1024;
// What stays of a buffer after a request with a large prefix.
constexpr std::size_t kept_front_bytes = std::size_t{1} << 20;
// How often a blocked call looks whether the job has ended.
constexpr std::chrono::milliseconds look_up_interval{100};

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

kvclt::kvclt(net::transport& transport, membership servers, std::uint32_t rank, kvclt_options options,
             std::shared_ptr<abort_signal> ended)
    : members_(std::move(servers)),
      router_(members_),
      options_(options),
      ended_(std::move(ended)),
      port_(transport.open()),
      incarnation_(new_incarnation()),
      rank_(rank),
      window_(initial_window) {
  for (const auto& s : members_.servers) {
    first_channel_.push_back(static_cast<std::uint32_t>(channels_.size()));
    for (const auto& address : s.shards) channels_.push_back({-1, address});
    channels_.push_back({-1, s.clock});
    channels_.push_back({-1, s.control});
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
    if (receive(look_up_interval)) {
      last_sign = {};
      continue;
    }
    if (ended_) ended_->check();
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
  if (key.size() > net::max_key_bytes)
    throw protocol_error("a key of " + std::to_string(key.size()) + " bytes is over the limit of " +
                         std::to_string(net::max_key_bytes));
  const auto total = net::request_header_bytes + key.size() + prefix.size() + payload.size() + tail.size();
  if (total > options_.max_message_bytes)
    throw network_error("a request of " + std::to_string(total) + " bytes is over the limit of " +
                            std::to_string(options_.max_message_bytes),
                        false);
  make_room(total);
  if (before_) {
    const auto about = subject_of(h.what);
    if (about != subject::other) before_(h.what, about == subject::key ? &key : nullptr);
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
  front_.resize(net::request_header_bytes + key.size() + prefix.size());
  net::encode(h, std::span<std::byte, net::request_header_bytes>(front_.data(), net::request_header_bytes));
  const auto after_key = std::ranges::copy(net::bytes_of(key), front_.begin() + net::request_header_bytes).out;
  std::ranges::copy(prefix, after_key);

  auto& to = channels_[channel];
  if (to.number < 0) to.number = port_->connect(to.address);
  port_->send(to.number, {.head = front_, .body = payload, .tail = std::move(tail)});
  if (front_.capacity() > kept_front_bytes) front_ = {};

  if (h.what == net::verb::subscribe) {
    parked_.emplace(s, std::move(done));
    ++next_;
    close_front();
    return s;
  }
  auto& p = slot(s);
  p.done = std::move(done);
  p.channel = channel;
  p.bytes = static_cast<std::uint32_t>(std::min<std::size_t>(total, UINT32_MAX));
  p.what = h.what;
  p.open = true;
  ++next_;
  ++in_flight_;
  outstanding_bytes_ += p.bytes;
  return s;
}

void kvclt::make_room(std::size_t bytes) {
  // A handler that runs while we wait may send too, so look at the window only afterwards.
  if (!in_handler_ && in_flight_ > 0 && outstanding_bytes_ + bytes > options_.max_outstanding_bytes)
    drive([&] { return in_flight_ == 0 || outstanding_bytes_ + bytes <= options_.max_outstanding_bytes; }, low_);
  if (next_ - low_ < window_.size()) return;
  std::vector<pending> wider(window_.size() * 2);
  for (auto s = low_; s < next_; ++s) wider[s & (wider.size() - 1)] = std::move(slot(s));
  window_ = std::move(wider);
}

kvclt::sequence kvclt::request(const call& c, std::string_view key, const value_view& value, handler done, blob large) {
  auto h = header_of(c);
  const auto at = router_.locate(key);
  h.partition = at.partition;
  h.tag = value.tag;
  const auto channel = first_channel_[at.server] + at.shard;
  auto payload = value.bytes;
  if (large) {
    payload = {};
  } else if (payload.size() > net::tail_threshold_bytes) {
    large = blob::allocate(payload.size());
    std::ranges::copy(payload, large.mutable_data());
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

void kvclt::multi(const call& c, std::span<const std::string> keys, std::span<const value_view> values,
                  const item_handler& each) {
  // Counting sort of the keys by channel: `order` lists them shard by shard.
  std::vector<std::uint32_t> channel_of(keys.size());
  std::vector<std::uint32_t> begin(channels_.size() + 1, 0);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto at = router_.locate(keys[i]);
    channel_of[i] = first_channel_[at.server] + at.shard;
    ++begin[channel_of[i] + 1];
  }
  for (std::size_t k = 1; k < begin.size(); ++k) begin[k] += begin[k - 1];
  std::vector<std::uint32_t> order(keys.size());
  auto fill = begin;
  for (std::size_t i = 0; i < keys.size(); ++i) order[fill[channel_of[i]]++] = static_cast<std::uint32_t>(i);

  std::size_t unanswered = 0;
  std::vector<std::byte> body;
  const auto send_all = [&] {
    for (std::uint32_t channel = 0; channel < channels_.size(); ++channel) {
      auto from = begin[channel];
      while (from < begin[channel + 1]) {
        body.clear();
        auto to = from;
        while (to < begin[channel + 1] && (to == from || body.size() < options_.multi_chunk_bytes)) {
          const auto i = order[to++];
          net::append_item(body, keys[i], values.empty() ? value_view{} : values[i]);
        }
        auto h = header_of(c);
        h.count = to - from;
        ++unanswered;
        send(channel, h, {}, {}, body, {}, [&, mine = std::span(order).subspan(from, to - from)](const kv_result& r) {
          --unanswered;
          if (!r.ok()) {
            for (const auto i : mine) each(i, {r.header.result, 0, {value_tag::packed, r.body}});
            return;
          }
          net::reply_items items(r.tail ? r.tail.bytes() : r.body, r.header.count);
          net::reply_item item;
          std::size_t n = 0;
          while (n < mine.size() && items.next(item)) each(mine[n++], item);
          if (n != mine.size() || !items.ok()) throw protocol_error("a multi reply does not fit its request");
        });
        from = to;
      }
    }
  };
  send_and_finish(send_all, unanswered);
}

kvclt::sequence kvclt::shard_request(const call& c, std::uint32_t server, std::uint32_t shard, std::string_view key,
                                     std::span<const std::byte> payload, handler done) {
  auto h = header_of(c);
  return send(first_channel_[server] + shard, h, key, {}, payload, {}, std::move(done));
}

void kvclt::broadcast(const call& c, std::string_view key, std::span<const std::byte> payload, const handler& each) {
  std::size_t unanswered = 0;
  const auto send_all = [&] {
    for (std::size_t server = 0; server < members_.servers.size(); ++server) {
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

void kvclt::forget(sequence first, sequence last) noexcept {
  for (auto s = std::max(first, low_); s <= last && s < next_; ++s) slot(s).done = nullptr;
}

kvclt::sequence kvclt::subscribe(std::uint32_t server, std::uint32_t shard, std::uint32_t clock,
                                 std::span<const std::byte> items, std::uint32_t count, handler done) {
  net::request_header h;
  h.what = net::verb::subscribe;
  h.clock = clock;
  h.count = count;
  return send(first_channel_[server] + shard, h, {}, {}, items, {}, std::move(done));
}

kvclt::sequence kvclt::clock_request(net::verb what, std::uint32_t clock, handler done) {
  net::request_header h;
  h.what = what;
  h.clock = clock;
  const auto server = router_.clock_server();
  const auto shards = static_cast<std::uint32_t>(members_.servers[server].shards.size());
  return send(first_channel_[server] + shards, h, {}, {}, {}, {}, std::move(done));
}

kvclt::sequence kvclt::control_request(net::verb what, std::uint32_t server, handler done) {
  net::request_header h;
  h.what = what;
  const auto shards = static_cast<std::uint32_t>(members_.servers.at(server).shards.size());
  return send(first_channel_[server] + shards + 1, h, {}, {}, {}, {}, std::move(done));
}

bool kvclt::receive(std::chrono::milliseconds timeout) {
  if (!port_->receive(incoming_, timeout)) return false;
  net::reply_view reply;
  if (const char* reason = net::decode(incoming_.frame, incoming_.tail.size(), reply); reason != nullptr)
    throw protocol_error(std::string("a server sent a malformed reply: ") + reason);
  const auto s = reply.header.sequence;
  if (const auto parked = parked_.find(s); parked != parked_.end()) {
    const auto done = std::move(parked->second);
    parked_.erase(parked);
    run(done, reply);
    return true;
  }
  if (s < low_ || s >= next_ || !slot(s).open) return true;  // answered before, or never asked
  auto& p = slot(s);
  const auto done = std::move(p.done);
  p.done = nullptr;
  p.open = false;
  --in_flight_;
  outstanding_bytes_ -= p.bytes;
  close_front();
  run(done, reply);
  return true;
}

void kvclt::close_front() noexcept {
  while (low_ < next_ && !slot(low_).open) ++low_;
}

void kvclt::run(const handler& done, const net::reply_view& reply) {
  if (!done) return;
  struct mark {
    bool& flag;
    bool before = std::exchange(flag, true);
    ~mark() { flag = before; }
  } const handling{in_handler_};
  done({reply.header, reply.body, std::move(incoming_.tail)});
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
  std::size_t n = 0;
  while (in_flight_ + parked_.size() > 0 && receive(std::chrono::milliseconds{0})) ++n;
  if (ended_) ended_->check();
  return n;
}

}  // namespace paracel
