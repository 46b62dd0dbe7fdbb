// SPDX-License-Identifier: BSD-3-Clause
//
// A step length that satisfies the strong Wolfe conditions:
//
//     f(t) <= f(0) + c1 t f'(0)          |f'(t)| <= c2 |f'(0)|
//
// Source: J. Nocedal, S. Wright, "Numerical Optimization", 2nd edition, algorithms 3.5 and 3.6. Near the minimum, where
// differences of values are rounding errors, the slopes alone decide: W. Hager, H. Zhang, "A new conjugate gradient
// method with guaranteed descent and an efficient line search", SIAM J. Optim. 16, 2005, the approximate conditions.
#pragma once

#include <functional>

namespace paracel::optim {

struct line_point {
  double step = 0;
  double value = 0;
  double slope = 0;
};

struct wolfe_conditions {
  double decrease = 1e-4;  ///< c1
  double curvature = 0.9;  ///< c2
  int most = 25;           ///< evaluations
};

struct line_search_result {
  bool found = false;
  /// The last evaluation, if found. If only the first condition could be met, the best such point.
  line_point at{};
  bool saw_finite = false;  ///< whether any value was finite
};

/// `at`: evaluates a step length; not finite: too long. `start`: step 0, with a slope below 0. `first`: tried first.
line_search_result search_line(const std::function<line_point(double)>& at, const line_point& start, double first,
                               const wolfe_conditions& wanted);

}  // namespace paracel::optim
