// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <utility>

namespace paracel::net {

/// Whether one who judges others by their silence was there himself. When a whole job is paused (a frozen cgroup, a
/// virtual machine that is saved, a laptop that is shut) everybody finds on waking that all the others have been
/// silent. So whoever was away judges nobody before another whole interval has passed: what he has observed before
/// counts for nothing.
///
/// One that is away again and again finds no silence; a death that a launcher has seen is told him all the same.
///
/// Thread-safety: none.
template <class TimePoint>
class attention {
 public:
  using duration = typename TimePoint::duration;

  /// A turn of the judge's loop that takes longer than `longest_turn` is an absence. It is more than the loop sleeps by
  /// itself, and so little of the interval that what is left of that is enough for the others to be heard.
  attention(TimePoint now, duration longest_turn) noexcept : last_(now), longest_turn_(longest_turn) {}

  /// At each turn, after what has come was heard and before anybody is judged. Returns: how long the judge was away; 0:
  /// he was not.
  [[nodiscard]] duration absence(TimePoint now) noexcept {
    const auto turn = now - std::exchange(last_, now);
    return turn > longest_turn_ ? turn : duration::zero();
  }

 private:
  TimePoint last_;
  duration longest_turn_;
};

}  // namespace paracel::net
