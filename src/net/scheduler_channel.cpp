// SPDX-License-Identifier: BSD-3-Clause
#include "net/scheduler_channel.hpp"

#include <utility>

#include <paracel/error.hpp>

namespace paracel::net {

scheduler_channel::scheduler_channel(transport& over, std::string address, std::uint64_t id,
                                     std::chrono::milliseconds resend_after)
    : port_(over.open()),
      channel_(*port_, std::move(address), {.policy = on_loss::resend, .silent = resend_after / 4}),
      silence_(resend_after) {
  identity_.client = id;
}

void scheduler_channel::ask(request_header h, std::span<const std::byte> body, shared_buffer tail) {
  h.client = identity_.client;
  h.sequence = ++sequence_;
  identity_.job = h.job;
  identity_.rank = h.rank;
  (void)channel_.acknowledge(sequence_ - 1);  // the caller may have given up waiting for it
  channel_.send_kept(h, shared_buffer::copy_of(body), std::move(tail));
}

void scheduler_channel::tell(request_header h, std::span<const std::byte> body) {
  reply_view answer;
  // Drains replies to earlier one-way messages.
  while (!channel_.keeps() && port_->receive(in_, std::chrono::milliseconds{0})) take(answer);
  h.client = identity_.client;
  h.sequence = 0;
  channel_.send(h, body);
}

bool scheduler_channel::receive(std::chrono::milliseconds timeout, reply_view& answer) {
  if (!port_->receive(in_, timeout)) {
    record_silence(timeout);
    return false;
  }
  if (!channel_.is_probe(in_.channel)) silence_.reset();
  return take(answer);
}

/// Handles a received message. Returns: whether it is the reply.
bool scheduler_channel::take(reply_view& answer) {
  if (const char* reason = decode(in_.frame, in_.tail.size(), answer); reason != nullptr)
    throw protocol_error(std::string("the scheduler sent a malformed reply: ") + reason);
  channel_.take(answer.header, in_.channel);
  if (channel_.is_broken()) {
    channel_.renew();
    return false;
  }
  return channel_.acknowledge(answer.header.sequence);  // false: to a one-way message
}

void scheduler_channel::record_silence(std::chrono::nanoseconds time) {
  if (!channel_.keeps() || !silence_.add(time)) return;
  channel_.check_health(silence_.waited(), identity_, {.heard = silence_.heard()});
  if (channel_.is_broken()) channel_.renew();
}

}  // namespace paracel::net
