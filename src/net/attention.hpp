// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <utility>

namespace paracel::net {

/// Tells whether a monitor that judges others by their silence was itself running. When a whole job is suspended (a
/// frozen cgroup, a saved virtual machine, a closed laptop) every process finds on waking that all the others have been
/// silent. So a process that was suspended judges no other until another full interval has passed: its earlier
/// observations are void.
///
/// A process that is suspended again and again never detects silence, but is still told of deaths that a launcher sees.
///
/// Thread-safety: none.
template <class TimePoint>
class attention {
 public:
  using duration = typename TimePoint::duration;

  /// An iteration of the monitor's loop longer than `longest_turn` counts as an absence. This limit exceeds the loop's
  /// own sleep, and is a small enough part of the interval that messages of the others can arrive in the rest of it.
  attention(TimePoint now, duration longest_turn) noexcept : last_(now), longest_turn_(longest_turn) {}

  /// To be called in each iteration, after arrived messages were handled and before others are judged.
  /// Returns: how long this process was suspended; 0: it was not.
  [[nodiscard]] duration absence(TimePoint now) noexcept {
    const auto turn = now - std::exchange(last_, now);
    return turn > longest_turn_ ? turn : duration::zero();
  }

 private:
  TimePoint last_;
  duration longest_turn_;
};

}  // namespace paracel::net
