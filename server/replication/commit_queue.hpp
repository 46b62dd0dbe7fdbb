// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "core/shared_buffer.hpp"
#include "net/protocol.hpp"
#include "net/transport.hpp"
#include "server/request/byte_budget.hpp"

namespace paracel::srv {

/// Replies that wait until the replicas have what they depend on. They are sent in the order in which they were queued.
///
/// Thread-safety: none. Cost: a copy of the reply; its memory is that of an earlier batch, unless that was large.
class commit_queue {
 public:
  /// `budget`: all that is held is charged to it, whatever its limit; null: it is not counted. Lifetime: it must
  /// outlive this.
  explicit commit_queue(byte_budget* budget = nullptr) noexcept : budget_(budget) {}

  void hold(const net::peer& to, const net::outgoing& m) {
    const auto at = open_.bytes.size();
    const auto bytes = m.head.size() + m.body.size();
    open_.bytes.insert(open_.bytes.end(), m.head.begin(), m.head.end());
    open_.bytes.insert(open_.bytes.end(), m.body.begin(), m.body.end());
    open_.replies.push_back({to, at, bytes, m.tail});
    if (budget_ != nullptr) open_.held.add(*budget_, bytes + m.tail.size() + sizeof(reply));
  }
  /// Those queued since the last call wait for message number `need`.
  void seal(std::uint64_t need) {
    if (open_.replies.empty()) return;
    open_.need = need;
    sealed_.emplace_back() = std::exchange(open_, std::exchange(spare_, {}));
  }
  /// Calls send(peer, outgoing) for those that wait only for messages before number `open`.
  template <class Send>
  void release(std::uint64_t open, const Send& send) {
    while (!sealed_.empty() && sealed_.front().need < open) {
      auto b = std::move(sealed_.front());
      sealed_.pop_front();
      for (const auto& r : b.replies) send(r.to, net::outgoing{.head = b.frame(r), .tail = r.tail});
      keep(std::move(b));
    }
  }
  /// Answers all of them with this status instead of their own replies.
  template <class Send>
  void refuse(net::status why, std::uint32_t epoch, std::span<const std::byte> body, const Send& send) {
    seal(0);
    for (const auto& b : std::exchange(sealed_, {})) {
      for (const auto& r : b.replies) {
        net::reply_view said;
        if (net::decode(b.frame(r), r.tail.size(), said) != nullptr) continue;
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
    }
  }
  [[nodiscard]] bool empty() const noexcept { return sealed_.empty() && open_.replies.empty(); }

 private:
  static constexpr std::size_t most_kept_bytes = std::size_t{1} << 16;
  struct reply {
    net::peer to;
    std::size_t at;  // of its frame in the batch's bytes
    std::size_t bytes;
    shared_buffer tail;
  };
  /// The replies to one batch of requests.
  struct batch {
    std::uint64_t need = 0;
    std::vector<std::byte> bytes{};
    std::vector<reply> replies{};
    held_bytes held{};
    [[nodiscard]] std::span<const std::byte> frame(const reply& r) const noexcept {
      return std::span(bytes).subspan(r.at, r.bytes);
    }
  };
  /// For a later batch.
  void keep(batch b) noexcept {
    if (b.bytes.capacity() > most_kept_bytes) return;
    b.bytes.clear();
    b.replies.clear();
    b.held = {};
    spare_ = std::move(b);
  }

  byte_budget* budget_;
  batch open_;  // not sealed yet
  batch spare_;
  std::deque<batch> sealed_;
};

}  // namespace paracel::srv
