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
    if (!is_open_) batches_.push_back(std::move(spare_));
    is_open_ = true;
    auto& b = batches_.back();
    const auto at = b.bytes.size();
    const auto bytes = m.head.size() + m.body.size();
    b.bytes.insert(b.bytes.end(), m.head.begin(), m.head.end());
    b.bytes.insert(b.bytes.end(), m.body.begin(), m.body.end());
    b.replies.push_back({to, at, bytes, m.tail});
    if (budget_ != nullptr) b.held.add(*budget_, bytes + m.tail.size() + sizeof(reply));
  }
  /// Those queued since the last call wait for message number `need`.
  void seal(std::uint64_t need) noexcept {
    if (std::exchange(is_open_, false)) batches_.back().need = need;
  }
  /// Calls send(peer, outgoing) for those that wait only for messages before number `open`.
  template <class Send>
  void release(std::uint64_t open, const Send& send) {
    while (batches_.size() > (is_open_ ? 1U : 0U) && batches_.front().need < open) {
      auto b = std::move(batches_.front());
      batches_.pop_front();
      for (const auto& r : b.replies) send(r.to, net::outgoing{.head = b.frame(r), .tail = r.tail});
      keep(std::move(b));
    }
  }
  /// Answers all of them with this status instead of their own replies.
  template <class Send>
  void refuse(net::status why, std::uint32_t epoch, std::span<const std::byte> body, const Send& send) {
    is_open_ = false;
    for (const auto& b : std::exchange(batches_, {})) {
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
  [[nodiscard]] bool empty() const noexcept { return batches_.empty(); }

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
  std::deque<batch> batches_;
  bool is_open_ = false;  // the last one: it is not sealed
  batch spare_;
};

}  // namespace paracel::srv
