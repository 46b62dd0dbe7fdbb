// SPDX-License-Identifier: BSD-3-Clause
//
// When a run has diverged: one rule for all programs that iterate. A number that measures the fit (a loss, an
// objective) must stay finite and within 1e3 times the larger of its value at the start and the targets' own scale;
// parameters and factors must stay finite. Their size says nothing: it depends on the scale of the columns.
#pragma once

#include <span>
#include <string>

namespace paracel::alg {

/// What a run is watched for.
struct divergence_rule {
  std::string quantity;  ///< "the mean loss"
  std::string remedy;    ///< what the user can change: "lower alpha (now 0.5)"
  /// The quantity with no model at all: half the mean square of the targets for squared errors, log(2) for log losses.
  /// It keeps a start that fits by chance from being the measure. 0: unknown; then, if the start is 0, too, only
  /// numbers that are not finite count.
  double scale = 0;
};

[[nodiscard]] bool has_diverged(double value, double start, double scale) noexcept;

/// Throws: error with the round, `value` and `start` when the value has diverged. `round`: 0 is the start.
void check_divergence(const divergence_rule& rule, int round, double value, double start);
/// Throws: error with the round when a number is not finite. Cost: O(numbers)
void check_finite(const divergence_rule& rule, int round, std::span<const double> numbers);

/// The scale of squared errors, given sums over all rows: log(2)'s counterpart. 1 if all targets are 0.
[[nodiscard]] double scale_of_squares(double sum_of_squares, double weight) noexcept;

}  // namespace paracel::alg
