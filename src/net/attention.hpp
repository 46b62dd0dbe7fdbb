// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <utility>

namespace paracel::net {

/// Whether a monitor that judges others by their silence was itself running. When a whole job is suspended (a frozen
/// cgroup, a saved virtual machine, a closed laptop) every process finds on waking that all the others have been
/// silent. So a process that was suspended judges no other before another whole interval has passed: its earlier
/// observations are void.
///
/// One that is suspended repeatedly detects no silence; a death seen by a launcher is reported to it all the same.
///
/// Thread-safety: none.
template <class TimePoint>
class attention {
 public:
  using duration = typename TimePoint::duration;

  /// An iteration of the monitor's loop longer than `longest_turn` is an absence. It exceeds the loop's own sleep, and
  /// is so small a part of the interval that the rest of that is enough for the others to be heard.
  attention(TimePoint now, duration longest_turn) noexcept : last_(now), longest_turn_(longest_turn) {}

  /// In each iteration, after arrived messages were handled and before others are judged. Returns: how long this
  /// process was suspended; 0: it was not.
  [[nodiscard]] duration absence(TimePoint now) noexcept {
    const auto turn = now - std::exchange(last_, now);
    return turn > longest_turn_ ? turn : duration::zero();
  }

 private:
  TimePoint last_;
  duration longest_turn_;
};

}  // namespace paracel::net
