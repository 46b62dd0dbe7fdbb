// SPDX-License-Identifier: BSD-3-Clause
#include "client/kvclt.hpp"

#include <algorithm>
#include <utility>

#include <paracel/error.hpp>

#include "client/multi_request.hpp"

namespace paracel {

namespace {

// Parts of sets that are known to have been prepared, at all servers; a program may create a new set in each round.
constexpr std::size_t most_prepared = std::size_t{1} << 16;

}  // namespace

void client_context::run(const request_window::handler& done, const kv_result& result) {
  if (!done) return;
  const nonblocking_scope handling(*this);
  done(result);
}

void client_context::complete_locally(request_window::sequence s, net::status result, std::string_view text) {
  auto& e = window.at(s);
  net::reply_header h;
  h.what = e.what;
  h.sequence = s;
  h.result = result;
  const auto done = std::move(e.done);
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
  for (const auto& address : server.shards) lines_.push_back({.address = address});
  lines_.push_back({.address = server.clock});
  lines_.push_back({.address = server.control});
}

kvclt::~kvclt() {
  for (std::uint32_t t = 0; t < threads(); ++t) forget_sets(t);
}

kvclt::sequence kvclt::send(std::uint32_t thread, std::uint32_t channel, net::request_header& h, std::string_view key,
                            std::span<const std::byte> prefix, std::span<const std::byte> payload, shared_buffer&& tail,
                            handler&& done) {
  auto& window = shared_.window;
  auto& to = lines_[thread];
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
  // Where servers do not change the first connection does not either: a ping over another one is rejected then.
  if (shared_.may_change || !to.begun) [[unlikely]]
    begin_stream(to, h);
  front_.resize(net::request_header_bytes + key.size() + prefix.size());
  net::encode(h, std::span<std::byte, net::request_header_bytes>(front_.data(), net::request_header_bytes));
  const auto after_key = std::ranges::copy(net::bytes_of(key), front_.begin() + net::request_header_bytes).out;
  std::ranges::copy(prefix, after_key);

  const bool parks = h.what == net::verb::subscribe;
  if (shared_.may_change && !parks) [[unlikely]]
    retain(thread, channel, h, payload, tail);
  transmit(to, {.head = front_, .body = payload, .tail = std::move(tail)});
  if (front_.capacity() > kept_buffer_bytes) front_ = {};
  if (parks) return window.park({channel, h.clock, std::move(done)});
  return window.open(h.what, channel, net::request_header_bytes + h.body_bytes + h.tail_bytes, std::move(done));
}

void kvclt::retain(std::uint32_t thread, std::uint32_t channel, const net::request_header& h,
                   std::span<const std::byte> payload, const shared_buffer& tail) {
  auto& r = shared_.window.retain_next();
  r.header = h;
  r.place = h.sequence;
  r.body.assign(front_.begin() + net::request_header_bytes, front_.end());
  r.body.insert(r.body.end(), payload.begin(), payload.end());
  r.tail = tail;
  r.channel = channel;
  r.slot = slot_;
  r.incarnation = incarnation_;
  r.thread = thread;
}

void kvclt::resend(std::uint32_t thread, net::request_header& h, std::span<const std::byte> body,
                   const shared_buffer& tail) {
  auto& to = lines_[thread];
  h.epoch = shared_.epoch;
  h.low_watermark = shared_.window.low();
  begin_stream(to, h);
  net::request_bytes head;
  net::encode(h, head);
  transmit(to, {.head = head, .body = body, .tail = tail});
}

void kvclt::ping(std::uint32_t thread) {
  net::request_header h;
  h.what = net::verb::ping;
  h.count = net::ping_alive;
  h.job = shared_.job;
  h.client = shared_.incarnation;
  h.rank = shared_.rank;
  resend(thread, h, {}, {});
}

/// The header of a message that is about to be sent there.
void kvclt::begin_stream(line& to, net::request_header& h) const noexcept {
  h.flags = static_cast<std::uint16_t>((h.flags & ~net::flag_first) | net::flag_stream);
  if (!serves_ || std::exchange(to.begun, true)) return;
  h.flags |= net::flag_first;
}

void kvclt::transmit(line& to, const net::outgoing& message) {
  if (!serves_) {  // the place was looked up before the server was lost
    shared_.left_behind = true;
    return;
  }
  if (to.number < 0) to.number = shared_.port->connect(to.address);
  shared_.port->send(to.number, message);
}

bool kvclt::record_alive(int connection) noexcept {
  const auto from = std::ranges::find(lines_, connection, &line::number);
  if (from == lines_.end()) return false;
  from->care.answered();
  return true;
}

bool kvclt::record_broken(int connection) noexcept {
  const auto from = std::ranges::find(lines_, connection, &line::number);
  if (from == lines_.end()) return false;
  from->broken = true;
  from->care.broke();
  return true;
}

void kvclt::renew(std::uint32_t thread) {
  auto& l = lines_[thread];
  if (l.number >= 0) shared_.port->disconnect(l.number);
  l.number = -1;
  l.begun = false;
  l.broken = false;
  l.care.renewed();
  forget_sets(thread);
}

void kvclt::disconnect() {
  for (auto& l : lines_) {
    if (l.number >= 0) shared_.port->disconnect(l.number);
    l.number = -1;
  }
}

void kvclt::record_set(std::uint32_t thread, const digest128& digest) {
  auto& sets = lines_[thread].sets;
  if (shared_.prepared_sets >= most_prepared && !sets.empty()) {  // the next request on that one prepares it again
    sets.erase(sets.begin());
    --shared_.prepared_sets;
  }
  if (sets.emplace(digest.low, digest.high).second) ++shared_.prepared_sets;
}

void kvclt::forget_sets(std::uint32_t thread) noexcept {
  auto& sets = lines_[thread].sets;
  shared_.prepared_sets -= sets.size();
  sets.clear();
}

}  // namespace paracel
