// SPDX-License-Identifier: BSD-3-Clause
//
// Operations of regressions on a worker's samples X (n rows, p features, sparse or dense): X w, X'r, and the Gram
// matrix of a subset of the features, X_A' D X_A.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/samples.hpp>

#include "column_shift.hpp"

namespace paracel::alg {

/// The weight of a row; 1 without weights.
inline double weight_of_row(const sample_rows& rows, std::size_t i) noexcept {
  return rows.weight.empty() ? 1 : rows.weight[i];
}

/// x_i . w
double row_product(const sample_rows& rows, std::size_t i, std::span<const double> w);
/// to += times * x_i
void add_row(const sample_rows& rows, std::size_t i, double times, std::span<double> to);
/// out[i] = x_i . w
void multiply(const sample_rows& rows, std::span<const double> w, std::span<double> out);
/// out += X' r
void add_transposed(const sample_rows& rows, std::span<const double> r, std::span<double> out);

/// out += X' D X v with D = diag(weight), in one pass over the rows.
void add_weighted_product(const sample_rows& rows, std::span<const double> weight, std::span<const double> v,
                          std::span<double> out);
/// out[j] += sum over the rows of weight_i x_ij^2
void add_weighted_squares(const sample_rows& rows, std::span<const double> weight, std::span<double> out);

/// The number of elements of a packed symmetric matrix: its upper triangle, row by row.
constexpr std::size_t packed_size(std::size_t n) noexcept { return n * (n + 1) / 2; }
constexpr std::size_t packed_at(std::size_t n, std::size_t i, std::size_t j) noexcept {  // i <= j
  return i * (2 * n - i - 1) / 2 + j;
}

/// packed += sum over the rows of weight_i x_iA x_iA', A being `features`, ascending; without weights: 1 each. Weights
/// must not be negative. Shape: packed_size(features.size()). Cost: rows * |A|^2 operations; for sparse rows the sum of
/// their squared numbers of entries in A, if that is less.
void add_gram(const sample_rows& rows, std::span<const std::uint32_t> features, std::span<const double> weight,
              std::span<double> packed);

/// The samples of all workers, centred and, on request, standardised: x := (x - mean) / sd, y := y - mean, with the
/// population sd; a constant feature becomes 0. With weights all sums are weighted, those of the means included. Dense
/// rows are changed in place; sparse rows implicitly, except for the columns of column_shift. Means and sd are computed
/// in two passes, so they are accurate to the last digits even when mean / sd is large, and so are products. Rank 0
/// warns of columns whose values are too far from 0 (warn_of_rounding). Thread-safety: none. The constructor, gram,
/// correlate, normal_product and squared_lengths are collectives.
class centred_samples {
 public:
  centred_samples() = default;
  /// rows.label is the target.
  centred_samples(Comm comm, sample_rows rows, bool standardize);

  [[nodiscard]] std::size_t columns() const noexcept { return mean_.size(); }
  /// The weights of all workers' rows: their number without weights.
  [[nodiscard]] double total() const noexcept { return total_; }
  [[nodiscard]] const sample_rows& rows() const noexcept { return rows_; }
  /// The scaling that rows() does not include yet: each feature's 1 / sd for sparse rows, 1 for dense ones.
  [[nodiscard]] std::vector<double> row_scale() const {
    return rows_.dense ? std::vector<double>(columns(), 1.0) : scale_;
  }
  /// The population sd of each feature of X~; 0 for a constant one.
  [[nodiscard]] const std::vector<double>& feature_sd() const noexcept { return feature_sd_; }
  /// Mean and population sd of the target, over all workers.
  [[nodiscard]] double target_mean() const noexcept { return target_mean_; }
  [[nodiscard]] double target_sd() const noexcept { return target_sd_; }

  /// X~' D X~ of these features, D being the weights, summed over the workers, packed. Cost: 4 |A|^2 bytes a worker.
  [[nodiscard]] std::vector<double> gram(std::span<const std::uint32_t> features) const;
  /// r = y - X~ w, for this worker's rows. Not a collective.
  void residual(std::span<const double> w, std::vector<double>& r) const;
  /// X~' D r summed over the workers; the last element is the weighted sum of r squared. Cost: 8 (p + 2) bytes.
  [[nodiscard]] std::vector<double> correlate(std::span<const double> r) const;
  /// X~' D (X~ v) summed over the workers. Cost: 8 (p + 1) bytes.
  [[nodiscard]] std::vector<double> normal_product(std::span<const double> v) const;
  /// The weighted squared length of each feature, summed over the workers.
  [[nodiscard]] std::vector<double> squared_lengths() const;
  /// The model in the units of the input: the intercept, then one weight a feature.
  [[nodiscard]] std::vector<double> theta(std::span<const double> w) const;
  /// The reverse: w, and by how much the intercept is above the one that theta(w) has. Constant features lose their
  /// weights; their part goes to the intercept.
  [[nodiscard]] std::pair<std::vector<double>, double> from_theta(std::span<const double> theta) const;
  /// The intercept of rows() and their centred targets that theta(w) amounts to.
  [[nodiscard]] double row_intercept(std::span<const double> w) const;

 private:
  void finish_correlation(std::span<double> sums, double sum_of_r) const;

  mutable Comm comm_{std::shared_ptr<comm_backend>()};
  sample_rows rows_;
  column_shift shift_;         // of sparse rows
  std::vector<double> mean_;   // of rows_, when they had been shifted
  std::vector<double> scale_;  // 1 / sd, or 1, or 0
  std::vector<double> feature_sd_;
  double total_ = 0;
  double target_mean_ = 0;
  double target_sd_ = 0;
};

/// `theta`: intercept and weights in the units of the input. Features unknown to the model are ignored.
double predicted(const sample_rows& rows, std::size_t i, std::span<const double> theta);
/// Root mean squared error over all workers, by the rows' weights; nan without rows. A collective.
double root_mean_squared_error(Comm comm, const sample_rows& rows, std::span<const double> theta);

}  // namespace paracel::alg
