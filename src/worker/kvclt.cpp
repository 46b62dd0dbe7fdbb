// SPDX-License-Identifier: BSD-3-Clause
#include "worker/kvclt.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <random>
#include <type_traits>
#include <utility>

#include <paracel/error.hpp>

namespace paracel {

namespace {

constexpr std::size_t initial_window = 1024;
// What a buffer may keep between requests.
constexpr std::size_t kept_buffer_bytes = std::size_t{1} << 20;
// A shard whose room for key sets is too small for those of all its clients may forget one before it was used.
constexpr unsigned most_attempts = 16;
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

void check_key(std::string_view key) {
  if (key.size() > net::max_key_bytes)
    throw protocol_error("a key of " + std::to_string(key.size()) + " bytes is over the limit of " +
                         std::to_string(net::max_key_bytes));
}

std::uint64_t new_incarnation() {
  std::random_device source;
  return (static_cast<std::uint64_t>(source()) << 32U) | source();
}

/// Values of `bytes` bytes each, those that `order` names, one after the other.
void gather(std::byte* to, const std::byte* from, std::span<const std::uint32_t> order, std::size_t bytes) {
  const auto each = [&](auto width) {
    for (const auto i : order) {
      std::memcpy(to, from + i * width, width);
      to += width;
    }
  };
  switch (bytes) {
    case 0: return;
    case 4: return each(std::integral_constant<std::size_t, 4>());
    case 8: return each(std::integral_constant<std::size_t, 8>());
    default: return each(bytes);
  }
}

}  // namespace

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

// ---- several requests that are one to the caller ------------------------------------------------------------------

/// Memory that is used again, and not cleared before.
struct byte_buffer {
  std::unique_ptr<std::byte[]> memory;
  std::size_t capacity = 0;
  std::size_t size = 0;

  std::byte* reserve(std::size_t bytes) {
    if (capacity < bytes) {
      memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
      capacity = bytes;
    }
    size = bytes;
    return memory.get();
  }
  void trim() noexcept {
    if (capacity > kept_buffer_bytes) *this = {};
  }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {memory.get(), size}; }
};

struct kvclt::group {
  /// One of the requests.
  struct chunk {
    std::uint32_t channel = 0;
    std::uint32_t begin = 0;  // of its keys in the order
    std::uint32_t end = 0;
    unsigned attempts = 0;    // of a request on a set
    bool unprepared = false;  // its set_prepare was refused
    byte_buffer body;         // what was sent
  };
  sequence number = 0;
  std::size_t unanswered = 0;
  net::request_header header;
  keyed_handler each;
  part_handler each_part;
  end_handler end;
  std::shared_ptr<const key_parts> set;
  std::vector<std::uint32_t> order;       // of a multi request: indices of keys, shard by shard
  std::vector<std::uint32_t> channel_of;  // of each key
  std::vector<std::uint32_t> begin;       // of each channel, in the order
  std::vector<chunk> chunks;
  std::size_t used = 0;                   // of the chunks

  chunk& add(std::uint32_t channel, std::uint32_t from, std::uint32_t to) {
    if (used == chunks.size()) chunks.emplace_back();
    auto& c = chunks[used++];
    c.channel = channel;
    c.begin = from;
    c.end = to;
    c.attempts = 0;
    c.unprepared = false;
    return c;
  }
};

kvclt::group& kvclt::open_group(const call& c) {
  make_room(0);  // first: a handler that runs meanwhile may take a group
  if (free_groups_.empty()) {
    free_groups_.reserve(groups_.size() + 1);
    groups_.push_back(std::make_unique<group>());
    free_groups_.push_back(groups_.back().get());
  }
  auto& g = *free_groups_.back();
  free_groups_.pop_back();
  g.number = next_++;
  g.header = header_of(c);
  g.unanswered = 1;  // until all have been sent
  g.used = 0;
  auto& p = slot(g.number);
  p = {};
  p.what = c.what;
  p.open = true;
  p.group = true;
  ++in_flight_;
  return g;
}

