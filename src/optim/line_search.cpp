// SPDX-License-Identifier: BSD-3-Clause
#include "optim/line_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace paracel::optim {

namespace {

// Relative to f(0): values that differ by less may differ by rounding only.
constexpr double value_rounding = 1e-13;

/// The minimum of the cubic through two points with their slopes; NaN, if it has none.
double cubic_minimum(const line_point& a, const line_point& b) {
  const double d1 = a.slope + b.slope - 3 * (a.value - b.value) / (a.step - b.step);
  const double d2 = std::copysign(std::sqrt(d1 * d1 - a.slope * b.slope), b.step - a.step);
  return b.step - (b.step - a.step) * (b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2);
}

}  // namespace

line_search_result search_line(const std::function<line_point(double)>& at, const line_point& start, double first,
                               const wolfe_conditions& wanted) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double rounding = value_rounding * std::abs(start.value);
  line_search_result r;
  line_point low = start;           // the best point that satisfies the first condition
  line_point high{infinity, 0, 0};  // the other end of the interval that contains a minimum
  double last_width = infinity;
  double t = first;
  line_point p;
  for (int i = 0; i < wanted.most; ++i) {
    p = at(t);
    p.step = t;
    const bool finite = std::isfinite(p.value) && std::isfinite(p.slope);
    r.saw_finite |= finite;
    if (finite) {
      const bool flat = std::abs(p.slope) <= -wanted.curvature * start.slope;
      const bool decreased = p.value <= start.value + wanted.decrease * t * start.slope;
      if (flat &&
          (decreased || (p.value <= start.value + rounding && p.slope <= (2 * wanted.decrease - 1) * start.slope))) {
        r.found = true;
        r.at = p;
        return r;
      }
      if (!decreased || p.value >= low.value) {
        high = p;
      } else {
        if (p.slope * (high.step - low.step) >= 0) high = low;
        low = p;
      }
    } else {
      high = {t, infinity, infinity};
    }
    if (std::isinf(high.step)) {
      // The minimum is further away: extrapolates by the cubic, but neither too little nor too far.
      const double guess = low.step > 0 ? cubic_minimum(start, low) : infinity;
      t = std::isfinite(guess) ? std::clamp(guess, 1.1 * t, 10 * t) : 4 * t;
      if (!std::isfinite(t)) break;
      continue;
    }
    const double width = high.step - low.step;
    if (std::abs(width) <= 1e-15 * std::max(std::abs(high.step), std::abs(low.step))) break;
    if (std::isinf(high.value)) {
      t = low.step + 0.1 * width;
    } else {
      const double guess = cubic_minimum(low, high);
      const double near = low.step + 0.05 * width;
      const double far = low.step + 0.95 * width;
      // Bisection where the cubic has no minimum, or the interval has not shrunk much.
      if (!std::isfinite(guess) || std::abs(width) > 0.7 * last_width) t = low.step + 0.5 * width;
      else t = width > 0 ? std::clamp(guess, near, far) : std::clamp(guess, far, near);
    }
    last_width = std::abs(width);
  }
  if (low.step > 0 && low.value < start.value) {
    r.found = true;
    r.at = low;
    if (p.step != low.step) at(low.step);
  }
  return r;
}

}  // namespace paracel::optim
