// SPDX-License-Identifier: BSD-3-Clause
//
// The objective of mf's batch methods, for optim::minimize: squared errors with the penalties of als,
//
//     sum e^2 + lambda (sum_u n_u |w_u|^2 + sum_i n_i |h_i|^2) + lambda_bias (sum_u n_u b_u^2 + sum_i n_i b_i^2),
//     e = r - mean - b_u - b_i - w_u.h_i                    without `weighted` every n of the penalties is 1
//
// The shared coordinates are those of the items; each worker's own coordinates are those of its users. Both are rows of
// | bias | factor 0 | ... | factor k - 1 |, divided by about the square root of the diagonal of the Hessian of squared
// errors: n for a bias, n v for a factor, and the penalty. So the methods see similar curvatures, whether an item has
// one rating or thousands: after 50 steps of SciPy's L-BFGS-B the objective of movielens-small, k 32, was 40,073, and
// 43,390 without this scaling; als ends near 39,740.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <paracel/optim.hpp>
#include <paracel/sparse.hpp>

namespace paracel::alg {

struct mf_penalties {
  double lambda = 0;
  double lambda_bias = 0;
  bool weighted = true;
};

/// Thread-safety: none. Lifetime: the ratings must outlive it.
class mf_objective final : public optim::objective {
 public:
  /// `item_ratings`: the number of ratings, over all workers, of each of the columns_total items. `deviation`: the
  /// standard deviation of all ratings, from which the scale of the coordinates is derived.
  mf_objective(const sparse_rows& ratings, std::size_t k, double mean, double deviation, const mf_penalties& penalties,
               std::span<const double> item_ratings);

  [[nodiscard]] std::size_t dimension() const override { return shared() + ratings_.rows() * (k_ + 1); }
  [[nodiscard]] std::size_t shared() const override { return ratings_.columns_total * (k_ + 1); }
  [[nodiscard]] double weight() const override { return static_cast<double>(ratings_.column.size()); }
  /// Cost: 3 k multiplications a rating.
  double value_and_gradient(std::span<const double> w, std::span<double> gradient) override;

  /// Converts the row of row_width(k) numbers of an item (numbered among all) or of an own user to coordinates, and
  /// back.
  void put_item(std::size_t item, std::span<const double> row, std::span<double> w) const;
  void put_user(std::size_t user, std::span<const double> row, std::span<double> w) const;
  void get_item(std::size_t item, std::span<const double> w, std::span<double> row) const;
  void get_user(std::size_t user, std::span<const double> w, std::span<double> row) const;

 private:
  /// The multipliers of a row's coordinates.
  struct row_scale {
    double bias = 1;
    double factor = 1;
  };
  [[nodiscard]] row_scale scale_of_row(double ratings, double deviation) const;
  /// `to` = `from`, multiplied. Shape: k + 1 numbers.
  void unscale(const row_scale& by, const double* from, double* to) const;
  /// Adds the gradient by the coordinates, given that by the row without penalties. Returns: the penalty.
  double add_gradient(const row_scale& by, double weight, const double* row, const double* slope, double* to) const;
  [[nodiscard]] std::size_t user_at(std::size_t user) const { return shared() + user * (k_ + 1); }

  const sparse_rows& ratings_;
  std::size_t k_;
  double mean_;
  mf_penalties penalties_;
  std::vector<row_scale> user_scale_;
  std::vector<row_scale> item_scale_;  // of all items
  std::vector<double> column_weight_;  // of own columns: this worker's part of the penalty
  std::vector<double> rows_;           // of own columns: k + 1 numbers each
  std::vector<double> slopes_;         // the gradient there
};

}  // namespace paracel::alg