/// Its handlers may refer to what is no longer there.
void kvclt::silence(group& g) noexcept {
  g.each = nullptr;
  g.each_part = nullptr;
  g.end = nullptr;
}

void kvclt::release(group& g) noexcept {
  silence(g);
  g.set = nullptr;
  for (std::size_t i = 0; i < g.used; ++i) g.chunks[i].body.trim();
  free_groups_.push_back(&g);
}

/// One request of the group is answered, or the last one is sent.
void kvclt::answered_part(group& g) {
  if (--g.unanswered != 0) return;
  const auto number = g.number;
  close(slot(number));
  const auto end = std::move(g.end);
  release(g);
  if (end) end(number);
}

namespace {

/// Calls f when it goes, whatever happens.
template <class F>
struct finally {
  F f;
  ~finally() { f(); }
};
template <class F>
finally(F) -> finally<F>;

/// Calls f when it goes by an exception.
template <class F>
struct on_error {
  F f;
  int before = std::uncaught_exceptions();
  ~on_error() {
    if (std::uncaught_exceptions() > before) f();
  }
};
template <class F>
on_error(F) -> on_error<F>;

}  // namespace

kvclt::sequence kvclt::multi_async(const call& c, std::span<const std::string> keys, std::span<const value_view> values,
                                   keyed_handler each, end_handler end) {
  follow();
  const stay here(*this);
  auto& g = open_group(c);
  const auto number = g.number;
  g.each = std::move(each);
  g.end = std::move(end);
  const finally sent{[&] { answered_part(g); }};
  const on_error failed{[&] { silence(g); }};
  // Counting sort of the keys by channel.
  g.channel_of.resize(keys.size());
  g.begin.assign(channels_.size() + 1, 0);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    check_key(keys[i]);
    const auto at = router_.locate(keys[i]);
    g.channel_of[i] = first_channel_[at.server] + at.shard;
    ++g.begin[g.channel_of[i]];
  }
  std::uint32_t sum = 0;
  for (auto& b : g.begin) sum += std::exchange(b, sum);
  g.order.resize(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) g.order[g.begin[g.channel_of[i]]++] = static_cast<std::uint32_t>(i);
  // Every channel's beginning is now its end.
  std::uint32_t from = 0;
  for (std::uint32_t channel = 0; channel < channels_.size(); ++channel) {
    const auto last = g.begin[channel];
    while (from < last) {
      std::size_t bytes = 0;
      auto to = from;
      while (to < last && (to == from || bytes < options_.multi_chunk_bytes)) {
        const auto i = g.order[to++];
        bytes += net::request_item_bytes + keys[i].size() + (values.empty() ? 0 : values[i].bytes.size());
      }
      send_items(g, channel, {from, to}, keys, values, bytes);
      from = to;
    }
  }
  return number;
}

void kvclt::send_items(group& g, std::uint32_t channel, unsigned_range piece, std::span<const std::string> keys,
                       std::span<const value_view> values, std::size_t bytes) {
  const auto index = g.used;
  auto& chunk = g.add(channel, piece.first, piece.second);
  auto* to = chunk.body.reserve(bytes);
  for (auto k = piece.first; k < piece.second; ++k) {
    const auto i = g.order[k];
    to = net::write_item(to, keys[i], values.empty() ? value_view{} : values[i]);
  }
  auto h = g.header;
  h.count = piece.second - piece.first;
  slot(g.number).channel = channel;
  ++g.unanswered;
  try {
    send(channel, h, {}, {}, chunk.body.bytes(), {}, [this, &g, index](const kv_result& r) { take_items(g, index, r); });
  } catch (...) {
    --g.unanswered;
    throw;
  }
}

