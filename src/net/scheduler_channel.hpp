// SPDX-License-Identifier: BSD-3-Clause
//
// A port to the scheduler on which one request at a time waits for its reply, across connections that break while both
// ends are alive: a lost request is retried under its number, and the scheduler executes it once
// (server/scheduler/reply_cache.hpp).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/shared_buffer.hpp"
#include "net/protocol.hpp"
#include "net/reliable_channel.hpp"
#include "net/transport.hpp"

namespace paracel::net {

/// Thread-safety: owned by one thread, which opens it.
class scheduler_channel {
 public:
  /// `id` is unique to this channel in the whole job, and not 0. The channel pings when a reply takes longer than
  /// `resend_after`.
  scheduler_channel(transport& over, std::string address, std::uint64_t id,
                    std::chrono::milliseconds resend_after = late);

  /// Sends a request; sets client, number, stream and lengths of its header. `receive` waits for its
  /// reply.
  void ask(request_header h, std::span<const std::byte> body, shared_buffer tail = {});
  /// A one-way message; it may be lost with a connection. Between requests only.
  void tell(request_header h, std::span<const std::byte> body);
  /// Whether the reply to the last request has arrived; `answer` and `tail` are valid until the next call.
  /// Throws: protocol_error if a message is not a reply.
  bool receive(std::chrono::milliseconds timeout, reply_view& answer);
  [[nodiscard]] const shared_buffer& tail() const noexcept { return in_.tail; }
  /// Nothing has arrived for another `time`: for callers that receive without blocking.
  void record_silence(std::chrono::nanoseconds time);

 private:
  bool take(reply_view& answer);

  const std::unique_ptr<port> port_;
  reliable_channel channel_;
  request_header identity_;  // of pings: the fields of the last request by which the scheduler knows its sender
  std::uint64_t sequence_ = 0;
  silence_timer silence_;
  incoming in_;
};

}  // namespace paracel::net
