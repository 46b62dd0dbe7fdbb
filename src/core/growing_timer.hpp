// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>

namespace paracel {

/// For questions during a wait: true after `first`, then each time when the wait has become twice as long, but at least
/// once per `most`. So what is asked about is noticed in a time that is proportional to the wait.
/// Thread-safety: none.
class growing_timer {
 public:
  using duration = std::chrono::steady_clock::duration;
  using time_point = std::chrono::steady_clock::time_point;

  growing_timer(duration first, duration most, time_point begin = std::chrono::steady_clock::now())
      : most_(most), begin_(begin), next_(begin + std::min(first, most)) {}

  [[nodiscard]] bool has_passed(time_point now = std::chrono::steady_clock::now()) {
    if (now < next_) return false;
    next_ = now + std::min(most_, now - begin_);
    return true;
  }

 private:
  duration most_;
  time_point begin_;
  time_point next_;
};

}  // namespace paracel