void kvclt::take_items(group& g, std::size_t index, const kv_result& r) {
  const finally counted{[&] { answered_part(g); }};
  if (!g.each) return;
  auto& chunk = g.chunks[index];
  const auto count = chunk.end - chunk.begin;
  const auto* order = g.order.data() + chunk.begin;
  net::request_items asked(chunk.body.bytes(), count);
  net::request_item request;
  if (!r.ok()) {
    for (std::size_t n = 0; n < count && asked.next(request); ++n)
      g.each(order[n], request.key, {r.header.result, 0, {value_tag::packed, r.body}});
    return;
  }
  net::reply_items items(r.tail ? r.tail.bytes() : r.body, r.header.count);
  net::reply_item item;
  std::size_t n = 0;
  for (; n < count && items.next(item) && asked.next(request); ++n) g.each(order[n], request.key, item);
  if (n != count || !items.ok()) throw protocol_error("a multi reply does not fit its request");
}

void kvclt::multi(const call& c, std::span<const std::string> keys, std::span<const value_view> values,
                  const item_handler& each) {
  wait(multi_async(c, keys, values,
                   [&each](std::size_t i, std::string_view, const net::reply_item& item) { each(i, item); }));
}

// ---- prepared key sets --------------------------------------------------------------------------------------------

namespace {

std::size_t keys_bytes(const key_parts& set, std::uint32_t begin, std::uint32_t end) {
  std::size_t bytes = 0;
  for (auto k = begin; k < end; ++k) bytes += net::request_item_bytes + set.keys[set.order[k]].size();
  return bytes;
}

/// The payload of set_prepare, of which the digest is made.
void write_keys(const key_parts& set, std::uint32_t begin, std::uint32_t end, byte_buffer& out) {
  auto* to = out.reserve(keys_bytes(set, begin, end));
  for (auto k = begin; k < end; ++k) to = net::write_item(to, set.keys[set.order[k]], {});
}

std::string_view text_of(const digest128& d) { return {reinterpret_cast<const char*>(&d), sizeof d}; }

}  // namespace

std::shared_ptr<const key_parts> kvclt::split(std::vector<std::string> keys) const {
  auto set = std::make_shared<key_parts>();
  set->job = members_.job;
  set->epoch = members_.epoch;
  set->keys = std::move(keys);
  std::vector<std::vector<std::uint32_t>> of_channel(channels_.size());
  for (std::uint32_t i = 0; i < set->keys.size(); ++i) {
    check_key(set->keys[i]);
    const auto at = router_.locate(set->keys[i]);
    of_channel[first_channel_[at.server] + at.shard].push_back(i);
  }
  byte_buffer payload;
  for (std::uint32_t channel = 0; channel < channels_.size(); ++channel) {
    std::size_t bytes = options_.multi_chunk_bytes;
    for (const auto i : of_channel[channel]) {
      const auto at = static_cast<std::uint32_t>(set->order.size());
      if (bytes >= options_.multi_chunk_bytes) {
        set->parts.push_back({channel, at, at, {}});
        bytes = 0;
      }
      bytes += net::request_item_bytes + set->keys[i].size();
      set->order.push_back(i);
      ++set->parts.back().end;
    }
  }
  for (auto& part : set->parts) {
    write_keys(*set, part.begin, part.end, payload);
    part.digest = digest_of(payload.bytes());
  }
  return set;
}

void kvclt::send_prepare(const key_parts& set, const key_parts::part& part, handler done) {
  byte_buffer payload;
  write_keys(set, part.begin, part.end, payload);
  net::request_header h;
  h.what = net::verb::set_prepare;
  h.count = part.end - part.begin;
  send(part.channel, h, text_of(part.digest), {}, payload.bytes(), {}, std::move(done));
  prepared_.emplace(part.channel, part.digest.low, part.digest.high);
}

void kvclt::prepare(const key_parts& set) {
  if (set.epoch != members_.epoch) return;  // the first request on it prepares what it has become
  for (const auto& part : set.parts) {
    if (prepared_.contains({part.channel, part.digest.low, part.digest.high})) continue;
    send_prepare(set, part, nullptr);  // what is wrong with it, the first request will say
  }
}

