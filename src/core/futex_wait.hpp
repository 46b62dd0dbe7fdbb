// SPDX-License-Identifier: BSD-3-Clause
//
// How processes wait for each other in shared memory: they spin on a number briefly, then sleep in the kernel until it
// changes.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

namespace paracel::futex {

/// How long a thread spins before it sleeps: about the cost of putting a thread to sleep and waking it. Less after it
/// has spun in vain, down to zero: the other side takes longer, or needs this processor. Now and then the full time is
/// tried again.
class glance {
 public:
  /// How long the next spin may take.
  std::chrono::nanoseconds next() noexcept {
    constexpr unsigned looks_a_trial = 64;
    if (++looks_ % looks_a_trial == 0) limit_ = longest_;
    return limit_;
  }
  void over(bool in_vain) noexcept {
    limit_ = in_vain ? limit_ / 4 : longest_;
    if (limit_ < std::chrono::microseconds(1)) limit_ = {};
  }

 private:
  static std::chrono::nanoseconds longest() noexcept {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    const bool alone = sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) < 2;
    return alone ? std::chrono::nanoseconds(0) : std::chrono::microseconds(50);
  }

  const std::chrono::nanoseconds longest_ = longest();
  std::chrono::nanoseconds limit_ = longest_;
  unsigned looks_ = 0;
};

inline void pause_briefly() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Spins until `number` differs from `old` or the time is up. Returns: whether it has changed.
inline bool spin(const std::atomic<std::uint32_t>& number, std::uint32_t old) noexcept {
  constexpr int looks_a_reading = 32;  // of the clock, which costs as much
  if (number.load(std::memory_order_acquire) != old) return true;
  thread_local glance own;
  const auto limit = own.next();
  if (limit.count() == 0) return false;
  const auto until = std::chrono::steady_clock::now() + limit;
  bool changed = false;
  do {
    for (int i = 0; i < looks_a_reading && !changed; ++i) {
      pause_briefly();
      changed = number.load(std::memory_order_acquire) != old;
    }
  } while (!changed && std::chrono::steady_clock::now() < until);
  own.over(!changed);
  return changed;
}

/// If the number is still `old`, sleeps until `wake` is called; at most `limit`, if it is not null. May return early.
inline void sleep_while(std::atomic<std::uint32_t>& number, std::uint32_t old, const timespec* limit) noexcept {
  // Not FUTEX_PRIVATE: the memory is shared with another process.
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&number), FUTEX_WAIT, old, limit, nullptr, 0);
}
inline void wake(std::atomic<std::uint32_t>& number) noexcept {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&number), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

/// Returns when `number` may differ from `old`. `sleeps` tells the other side that it must call `wake`.
inline void wait_for_change(std::atomic<std::uint32_t>& number, std::uint32_t old, std::atomic<std::uint32_t>& sleeps,
                            const timespec* limit = nullptr) noexcept {
  if (spin(number, old)) return;
  sleeps.store(1, std::memory_order_seq_cst);
  if (number.load(std::memory_order_seq_cst) == old) sleep_while(number, old, limit);
  sleeps.store(0, std::memory_order_relaxed);
}

}  // namespace paracel::futex
