// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ctime>

#include <chrono>

namespace paracel::net {

/// CLOCK_BOOTTIME: the monotonic clock including the time for which the machine was suspended, which CLOCK_MONOTONIC
/// and with it std::chrono::steady_clock exclude. A lease measured by it has expired when a laptop is opened
/// again.
struct boot_clock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<boot_clock>;
  static constexpr bool is_steady = true;
  static time_point now() noexcept {
    timespec t{};
    clock_gettime(CLOCK_BOOTTIME, &t);
    return time_point(std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec));
  }
};

/// Where nodes read the time, so that a test can control it. Never the wall clock.
class clock_source {
 public:
  using time_point = boot_clock::time_point;
  virtual ~clock_source() = default;
  virtual time_point now() const = 0;
};

class boot_time_source final : public clock_source {
 public:
  time_point now() const override { return boot_clock::now(); }
};

}  // namespace paracel::net
