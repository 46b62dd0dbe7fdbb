// SPDX-License-Identifier: BSD-3-Clause
#include "net/scheduler_channel.hpp"

#include <utility>

#include <paracel/error.hpp>

namespace paracel::net {

scheduler_channel::scheduler_channel(transport& over, std::string address, std::uint64_t id)
    : port_(over.open()), address_(std::move(address)), id_(id), channel_(port_->connect(address_)) {}

void scheduler_channel::send(request_header& h, std::span<const std::byte> body, const shared_buffer& tail) {
  h.client = id_;
  h.flags = static_cast<std::uint16_t>(flag_stream | (std::exchange(begun_, true) ? 0 : flag_first));
  h.body_bytes = static_cast<std::uint32_t>(body.size());
  h.tail_bytes = tail.size();
  request_bytes head;
  encode(h, head);
  port_->send(channel_, {.head = head, .body = body, .tail = tail});
}

void scheduler_channel::ask(request_header h, std::span<const std::byte> body, shared_buffer tail) {
  h.sequence = h.low_watermark = ++sequence_;
  asked_ = h;
  body_.assign(body.begin(), body.end());
  tail_ = std::move(tail);
  waits_ = true;
  send_asked();
}

void scheduler_channel::tell(request_header h, std::span<const std::byte> body) {
  reply_view answer;
  while (!waits_ && port_->receive(in_, std::chrono::milliseconds{0})) take(answer);  // one-way messages sent before
  h.sequence = 0;
  send(h, body, {});
}

void scheduler_channel::send_asked() { send(asked_, body_, tail_); }

bool scheduler_channel::receive(std::chrono::milliseconds timeout, reply_view& answer) {
  if (!port_->receive(in_, timeout)) {
    record_silence(timeout);
    return false;
  }
  silence_ = {};
  return take(answer);
}

/// Handles a received message. Returns: whether it is the reply.
bool scheduler_channel::take(reply_view& answer) {
  if (const char* reason = decode(in_.frame, in_.tail.size(), answer); reason != nullptr)
    throw protocol_error(std::string("the scheduler sent a malformed reply: ") + reason);
  care_.answered();
  if (answer.header.result == status::connection_reset) {
    care_.broke();
    renew();
    return false;
  }
  if (!waits_ || answer.header.sequence != asked_.sequence) return false;  // to a one-way message
  waits_ = false;
  tail_ = {};
  return true;
}

void scheduler_channel::record_silence(std::chrono::nanoseconds time) {
  if (!waits_) return;
  waited_ += time;
  silence_ += time;
  if (silence_ < late) return;
  silence_ = {};
  if (care_.look(waited_) == link_monitor::action::ping) ping();
  else renew();
}

void scheduler_channel::ping() {
  request_header h;
  h.what = verb::ping;
  h.job = asked_.job;
  send(h, {}, {});
}

/// A new connection replaces one that may have lost messages.
void scheduler_channel::renew() {
  port_->disconnect(channel_);
  channel_ = port_->connect(address_);
  begun_ = false;
  care_.renewed();
  if (waits_) send_asked();
}

}  // namespace paracel::net
