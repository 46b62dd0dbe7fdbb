// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "net/verbs.hpp"

namespace paracel::srv {

/// The processor's counter of time, which takes one instruction to read; elsewhere a clock.
inline std::uint64_t ticks_now() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

/// Histograms of the time that requests of each verb have taken. Thread-safety: `each` by any thread, the rest by one.
/// Cost: of a request about 45 instructions, two of which read the counter; 26 KB.
class verb_times {
 public:
  /// Bucket i has the times below 2^(least_bits + i) nanoseconds that are not in an earlier one; the last has all
  /// others. So 128 ns to 8.6 s in factors of 2.
  static constexpr unsigned least_bits = 7;
  static constexpr std::size_t buckets = 28;

  /// Blocks: 2 ms, the first time in a process, to compare the counter with a clock.
  verb_times() : per_tick_(nanoseconds_per_tick()) {}

  /// A request begins, and ends; pings are not counted, as in shard_counters.
  void begin() noexcept { begin_ = ticks_now(); }
  void end(net::verb what) noexcept {
    if (what != net::verb::ping) add(what, begin_);
  }
  /// The same if requests overlap. `begin`: ticks_now() when this one began.
  void add(net::verb what, std::uint64_t begin) noexcept {
    const auto v = static_cast<std::size_t>(what);
    auto& of = verbs_[v < net::verb_count ? v : 0];
    const auto end = ticks_now();
    const auto ns = end < begin ? 0 : ((end - begin) * per_tick_) >> fraction_bits;  // another processor may be behind
    const auto bucket = std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(ns >> least_bits)), buckets - 1);
    raise(of.counts[bucket], 1);
    raise(of.nanoseconds, ns);
  }

  /// Calls f(verb, counts of all buckets, sum in nanoseconds) for each verb that has any. A request that is being
  /// counted may be in one of them.
  template <class F>
  void each(const F& f) const {
    for (std::size_t v = 0; v < net::verb_count; ++v) {
      std::array<std::uint64_t, buckets> counts{};
      std::uint64_t all = 0;
      for (std::size_t i = 0; i < buckets; ++i) all += counts[i] = verbs_[v].counts[i].load(std::memory_order_relaxed);
      if (all != 0) f(static_cast<net::verb>(v), counts, verbs_[v].nanoseconds.load(std::memory_order_relaxed));
    }
  }

 private:
  using counter = std::atomic<std::uint64_t>;
  // With 20 bits a tick is exact to a millionth, and the product does not overflow in the first hours.
  static constexpr unsigned fraction_bits = 20;

  struct histogram {
    std::array<counter, buckets> counts{};
    counter nanoseconds{0};
  };

  static void raise(counter& c, std::uint64_t by) noexcept {
    c.store(c.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  static std::uint64_t nanoseconds_per_tick() {
    static const std::uint64_t measured = [] {
      using clock = std::chrono::steady_clock;
      const auto begin = clock::now();
      const auto first = ticks_now();
      std::this_thread::sleep_for(std::chrono::milliseconds{2});
      const std::chrono::duration<double, std::nano> took = clock::now() - begin;
      const auto ticks = static_cast<double>(std::max<std::uint64_t>(ticks_now() - first, 1));
      return static_cast<std::uint64_t>(took.count() / ticks * (1U << fraction_bits));
    }();
    return measured;
  }

  const std::uint64_t per_tick_;
  std::uint64_t begin_ = 0;
  std::array<histogram, net::verb_count> verbs_{};
};

}  // namespace paracel::srv
