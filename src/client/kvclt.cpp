// SPDX-License-Identifier: BSD-3-Clause
#include "client/kvclt.hpp"

#include <algorithm>
#include <utility>

#include <paracel/error.hpp>
#include <paracel/free_memory.hpp>

#include "client/multi_request.hpp"
#include "core/check.hpp"
#include "core/short_bytes.hpp"
#include "core/trace.hpp"

namespace paracel {

namespace {

// Parts of sets remembered as prepared, over all servers; a program may create a new set in each round.
constexpr std::size_t most_prepared = std::size_t{1} << 16;
// Requests in flight from which only some are traced: the records of all would cost more than 3 % of the throughput.
constexpr std::size_t many_in_flight = 4;

std::uint32_t short_count(std::size_t n) noexcept {
  return static_cast<std::uint32_t>(std::min<std::size_t>(n, UINT32_MAX));
}
// From here on clearing memory before it is written takes longer than three calls.
constexpr std::size_t least_appended_bytes = 4096;

}  // namespace

void client_context::run(const request_window::handler& done, const kv_result& result) {
  if (!done && !after_reply) return;
  const nonblocking_scope handling(*this);
  if (done) done(result);
  if (after_reply) [[unlikely]]
    after_reply();
}

bool client_context::traces_next() const noexcept {
  return trace::mine != nullptr && (window.in_flight() < many_in_flight || window.next() % trace::every() == 0);
}

void client_context::trace_answer(request_window::entry& e, request_window::sequence s, net::status result,
                                  std::size_t reply_bytes) const noexcept {
  trace::add({.begin = std::exchange(e.traced_since, 0),
              .end = trace::now(),
              .client = incarnation,
              .sequence = s,
              .bytes = e.bytes,
              .more = short_count(reply_bytes),
              .slot = e.slot,
              .result = static_cast<std::uint16_t>(result),
              .kind = trace::kind::request,
              .what = static_cast<std::uint8_t>(e.what)});
}

void client_context::complete_locally(request_window::sequence s, net::status result, std::string_view text) {
  auto& e = window.at(s);
  net::reply_header h;
  h.what = e.what;
  h.sequence = s;
  h.result = result;
  const auto done = std::move(e.done);
  if (e.traced_since != 0) trace_answer(e, s, result, 0);
  window.close(e);
  run(done, {h, net::bytes_of(text), {}});
}

net::request_header kvclt::header_of(const call& c) noexcept {
  net::request_header h;
  h.what = c.what;
  h.flags = c.flags;
  h.clock = c.clock;
  h.function = c.function;
  h.table = c.table;
  h.credit = c.credit;
  return h;
}

void kvclt::check_key(std::string_view key) {
  if (key.size() > net::max_key_bytes)
    throw protocol_error("a key of " + std::to_string(key.size()) + " bytes is over the limit of " +
                         std::to_string(net::max_key_bytes));
}

kvclt::kvclt(client_context& shared, const server_entry& server)
    : shared_(shared), slot_(server.slot), incarnation_(server.incarnation), serves_(takes_part(server.state)) {
  for (const auto& address : server.shards) add_link(address);
  add_link(server.clock);
  add_link(server.control);
}

void kvclt::add_link(const std::string& address) {
  const auto policy = shared_.retains ? net::on_loss::notify : net::on_loss::fail;
  const auto silent = shared_.options.resend_after / 4;
  links_.push_back({net::reliable_channel(*shared_.port, address, {.policy = policy, .silent = silent})});
}

kvclt::~kvclt() {
  for (std::uint32_t t = 0; t < threads(); ++t) forget_sets(t);
}

kvclt::sequence kvclt::send(std::uint32_t thread, std::uint32_t channel, net::request_header& h, std::string_view key,
                            std::span<const std::byte> prefix, std::span<const std::byte> payload, shared_buffer&& tail,
                            handler&& done) {
  auto& window = shared_.window;
  PARACEL_ASSERT(thread < threads());
  PARACEL_ASSERT(!window.at(window.next()).open);  // room was reserved
  auto& to = links_[thread];
  h.job = shared_.job;
  h.client = shared_.incarnation;
  h.sequence = window.next();
  h.low_watermark = window.low();
  h.rank = shared_.rank;
  h.epoch = shared_.epoch;
  // Workers may take arbitrarily long for an iteration; only the end of the job ends that wait.
  const bool has_time = h.what == net::verb::clock_wait || h.what == net::verb::subscribe;
  h.deadline_ms = has_time ? 0 : static_cast<std::uint32_t>(shared_.options.timeout.count());
  h.key_bytes = static_cast<std::uint32_t>(key.size());
  h.body_bytes = static_cast<std::uint32_t>(key.size() + prefix.size() + payload.size());
  h.tail_bytes = tail.size();
  if (to.channel.has_to_mark() && serves_) to.channel.mark(h);
  const bool parks = h.what == net::verb::subscribe;
  std::uint64_t traced_since = 0;
  if (trace::is_on()) [[unlikely]] {
    h.flags &= static_cast<std::uint16_t>(~net::flag_traced);
    if (!parks && shared_.traces_next()) {
      h.flags |= net::flag_traced;
      traced_since = trace::now();
    }
  }
  if (shared_.retains && !parks) [[likely]] {
    auto& r = retain(thread, channel, h, key, prefix, payload, tail);
    net::request_bytes head;
    net::encode(h, head);
    if (serves_) [[likely]]
      to.channel.transmit({.head = head, .body = r.body, .tail = std::move(tail)});
    else shared_.left_behind = true;  // the place was looked up before the server was lost
  } else {
    front_.resize(net::request_header_bytes + key.size() + prefix.size());
    net::encode(h, std::span<std::byte, net::request_header_bytes>(front_.data(), net::request_header_bytes));
    const auto after_key = std::ranges::copy(net::bytes_of(key), front_.begin() + net::request_header_bytes).out;
    std::ranges::copy(prefix, after_key);
    if (serves_) [[likely]]
      to.channel.transmit({.head = front_, .body = payload, .tail = std::move(tail)});
    else shared_.left_behind = true;
    free_if_larger(front_, kept_buffer_bytes);
  }
  ++shared_.counted.requests;
  shared_.counted.sent_bytes += net::request_header_bytes + h.body_bytes + h.tail_bytes;
  if (parks) return window.park({channel, h.clock, std::move(done)});
  const auto s = window.open(h.what, channel, net::request_header_bytes + h.body_bytes + h.tail_bytes, std::move(done));
  if (trace::is_on()) [[unlikely]] {
    window.at(s).traced_since = traced_since;
    window.at(s).slot = static_cast<std::uint16_t>(slot_);
  }
  return s;
}

retained_request& kvclt::retain(std::uint32_t thread, std::uint32_t channel, const net::request_header& h,
                                std::string_view key, std::span<const std::byte> prefix,
                                std::span<const std::byte> payload, const shared_buffer& tail) {
  auto& r = shared_.window.retain_next();
  r.header = h;
  r.place = h.sequence;
  if (payload.size() > least_appended_bytes) {
    r.body.clear();
    r.body.reserve(h.body_bytes);
    for (const auto& part : {net::bytes_of(key), prefix, payload})
      r.body.insert(r.body.end(), part.begin(), part.end());
  } else {
    r.body.resize(h.body_bytes);
    auto* to = r.body.data();
    copy_short(to, key.data(), key.size());
    copy_short(to += key.size(), prefix.data(), prefix.size());
    copy_short(to + prefix.size(), payload.data(), payload.size());
  }
  if (tail || r.tail) [[unlikely]]  // r.tail: of an earlier one that could not be sent
    r.tail = tail;
  r.channel = channel;
  r.slot = slot_;
  r.incarnation = incarnation_;
  r.thread = thread;
  return r;
}

void kvclt::resend(std::uint32_t thread, net::request_header& h, std::span<const std::byte> body,
                   const shared_buffer& tail) {
  PARACEL_CHECK(thread < threads() && shared_.retains);
  // An answered request may be below the watermark, and a server would reject it as expired.
  PARACEL_ASSERT(shared_.window.is_open(h.sequence));
  h.epoch = shared_.epoch;
  h.low_watermark = shared_.window.low();
  if (serves_) links_[thread].channel.send(h, body, tail);
  else shared_.left_behind = true;
}

void kvclt::check_health(std::uint32_t thread, std::chrono::nanoseconds now,
                         const net::reliable_channel::silence& so_far) {
  net::request_header h;
  h.job = shared_.job;
  h.client = shared_.incarnation;
  h.rank = shared_.rank;
  h.epoch = shared_.epoch;
  h.low_watermark = shared_.window.low();
  links_[thread].channel.check_health(now, h, so_far);
}

void kvclt::renew(std::uint32_t thread) {
  links_[thread].channel.renew();
  forget_sets(thread);
}

void kvclt::disconnect() {
  for (auto& l : links_) l.channel.disconnect();
}

void kvclt::record_set(std::uint32_t thread, const digest128& digest) {
  auto& sets = links_[thread].sets;
  if (shared_.prepared_sets >= most_prepared && !sets.empty()) {  // the next request on that set prepares it again
    sets.erase(sets.begin());
    --shared_.prepared_sets;
  }
  if (sets.emplace(digest.low, digest.high).second) ++shared_.prepared_sets;
}

void kvclt::forget_sets(std::uint32_t thread) noexcept {
  auto& sets = links_[thread].sets;
  PARACEL_CHECK(shared_.prepared_sets >= sets.size());
  shared_.prepared_sets -= sets.size();
  sets.clear();
}

}  // namespace paracel
