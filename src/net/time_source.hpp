// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>

namespace paracel::net {

/// Where nodes read the time, so that a test can own it. Monotonic; never the wall clock.
class time_source {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  virtual ~time_source() = default;
  virtual time_point now() const = 0;
};

class steady_time_source final : public time_source {
 public:
  time_point now() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace paracel::net
