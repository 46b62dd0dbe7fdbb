// SPDX-License-Identifier: BSD-3-Clause
//
// A line to the scheduler over which one request at a time waits for its answer, through connections that break while
// both ends live: what was lost with one goes again under its number, and the scheduler takes it once
// (server/scheduler/reply_cache.hpp).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/shared_buffer.hpp"
#include "net/link_monitor.hpp"
#include "net/protocol.hpp"
#include "net/transport.hpp"

namespace paracel::net {

/// Thread-safety: owned by one thread, which opens it.
class scheduler_channel {
 public:
  /// `id` is this line's alone, in the whole job, and not 0.
  scheduler_channel(transport& over, std::string address, std::uint64_t id);

  /// Sends a request; fills in client, number, stream and lengths of its header. Its answer is what `receive` waits
  /// for.
  void ask(request_header h, std::span<const std::byte> body, shared_buffer tail = {});
  /// One whose answer nobody waits for; it may be lost with a connection. Between questions only.
  void tell(request_header h, std::span<const std::byte> body);
  /// Whether the answer to the last request has come; `answer` and `tail` are good until the next call.
  /// Throws: protocol_error if what comes is no reply.
  bool receive(std::chrono::milliseconds timeout, reply_view& answer);
  [[nodiscard]] const shared_buffer& tail() const noexcept { return in_.tail; }
  /// Nothing has come for another `time`: for whoever receives without waiting.
  void record_silence(std::chrono::nanoseconds time);

 private:
  void send(request_header& h, std::span<const std::byte> body, const shared_buffer& tail);
  bool take(reply_view& answer);
  void send_asked();
  void renew();
  void ping();

  const std::unique_ptr<port> port_;
  const std::string address_;
  const std::uint64_t id_;
  int channel_;
  bool begun_ = false;  // something has been sent over this connection
  std::uint64_t sequence_ = 0;
  bool waits_ = false;
  request_header asked_;
  std::vector<std::byte> body_;
  shared_buffer tail_;
  // Collectives bring contributions of any size, and pings wait behind them.
  link_monitor care_{std::chrono::milliseconds{60'000}};
  std::chrono::nanoseconds waited_{};  // in vain, ever
  std::chrono::nanoseconds silence_{};
  incoming in_;
};

}  // namespace paracel::net
