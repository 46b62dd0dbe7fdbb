// SPDX-License-Identifier: BSD-3-Clause
#include "net/reliable_channel.hpp"

#include <algorithm>

#include "core/check.hpp"

namespace paracel::net {

namespace {
constexpr std::size_t least_bytes_per_millisecond = 20'000;  // of a healthy connection
}

void reliable_channel::send(request_header& h, std::span<const std::byte> body, const shared_buffer& tail) {
  mark(h);
  h.body_bytes = static_cast<std::uint32_t>(body.size());
  h.tail_bytes = tail.size();
  request_bytes head;
  encode(h, head);
  transmit({.head = head, .body = body, .tail = tail});
}

void reliable_channel::send_kept(const request_header& h, shared_buffer body, shared_buffer tail) {
  PARACEL_CHECK(settings_.policy == on_loss::resend);
  PARACEL_CHECK(kept_.empty() || kept_.back().header.sequence < h.sequence);
  auto& k = kept_.emplace_back(kept_message{h, std::move(body), std::move(tail)});
  kept_bytes_ += k.bytes();
  send(k);
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

void reliable_channel::take(const reply_header& h) noexcept {
  pinged_ = false;
  if (h.result != status::connection_reset) return;
  renewals_ = 0;
  broken_ = true;
}

void reliable_channel::check_health(std::chrono::nanoseconds now, request_header identity) {
  if (!pinged_) {
    pinged_ = true;
    since_ = now;
  } else if (settings_.policy != on_loss::fail) {
    const std::chrono::milliseconds sending(kept_bytes_ / least_bytes_per_millisecond);
    const auto silent = settings_.silent * (1U << std::min(renewals_, most_doublings));
    if (now - since_ >= silent + sending) {
      broken_ = true;
      return;
    }
  }
  identity.what = verb::ping;
  identity.count = ping_alive;
  send(identity, {});
}

void reliable_channel::renew() {
  PARACEL_CHECK(settings_.policy != on_loss::fail);
  disconnect();
  pinged_ = false;
  ++renewals_;
  for (auto& k : kept_) send(k);
}

void reliable_channel::disconnect() {
  if (connection_ >= 0) port_->disconnect(std::exchange(connection_, -1));
  begun_ = false;
  marks_ = true;
  broken_ = false;
}

}  // namespace paracel::net
