// SPDX-License-Identifier: BSD-3-Clause
//
// Training rows whose columns are centred in place, for models with an intercept: where a column's values are far from
// 0 compared with their spread (years, timestamps), sums of squares and products would cancel, and the column would
// hardly differ from the intercept's.
//
// Centred are columns whose mean exceeds their spread; of sparse rows only those that every row stores, whose entries
// change and remain as many. Any other column has a 0 in some of the n rows, so that its mean is at most sqrt(n) times
// its spread.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/samples.hpp>

namespace paracel::alg {

/// Whether a column of this mean and standard deviation is constant, up to the rounding of the mean.
[[nodiscard]] inline bool is_constant(double mean, double spread) noexcept {
  return spread <= 1e-14 * std::abs(mean) && std::isfinite(spread);
}

class column_shift {
 public:
  column_shift() = default;
  /// Changes `rows`. A collective. Cost: two passes over dense rows; over sparse ones a pass that ends as soon as no
  /// column can be one of those, and otherwise two more; a sum of 2 p numbers. Rank 0 warns of columns whose
  /// values are so far from 0 that their rounding is a visible part of their spread.
  column_shift(Comm comm, sample_rows& rows);

  /// What was subtracted from each column; empty: from none.
  [[nodiscard]] const std::vector<double>& amount() const noexcept { return amount_; }
  /// Turns a model of the centred rows into that of the rows as they were: `width` intercepts, then as many weights a
  /// feature. In place.
  void to_raw(std::vector<double>& w, std::size_t width = 1) const;
  /// The reverse.
  void from_raw(std::vector<double>& w, std::size_t width = 1) const;
  /// The intercept of that model as a combination of the centred one's coordinates, intercept first; empty if nothing
  /// was subtracted.
  [[nodiscard]] std::vector<double> intercept() const;

 private:
  std::vector<double> amount_;
};

/// A column of features: its name or, without names, its number from 0, as in configs.
[[nodiscard]] std::string column_label(const std::vector<std::string>& names, std::size_t j);
/// The same for messages: a name in quotes.
[[nodiscard]] std::string column_name(const std::vector<std::string>& names, std::size_t j);

/// Standard deviation, from the mean square of the differences from a number that is `off` from the mean. Not finite if
/// the squares overflow.
[[nodiscard]] inline double spread_of(double mean_square, double off) noexcept {
  const double variance = mean_square - off * off;
  return variance < 0 ? 0 : std::sqrt(variance);
}

/// For methods that add up squares of the columns' values. Throws: data_error that names a column whose sum of squares
/// overflows. Rank 0 warns of the first column whose squares underflow: it counts as constant. A collective. Cost: a
/// pass, a sum of one number, and only if a worker has such a column a maximum of p numbers.
void check_squares(Comm comm, const sample_rows& rows, const std::string& file);

/// For methods that add up squares of `count` numbers whose greatest absolute value is `most`. Throws: data_error when
/// these squares overflow, or all underflow. `what`: "ratings".
void check_sum_of_squares(double most, std::uint64_t count, const std::string& file, const std::string& what);
/// The same for targets. A collective.
void check_target_squares(Comm comm, const sample_rows& rows, const std::string& file);

/// Throws: error that names a column whose spread is not finite, because its squares overflow.
void require_finite(const std::vector<std::string>& names, std::span<const double> spread);

/// Rank 0 warns if the rounding of a column's values, relative to their spread (standard deviation), is above 1e-6, and
/// names the column. `names`: may be empty.
void warn_of_rounding(Comm comm, const std::vector<std::string>& names, std::span<const double> mean,
                      std::span<const double> spread);

/// For methods whose steps have one size for all columns: what is wrong, with the worst column's name, if columns
/// differ in scale so much that no step suits all, or are far from 0 compared with their spread. `intercept`: there is
/// one, a column of ones. A collective; the same on every worker. Cost: three passes over the rows, two sums of 2 p
/// numbers.
[[nodiscard]] std::vector<std::string> unsuitable_scales(Comm comm, const sample_rows& rows, bool intercept);
/// Rank 0 warns of them. `remedy`: what to do instead.
void warn_of_scales(Comm comm, const sample_rows& rows, bool intercept, const std::string& remedy);
/// What to do when `rounds` were not enough: scale the columns, if that is the cause, or raise rounds or tolerance. A
/// collective.
[[nodiscard]] std::string remedy_of_rounds(Comm comm, const sample_rows& rows, bool intercept);

}  // namespace paracel::alg
