// SPDX-License-Identifier: BSD-3-Clause
#include "column_shift.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <span>
#include <utility>

#include <paracel/error.hpp>

#include "alg/common/output/warning.hpp"
#include "sum_over_workers.hpp"

namespace paracel::alg {

namespace {

// The fraction of its spread that a column may lose by the rounding of its own values.
constexpr double visible_rounding = 1e-6;
// Dense rows of all workers from which every row_stride-th one is looked at to find out which columns are far from 0.
constexpr std::uint64_t most_measured_rows = 16384;
constexpr std::uint64_t row_stride = 16;
// Steps of one size converge about as slowly as the square of the ratio of the scales: 10,000 rounds for this one.
constexpr double suitable_ratio = 100;

// The square of a smaller number has fewer digits than a double.
const double least_squared = std::sqrt(std::numeric_limits<double>::min() / std::numeric_limits<double>::epsilon());

/// The squares of so many numbers up to this one can be added up.
double largest_squared(std::uint64_t count) {
  return std::sqrt(std::numeric_limits<double>::max() / static_cast<double>(count));
}

std::string rounded(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", v);
  return text;
}

template <class Visit>
void visit_values(const sample_rows& rows, Visit&& visit) {
  if (rows.dense) {
    for (std::size_t i = 0, k = 0; i < rows.rows(); ++i) {
      for (std::size_t j = 0; j < rows.columns; ++j, ++k) visit(j, k);
    }
    return;
  }
  for (std::size_t k = 0; k < rows.column.size(); ++k) visit(std::size_t{rows.column[k]}, k);
}

/// The columns that all of these rows store. Ends early when there is none.
std::vector<std::uint32_t> stored_by_all(const sample_rows& rows) {
  std::vector<std::uint32_t> left(rows.columns_of(0).begin(), rows.columns_of(0).end());
  std::vector<std::uint32_t> both;
  for (std::size_t i = 1; i < rows.rows() && !left.empty(); ++i) {
    const auto row = rows.columns_of(i);
    both.clear();
    std::set_intersection(left.begin(), left.end(), row.begin(), row.end(), std::back_inserter(both));
    left.swap(both);
  }
  return left;
}

}  // namespace

std::string column_label(const std::vector<std::string>& names, std::size_t j) {
  return j < names.size() ? names[j] : std::to_string(j);
}

std::string column_name(const std::vector<std::string>& names, std::size_t j) {
  const auto label = column_label(names, j);
  return j < names.size() ? "\"" + label + "\"" : label;
}

column_shift::column_shift(Comm comm, sample_rows& rows) {
  const std::size_t p = rows.columns;
  std::vector<char> chosen(p, 1);
  if (!rows.dense) {
    std::vector<std::uint32_t> own;
    if (rows.rows() > 0) own = stored_by_all(rows);
    if (sum_over_workers(comm, rows.rows() > 0 && own.empty() ? 1 : 0) > 0) return;
    std::vector<double> lacking(p, rows.rows() > 0 ? 1 : 0);
    for (const auto j : own) lacking[j] = 0;
    sum_over_workers(comm, lacking);
    for (std::size_t j = 0; j < p; ++j) chosen[j] = lacking[j] == 0 ? 1 : 0;
  }
  // Any number near the mean will do, such as the mean of some of many dense rows; which ones does not depend on the
  // number of workers.
  std::vector<double> sums(2 * p + 1);
  const std::uint64_t stride = rows.dense && rows.rows_total >= most_measured_rows ? row_stride : 1;
  for (std::size_t i = (stride - rows.first_row % stride) % stride; i < rows.rows(); i += stride) {
    sums[2 * p] += 1;
    const std::size_t begin = rows.dense ? i * p : rows.row_begin[i];
    const std::size_t end = rows.dense ? begin + p : rows.row_begin[i + 1];
    for (std::size_t k = begin; k < end; ++k) {
      const std::size_t j = rows.dense ? k - begin : rows.column[k];
      const double x = rows.value[k];
      sums[j] += x;
      sums[p + j] += x * x;
    }
  }
  sum_over_workers(comm, sums);
  const double total = sums[2 * p];
  if (!(total > 0)) return;
  amount_.assign(p, 0);
  for (std::size_t j = 0; j < p; ++j) {
    const double mean = sums[j] / total;
    if (chosen[j] != 0 && 2 * mean * mean > sums[p + j] / total) amount_[j] = mean;
  }
  if (std::ranges::all_of(amount_, [](double a) { return a == 0; })) {
    amount_.clear();
    return;
  }
  std::vector<double> deviations(2 * p);
  visit_values(rows, [&](std::size_t j, std::size_t k) {
    const double d = rows.value[k] -= amount_[j];
    deviations[j] += d;
    deviations[p + j] += d * d;
  });
  sum_over_workers(comm, deviations);
  const double n = sum_over_workers(comm, static_cast<double>(rows.rows()));
  std::vector<double> spread(p);
  for (std::size_t j = 0; j < p; ++j) {
    spread[j] = spread_of(deviations[p + j] / n, deviations[j] / n);
  }
  warn_of_rounding(comm, rows.names, amount_, spread);
}

void column_shift::to_raw(std::vector<double>& w, std::size_t width) const {
  for (std::size_t j = 0; j < amount_.size(); ++j) {
    for (std::size_t c = 0; c < width; ++c) w[c] -= amount_[j] * w[(j + 1) * width + c];
  }
}

void column_shift::from_raw(std::vector<double>& w, std::size_t width) const {
  for (std::size_t j = 0; j < amount_.size(); ++j) {
    for (std::size_t c = 0; c < width; ++c) w[c] += amount_[j] * w[(j + 1) * width + c];
  }
}

std::vector<double> column_shift::intercept() const {
  std::vector<double> a;
  if (amount_.empty()) return a;
  a.push_back(1);
  for (const double m : amount_) a.push_back(-m);
  return a;
}

void check_squares(Comm comm, const sample_rows& rows, const std::string& file) {
  std::vector<double> most(rows.columns);
  visit_values(rows, [&](std::size_t j, std::size_t k) { most[j] = std::max(most[j], std::abs(rows.value[k])); });
  const double too_large = largest_squared(rows.rows_total);
  const double too_small = least_squared;
  const bool found = std::ranges::any_of(most, [&](double m) { return m > too_large || (m > 0 && m < too_small); });
  if (sum_over_workers(comm, found ? 1.0 : 0.0) == 0) return;
  comm.allreduce(most, reduce_op::max);
  for (std::size_t j = 0; j < most.size(); ++j) {
    if (most[j] > too_large)
      throw data_error(file + ": column " + column_name(rows.names, j) + ": found numbers up to " + rounded(most[j]) +
                       ", whose squares overflow; want at most " + rounded(too_large));
  }
  for (std::size_t j = 0; j < most.size(); ++j) {
    if (!(most[j] > 0 && most[j] < too_small)) continue;
    warn(comm, "column " + column_name(rows.names, j) + ": its numbers are at most " + rounded(most[j]) +
                   ", so that their squares underflow, and it counts as constant: want a factor of at least " +
                   rounded(too_small / most[j]));
    return;
  }
}

void check_sum_of_squares(double most, std::uint64_t count, const std::string& file, const std::string& what) {
  const double too_large = largest_squared(count);
  if (most > too_large)
    throw data_error(file + ": found " + what + " up to " + rounded(most) + ", whose squares overflow; want at most " +
                     rounded(too_large));
  if (most > 0 && most < least_squared)
    throw data_error(file + ": found only " + what + " below " + rounded(least_squared) +
                     ", whose squares underflow; want a factor of at least " + rounded(least_squared / most));
}

void check_target_squares(Comm comm, const sample_rows& rows, const std::string& file) {
  double most = 0;
  for (const double y : rows.label) most = std::max(most, std::abs(y));
  comm.allreduce(most, reduce_op::max);
  check_sum_of_squares(most, rows.rows_total, file, "targets");
}

void require_finite(const std::vector<std::string>& names, std::span<const double> spread) {
  for (std::size_t j = 0; j < spread.size(); ++j) {
    if (!std::isfinite(spread[j]))
      throw error("column " + column_name(names, j) +
                  ": its numbers are so large that their squares overflow; want smaller ones");
  }
}

void warn_of_rounding(Comm comm, const std::vector<std::string>& names, std::span<const double> mean,
                      std::span<const double> spread) {
  if (comm.get_rank() != 0) return;
  for (std::size_t j = 0; j < mean.size(); ++j) {
    const double away = std::abs(mean[j]);
    // Half of the last place.
    const double rounding = 0.5 * std::numeric_limits<double>::epsilon() * away;
    if (!(rounding > visible_rounding * spread[j]) || is_constant(away, spread[j])) continue;
    warn(
        comm,
        "column " + column_name(names, j) + ": its values are " + rounded(away / spread[j]) +
            " times as large as their spread, so that their own rounding is " + rounded(rounding / spread[j]) +
            " of it; results are no more accurate than that: subtract a constant from the column before it is written");
  }
}

std::vector<std::string> unsuitable_scales(Comm comm, const sample_rows& rows, bool intercept) {
  const std::size_t p = rows.columns;
  // Over the entries that are not 0: a rare feature is not a small one.
  std::vector<double> sums(2 * p);
  visit_values(rows, [&](std::size_t j, std::size_t k) {
    sums[j] += rows.value[k];
    sums[p + j] += rows.value[k] != 0 ? 1 : 0;
  });
  sum_over_workers(comm, sums);
  const double total = sum_over_workers(comm, static_cast<double>(rows.rows()));
  std::vector<double> squares(2 * p);
  visit_values(rows, [&](std::size_t j, std::size_t k) {
    const double x = rows.value[k];
    const double d = x - sums[j] / sums[p + j];
    squares[j] += x * x;
    squares[p + j] += d * d;
  });
  sum_over_workers(comm, squares);
  std::size_t largest = p;
  std::size_t least = p;
  std::size_t far = p;
  double most = intercept ? 1 : 0;
  double fewest = intercept ? 1 : std::numeric_limits<double>::infinity();
  double farthest = suitable_ratio;
  for (std::size_t j = 0; j < p; ++j) {
    const double n = sums[p + j];
    if (n == 0) continue;
    const double size = std::sqrt(squares[j] / n);
    if (size == 0) continue;  // its squares underflow, of which check_squares warns
    if (size > most) {
      most = size;
      largest = j;
    }
    if (size < fewest) {
      fewest = size;
      least = j;
    }
    const double spread = std::sqrt(squares[p + j] / n);
    const double ratio = n == total && spread > 0 ? std::abs(sums[j] / n) / spread : 0;
    if (intercept && ratio > farthest && !is_constant(size, spread)) {
      farthest = ratio;
      far = j;
    }
  }
  const auto what = [&](std::size_t j) { return j == p ? "the bias" : "column " + column_name(rows.names, j); };
  std::vector<std::string> found;
  if (most > suitable_ratio * fewest)
    found.push_back(what(largest) + " is " + rounded(most / fewest) + " times as large as " + what(least) +
                    ", so that no step size suits both");
  if (far != p)
    found.push_back(what(far) + ": its values are " + rounded(farthest) +
                    " times as large as their spread, so that steps hardly tell it from the bias");
  return found;
}

void warn_of_scales(Comm comm, const sample_rows& rows, bool intercept, const std::string& remedy) {
  for (const auto& problem : unsuitable_scales(comm, rows, intercept)) warn(comm, problem + "; " + remedy);
}

std::string remedy_of_rounds(Comm comm, const sample_rows& rows, bool intercept) {
  const auto problems = unsuitable_scales(std::move(comm), rows, intercept);
  return (problems.empty() ? "" : problems.front() + ": scale the columns, or ") + "raise rounds or tolerance";
}

}  // namespace paracel::alg
