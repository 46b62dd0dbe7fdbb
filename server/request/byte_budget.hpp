// SPDX-License-Identifier: BSD-3-Clause
//
// What a server holds for others, to be answered or dropped later, is counted in bytes, per kind, and each kind has a
// limit: no sender can make the process grow beyond their sum. `stats` shows them under "held".
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace paracel::srv {

/// Bytes held of one kind, and their limit.
///
/// Thread-safety: any thread.
class byte_budget {
 public:
  explicit byte_budget(std::size_t limit) noexcept : limit_(limit) {}
  byte_budget(const byte_budget&) = delete;
  byte_budget& operator=(const byte_budget&) = delete;

  /// Charges `bytes`. False: that would exceed the limit, and only the refusal was counted.
  [[nodiscard]] bool take(std::size_t bytes) noexcept {
    auto held = held_.load(std::memory_order_relaxed);
    do {
      if (held > limit_ || bytes > limit_ - held) {
        refuse();
        return false;
      }
    } while (!held_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
    return true;
  }
  /// Charges `bytes`, whatever the limit; the caller then checks `is_over`.
  void add(std::size_t bytes) noexcept { held_.fetch_add(bytes, std::memory_order_relaxed); }
  void give_back(std::size_t bytes) noexcept { held_.fetch_sub(bytes, std::memory_order_relaxed); }
  /// Like `add` and `give_back`, for a budget that only one thread modifies; others may read it. Without a locked
  /// instruction, which would double the cost of remembering a request.
  void add_alone(std::size_t bytes) noexcept { held_.store(held() + bytes, std::memory_order_relaxed); }
  void give_back_alone(std::size_t bytes) noexcept { held_.store(held() - bytes, std::memory_order_relaxed); }
  void refuse() noexcept { refused_.fetch_add(1, std::memory_order_relaxed); }

  [[nodiscard]] bool is_over() const noexcept { return held() > limit_; }
  [[nodiscard]] std::size_t held() const noexcept { return held_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t limit() const noexcept { return limit_; }
  [[nodiscard]] std::uint64_t refused() const noexcept { return refused_.load(std::memory_order_relaxed); }

 private:
  const std::size_t limit_;
  std::atomic<std::size_t> held_{0};
  std::atomic<std::uint64_t> refused_{0};
};

/// A part of a budget, returned on destruction.
///
/// Thread-safety: none. Lifetime: the budget must outlive it.
class held_bytes {
 public:
  held_bytes() = default;
  held_bytes(held_bytes&& other) noexcept
      : of_(std::exchange(other.of_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  held_bytes& operator=(held_bytes&& other) noexcept {
    if (this != &other) {
      give_back();
      of_ = std::exchange(other.of_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }
  ~held_bytes() { give_back(); }

  /// Charges `bytes` more. False: there is no room, and the previous charge stays.
  [[nodiscard]] bool take(byte_budget& of, std::size_t bytes) noexcept {
    if (!of.take(bytes)) return false;
    hold(of, bytes);
    return true;
  }
  /// The same, whatever the limit.
  void add(byte_budget& of, std::size_t bytes) noexcept {
    of.add(bytes);
    hold(of, bytes);
  }

 private:
  void hold(byte_budget& of, std::size_t bytes) noexcept {
    of_ = &of;
    bytes_ += bytes;
  }
  void give_back() noexcept {
    if (of_ != nullptr) of_->give_back(bytes_);
    of_ = nullptr;
    bytes_ = 0;
  }

  byte_budget* of_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Memory held by the threads of a server together.
struct server_budgets {
  byte_budget parked;   ///< requests that wait for a membership
  byte_budget pieces;   ///< of incomplete messages between servers
  byte_budget replies;  ///< that wait for the replicas
  byte_budget streams;  ///< the connection of each sender
  byte_budget proxied;  ///< requests forwarded to other servers

  /// `threads`: number of shard threads.
  server_budgets(std::size_t most_parked, std::size_t most_pieces, std::size_t most_replies, unsigned threads) noexcept
      : parked(most_parked),
        pieces(most_pieces),
        replies(most_replies),
        streams((std::size_t{threads} + 1) * streams_of_a_thread),
        proxied(std::size_t{256} << 20) {}

  static constexpr std::size_t streams_of_a_thread = std::size_t{8} << 20;

  /// Calls f(name, budget) for each.
  template <class F>
  void each(const F& f) const {
    f("parked", parked);
    f("pieces", pieces);
    f("replies", replies);
    f("streams", streams);
    f("proxied", proxied);
  }
};

}  // namespace paracel::srv
