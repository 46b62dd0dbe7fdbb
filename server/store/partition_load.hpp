// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "core/hash.hpp"
#include "server/request/server_load.hpp"
#include "server/store/key_store.hpp"

namespace paracel::srv {

/// How much is asked of each partition of a shard: of about one key or row in 32 that requests name, the partition is
/// counted, and of requests for many one in 256, 8 times. A partition that was counted n times has been asked for 32 n
/// keys, with a standard deviation of about 32 sqrt(n), or 90 sqrt(n) if all were in such requests. Scans and changes
/// that come from other servers do not count.
///
/// Thread-safety: `touch`, `unsized` and `set_bytes` by the shard thread, the rest by any.
/// Cost: a subtraction a request; of each key that is counted a random number and an addition.
class partition_load {
 public:
  static constexpr std::uint32_t one_of = server_load::one_of;

  explicit partition_load(const shard_settings& settings)
      : share_(settings.threads),
        index_(settings.index),
        loads_(std::make_unique<load[]>((partition_count + settings.threads - 1) / settings.threads)) {}

  /// A request for one key.
  void touch(std::uint16_t partition) noexcept {
    if (--left_ == 0) [[unlikely]] {
      count(partition);
      left_ = distance();
    }
  }
  /// A request for n keys or rows; hash_at(i) is the hash of number i.
  template <class HashAt>
  void touch(std::size_t n, const HashAt& hash_at) noexcept {
    const bool coarsely = n >= many;
    const std::uint32_t times = coarsely ? coarse : 1;
    auto& left = coarsely ? left_of_many_ : left_;
    std::size_t next = left;  // the number, from 1, of the next one that is counted
    for (; next <= n; next += times * distance()) count(partition_of(hash_at(next - 1)), times);
    left = next - n;
  }

  /// A partition whose size is to be looked up again: now and then one that was counted.
  [[nodiscard]] std::optional<std::uint16_t> unsized() noexcept { return std::exchange(unsized_, std::nullopt); }
  void set_bytes(std::uint16_t partition, std::uint64_t bytes) noexcept {
    loads_[share_.index_of(partition)].bytes.store(bytes, std::memory_order_relaxed);
  }

  struct counted {
    std::uint32_t times = 0;  ///< of one key in 32, modulo 2^32
    std::uint64_t bytes = 0;  ///< of its keys and rows, when it was looked up last; 0: never
  };
  [[nodiscard]] counted at(std::uint16_t partition) const noexcept {
    const auto& l = loads_[share_.index_of(partition)];
    return {l.times.load(std::memory_order_relaxed), l.bytes.load(std::memory_order_relaxed)};
  }

 private:
  struct load {
    std::atomic<std::uint32_t> times{0};
    std::atomic<std::uint64_t> bytes{0};
  };

  // Of a request for many keys one in 256 is counted, 8 times.
  static constexpr std::size_t many = 1024;
  static constexpr std::uint32_t coarse = server_load::coarse;

  void count(std::uint16_t partition, std::uint32_t more = 1) noexcept {
    constexpr std::uint32_t size_after = 8;             // counts of a partition
    if (share_.thread_of(partition) != index_) return;  // a request that is refused
    auto& times = loads_[share_.index_of(partition)].times;
    const auto before = times.load(std::memory_order_relaxed);
    times.store(before + more, std::memory_order_relaxed);
    if (before == 0 || before / size_after != (before + more) / size_after) unsized_ = partition;
  }
  /// At irregular distances, since requests may come in a rhythm (Knuth, MMIX).
  std::size_t distance() noexcept {
    random_ = random_ * 6364136223846793005U + 1442695040888963407U;
    return 1 + (random_ >> 33U) % (2 * one_of - 1);
  }

  const thread_share share_;
  const std::uint32_t index_;
  const std::unique_ptr<load[]> loads_;  // by partition / threads
  std::size_t left_ = 1;                 // keys until one is counted, that one included
  std::size_t left_of_many_ = 1;         // the same, of requests for many
  std::uint64_t random_ = 1;
  std::optional<std::uint16_t> unsized_;
};

}  // namespace paracel::srv