kvclt::sequence kvclt::set_async(const call& c, std::shared_ptr<const key_parts> set, const set_payload& values,
                                 part_handler each, end_handler end) {
  follow();
  const stay places(*this);
  if (set->epoch != members_.epoch && keeps_) set = here(std::move(set));
  if (set->job != members_.job || set->epoch != members_.epoch) throw error("a key set of another job or another time");
  prepare(*set);
  auto& g = open_group(c);
  const auto number = g.number;
  g.each_part = std::move(each);
  g.end = std::move(end);
  g.set = std::move(set);
  g.header.tag = values.tag;
  const finally sent{[&] { answered_part(g); }};
  const on_error failed{[&] { silence(g); }};
  for (const auto& part : g.set->parts) {
    auto& chunk = g.add(part.channel, part.begin, part.end);
    if (!values.items.empty()) {
      std::size_t bytes = 0;
      for (auto k = part.begin; k < part.end; ++k)
        bytes += net::request_item_bytes + values.items[g.set->order[k]].bytes.size();
      auto* to = chunk.body.reserve(bytes);
      for (auto k = part.begin; k < part.end; ++k) to = net::write_item(to, {}, values.items[g.set->order[k]]);
    } else {
      auto* to = chunk.body.reserve(values.value_bytes * (part.end - part.begin));
      gather(to, values.numbers.data(), std::span(g.set->order).subspan(part.begin, part.end - part.begin),
             values.value_bytes);
    }
    send_part(g, g.used - 1);
  }
  return number;
}

void kvclt::send_part(group& g, std::size_t index) {
  auto& chunk = g.chunks[index];
  auto h = g.header;
  h.count = chunk.end - chunk.begin;
  slot(g.number).channel = chunk.channel;
  ++g.unanswered;
  try {
    const auto s = send(chunk.channel, h, text_of(g.set->parts[index].digest), {}, chunk.body.bytes(), {},
                        [this, &g, index](const kv_result& r) { take_part(g, index, r); });
    if (auto& p = slot(s); keeps_ && p.kept != nullptr) {
      p.kept->set = g.set;
      p.kept->set_part = static_cast<std::uint32_t>(index);
    }
  } catch (...) {
    --g.unanswered;
    throw;
  }
}

void kvclt::take_part(group& g, std::size_t index, const kv_result& r) {
  const finally counted{[&] { answered_part(g); }};
  auto& chunk = g.chunks[index];
  if (r.header.result == net::status::unknown_set) {
    // The shard holds back what this client sent after the request until it comes again behind its keys.
    const stay here(*this);
    if (++chunk.attempts < most_attempts && !chunk.unprepared && g.set->epoch == members_.epoch) {
      if (before_) before_(g.header.what, nullptr);  // nothing may come between the keys and the request
      send_prepare(*g.set, g.set->parts[index], [&g, index](const kv_result& prepared) {
        g.chunks[index].unprepared = !prepared.ok();
      });
      return send_part(g, index);
    }
  }
  if (chunk.attempts != 0 && !r.ok() && g.set->epoch == members_.epoch) {  // nothing may stay held back for it
    net::request_header give_up;
    give_up.what = net::verb::ping;
    send(chunk.channel, give_up, {}, {}, {}, {}, nullptr);
  }
  if (g.each_part) g.each_part(std::span(g.set->order).subspan(chunk.begin, chunk.end - chunk.begin), r);
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

void kvclt::forget(sequence first, sequence last) noexcept {
  for (auto s = std::max(first, low_); s <= last && s < next_; ++s) {
    slot(s).done = nullptr;
    if (!slot(s).open || !slot(s).group) continue;
    for (const auto& g : groups_)
      if (g->number == s) silence(*g);
  }
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

kvclt::sequence kvclt::clock_request(net::verb what, std::uint32_t clock, handler done) {
  follow();
  const stay here(*this);
  net::request_header h;
  h.what = what;
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
