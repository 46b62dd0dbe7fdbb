// SPDX-License-Identifier: BSD-3-Clause
//
// Waiting without a call that waits: MPI has none for a message with a time limit.
#pragma once

#include <chrono>
#include <optional>
#include <thread>

namespace paracel {

// A waiting rank first polls continuously: a message of a rank that runs at the same time is there sooner than another
// process gives a core back. After `keep` it yields the core, and after `spin` it sleeps between polls. Long
// messages travel in many parts, and MPI moves a part only while we call it: every nap adds to the transfer time.
inline constexpr std::chrono::microseconds keep{20};
inline constexpr std::chrono::microseconds spin{1000};
inline constexpr std::chrono::microseconds nap{50};
// A rank that waits for certain messages polls for others, too, but not every time.
inline constexpr unsigned looks_between_others = 16;
inline constexpr unsigned looks_between_clocks = 8;

/// Polls until `done()`, at most `limit`. `progress()` processes whatever has arrived; `check()` may throw, to end the
/// wait. Returns: the value of `done()`, which is called once more after the last `progress()`: what has arrived by
/// then counts.
template <class Done, class Progress, class Check>
bool poll_until(std::optional<std::chrono::milliseconds> limit, Done&& done, Progress&& progress, Check&& check) {
  const auto begin = std::chrono::steady_clock::now();
  bool naps = false;
  for (unsigned looks = 1;; ++looks) {
    if (done()) return true;
    if (limit && limit->count() <= 0) return false;
    if (!naps && looks % looks_between_clocks != 0) continue;
    if (naps || looks % looks_between_others == 0) progress();
    const auto passed = std::chrono::steady_clock::now() - begin;
    if (limit && passed >= *limit) return done();
    naps = passed >= spin;
    if (naps) check();
    // MPI itself yields the core after each poll if it knows that there are more ranks than cores.
    if (naps) std::this_thread::sleep_for(nap);
    else if (passed >= keep) std::this_thread::yield();
  }
}

}  // namespace paracel
