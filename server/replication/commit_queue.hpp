// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "core/shared_buffer.hpp"
#include "net/protocol.hpp"
#include "net/transport.hpp"
#include "server/request/byte_budget.hpp"

namespace paracel::srv {

/// Replies that wait until the replicas have what they depend on. They are sent in the order in which they were queued.
///
/// Thread-safety: none.
class commit_queue {
 public:
  /// `budget`: all that is held is charged to it, whatever its limit; null: it is not counted. Lifetime: it must
  /// outlive this.
  explicit commit_queue(byte_budget* budget = nullptr) noexcept : budget_(budget) {}

  void hold(const net::peer& to, const net::outgoing& m) {
    std::vector<std::byte> frame;
    frame.reserve(m.head.size() + m.body.size());
    frame.insert(frame.end(), m.head.begin(), m.head.end());
    frame.insert(frame.end(), m.body.begin(), m.body.end());
    held_bytes held;
    if (budget_ != nullptr) held.add(*budget_, frame.size() + m.tail.size() + sizeof(reply));
    waiting_.push_back({0, to, std::move(frame), m.tail, std::move(held)});
  }
  /// Those queued since the last call wait for message number `need`.
  void seal(std::uint64_t need) {
    for (; sealed_ < waiting_.size(); ++sealed_) waiting_[sealed_].need = need;
  }
  /// Calls send(peer, outgoing) for those that wait only for messages before number `open`.
  template <class Send>
  void release(std::uint64_t open, const Send& send) {
    while (sealed_ != 0 && waiting_.front().need < open) {
      const auto r = std::move(waiting_.front());
      waiting_.pop_front();
      --sealed_;
      send(r.to, net::outgoing{.head = r.frame, .tail = r.tail});
    }
  }
  /// Answers all of them with this status instead of their own replies.
  template <class Send>
  void refuse(net::status why, std::uint32_t epoch, std::span<const std::byte> body, const Send& send) {
    for (const auto& r : std::exchange(waiting_, {})) {
      net::reply_view said;
      if (net::decode(r.frame, r.tail.size(), said) != nullptr) continue;
      net::reply_header h;
      h.what = said.header.what;
      h.sequence = said.header.sequence;
      h.server = said.header.server;
      h.result = why;
      h.epoch = epoch;
      h.body_bytes = static_cast<std::uint32_t>(body.size());
      net::reply_bytes head;
      net::encode(h, head);
      send(r.to, net::outgoing{.head = head, .body = body});
    }
    sealed_ = 0;
  }
  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }

 private:
  struct reply {
    std::uint64_t need;
    net::peer to;
    std::vector<std::byte> frame;
    shared_buffer tail;
    held_bytes held;
  };
  byte_budget* budget_;
  std::deque<reply> waiting_;
  std::size_t sealed_ = 0;  // so many at the front have a known message to wait for
};

}  // namespace paracel::srv
