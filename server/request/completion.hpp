// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "core/shared_buffer.hpp"
#include "net/protocol.hpp"
#include "net/transport.hpp"

namespace paracel::srv {

/// Where replies go; a node's thread passes its port, a test a recorder.
class reply_sink {
 public:
  virtual ~reply_sink() = default;
  /// The bytes of `message` are copied or counted before the call returns.
  virtual void send(const net::peer& to, const net::outgoing& message) = 0;
};

/// The obligation to answer one request: exactly once, now or later. One that is destroyed unanswered replies
/// `status::internal`, so that no path through a handler can leave a client waiting.
///
/// Thread-safety: owned by the thread of its sink; it may be kept there for as long as needed.
/// Lifetime: the sink must outlive it.
/// Cost: no allocation.
class completion {
 public:
  completion() = default;
  completion(reply_sink& sink, const net::peer& to, net::verb what, std::uint64_t sequence, std::uint64_t server,
             std::uint32_t epoch) noexcept
      : sink_(&sink), server_(server), sequence_(sequence), epoch_(epoch), what_(what), to_(to) {}
  completion(completion&& other) noexcept
      : sink_(std::exchange(other.sink_, nullptr)),
        server_(other.server_),
        sequence_(other.sequence_),
        epoch_(other.epoch_),
        what_(other.what_),
        to_(other.to_) {}
  completion& operator=(completion&& other) noexcept {
    if (this != &other) {
      abandon();
      sink_ = std::exchange(other.sink_, nullptr);
      server_ = other.server_;
      sequence_ = other.sequence_;
      epoch_ = other.epoch_;
      what_ = other.what_;
      to_ = other.to_;
    }
    return *this;
  }
  ~completion() { abandon(); }

  /// True until it is answered.
  explicit operator bool() const noexcept { return sink_ != nullptr; }

  /// The receiver of the reply.
  [[nodiscard]] const net::peer& peer() const noexcept { return to_; }
  /// The epoch of the reply.
  void set_epoch(std::uint32_t epoch) noexcept { epoch_ = epoch; }
  /// Sends the reply through this sink instead of the original one. Lifetime: as for the original.
  void leave_through(reply_sink& sink) noexcept {
    if (sink_ != nullptr) sink_ = &sink;
  }
  /// Answers with `fields`; verb, sequence, server, epoch and lengths are set here.
  void answer(net::reply_header fields, std::span<const std::byte> body = {}, shared_buffer tail = {}) {
    if (sink_ == nullptr) return;
    fields.what = what_;
    fields.sequence = sequence_;
    fields.server = server_;
    fields.epoch = epoch_;
    fields.body_bytes = static_cast<std::uint32_t>(body.size());
    fields.tail_bytes = tail.size();
    net::reply_bytes head;
    net::encode(fields, head);
    sink_->send(to_, {head, body, std::move(tail)});
    sink_ = nullptr;  // only now: if sending throws, the request can still be refused
  }
  void ok() { answer({}); }
  /// Answers with a readable reason; the client prints it.
  void fail(net::status why, std::string_view text = {}) {
    net::reply_header fields;
    fields.result = why;
    answer(fields, net::bytes_of(text));
  }

 private:
  void abandon() noexcept {
    if (sink_ == nullptr) return;
    try {
      fail(net::status::internal, "the server dropped the request");
    } catch (...) {  // a sink that cannot send has lost its client as well
    }
  }

  reply_sink* sink_ = nullptr;
  std::uint64_t server_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint32_t epoch_ = 0;
  net::verb what_ = net::verb::none;
  net::peer to_{};
};

}  // namespace paracel::srv
