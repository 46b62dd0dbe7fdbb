// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

namespace paracel::alg {

/// Scales a row by a power of two, which changes no digit, so that its greatest absolute value is in [1, 2) and no
/// square overflows. Values that are rounding error beside it may underflow. Returns whether a value is not 0.
inline bool scale_to_one(std::span<double> row) {
  double greatest = 0;
  for (const auto v : row) greatest = std::max(greatest, std::abs(v));
  if (greatest == 0) return false;
  const int exponent = std::ilogb(greatest);
  for (auto& v : row) v = std::scalbn(v, -exponent);
  return true;
}

}  // namespace paracel::alg
