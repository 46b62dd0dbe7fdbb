// SPDX-License-Identifier: BSD-3-Clause
#include "net/reliable_channel.hpp"

#include <algorithm>

#include <paracel/error.hpp>

#include "core/check.hpp"

namespace paracel::net {

namespace {
constexpr std::size_t least_bytes_per_millisecond = 20'000;  // of a healthy connection
constexpr std::uint64_t traffic_of_pings = 4096;             // and their replies, between two checks
constexpr int pings_apart = 4;                               // times the wait for the probe
}  // namespace

void reliable_channel::send(request_header& h, std::span<const std::byte> body, const shared_buffer& tail) {
  mark(h);
  h.body_bytes = static_cast<std::uint32_t>(body.size());
  h.tail_bytes = tail.size();
  request_bytes head;
  encode(h, head);
  transmit({.head = head, .body = body, .tail = tail});
}

void reliable_channel::send_kept(const request_header& h, shared_buffer body, shared_buffer tail) {
  keep(h, std::move(body), std::move(tail));
  send(kept_.back());
}

void reliable_channel::keep(const request_header& h, shared_buffer body, shared_buffer tail) {
  PARACEL_CHECK(settings_.policy == on_loss::resend);
  PARACEL_CHECK(kept_.empty() || kept_.back().header.sequence < h.sequence);
  auto& k = kept_.emplace_back(kept_message{h, std::move(body), std::move(tail)});
  kept_bytes_ += k.bytes();
}

void reliable_channel::send(kept_message& k) {
  k.header.low_watermark = oldest_kept();
  send(k.header, k.body.bytes(), k.tail);
}

bool reliable_channel::acknowledge(std::uint64_t sequence) noexcept {
  const auto at = std::ranges::find(kept_, sequence, [](const kept_message& k) noexcept { return k.header.sequence; });
  if (at == kept_.end()) return false;
  kept_bytes_ -= at->bytes();
  kept_.erase(at);
  return true;
}

void reliable_channel::acknowledge_before(std::uint64_t sequence) noexcept {
  while (keeps() && oldest_kept() < sequence) {
    kept_bytes_ -= kept_.front().bytes();
    kept_.pop_front();
  }
}

void reliable_channel::take(const reply_header& h, int connection) noexcept {
  if (is_probe(connection)) {
    probe_asked_ = false;
    return;
  }
  if (connection != connection_) return;
  pinged_ = false;
  renewals_ = 0;
  close_probe();
  if (h.result == status::connection_reset) broken_ = true;
}

void reliable_channel::check_health(std::chrono::nanoseconds now, const request_header& identity,
                                    const silence& so_far) {
  if (broken_ || (!pinged_ && now < again_)) return;
  const auto traffic = connection_ < 0 ? 0 : port_->traffic(connection_);
  const bool flows = traffic > traffic_ + traffic_of_pings;
  traffic_ = traffic;
  if (!pinged_ || so_far.heard >= since_ || flows) {
    if (so_far.heard > renewed_) renewals_ = 0;
    close_probe();
    pinged_ = true;
    since_ = now;
    again_ = now + pings_apart * settings_.silent;
    return ping(identity);
  }
  if (now >= again_) {
    again_ = now + pings_apart * settings_.silent;
    ping(identity);
  }
  const std::chrono::milliseconds sending((kept_bytes_ + so_far.in_flight_bytes) / least_bytes_per_millisecond);
  if (now - since_ < (settings_.silent + sending) * (1U << std::min(renewals_, most_doublings))) return;
  if (probe_ >= 0 && probe_asked_) {
    if (now - probed_ < late * (1U << std::min(probes_, most_probe_doublings))) return;
    ++probes_;  // that one may have fallen silent, too
    port_->disconnect(std::exchange(probe_, -1));
    probe_answers_ = 0;
  } else if (probe_ >= 0 && ++probe_answers_ == needed_answers) {
    broken_ = true;
    renewed_ = now;
    return;
  }
  probe(identity, now);
}

void reliable_channel::ping(request_header h) {
  h.what = verb::ping;
  h.count = ping_alive;
  send(h, {});
}

/// It is not the first message of a connection, so the receiver refuses it and keeps the connection that it knows.
void reliable_channel::probe(request_header h, std::chrono::nanoseconds now) {
  try {
    if (probe_ < 0) probe_ = port_->connect(address_);
  } catch (const network_error&) {  // no descriptor is left: the connection stays as it is
    return;
  }
  h.what = verb::ping;
  h.count = ping_alive;
  h.flags = flag_stream;
  h.body_bytes = 0;
  h.tail_bytes = 0;
  request_bytes head;
  encode(h, head);
  port_->send(probe_, {.head = head});
  probe_asked_ = true;
  probed_ = now;
}

void reliable_channel::close_probe() noexcept {
  if (probe_ >= 0) port_->disconnect(std::exchange(probe_, -1));
  probe_asked_ = false;
  probes_ = 0;
  probe_answers_ = 0;
}

void reliable_channel::renew() {
  PARACEL_CHECK(settings_.policy != on_loss::fail);
  const int next = probe_answers_ == needed_answers ? std::exchange(probe_, -1) : -1;
  disconnect();
  connection_ = next;
  ++renewals_;
  for (auto& k : kept_) send(k);
}

void reliable_channel::disconnect() {
  close_probe();
  if (connection_ >= 0) port_->disconnect(std::exchange(connection_, -1));
  begun_ = false;
  marks_ = true;
  broken_ = false;
  pinged_ = false;
  again_ = std::chrono::nanoseconds::min();
  traffic_ = 0;
}

}  // namespace paracel::net
