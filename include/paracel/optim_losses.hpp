// SPDX-License-Identifier: BSD-3-Clause
//
// Objectives of linear models for optim.hpp: losses of a margin, and softmax.
//
//   loss                      of margin m = x.w + intercept                     label y           second derivative
//   log_loss                  log(1 + exp(-y m))                                -1 or +1          yes
//   smooth_hinge_loss         1/2 - z, (1 - z)^2 / 2, 0 at z = y m <= 0, < 1    -1 or +1          generalised
//   hinge_loss                max(0, 1 - y m)                                   -1 or +1          no
//   squared_hinge_loss        max(0, 1 - y m)^2                                 -1 or +1          generalised
//   perceptron_loss           max(0, -y m)                                      -1 or +1          no
//   squared_loss              (m - y)^2 / 2                                     a number          yes
//   epsilon_insensitive_loss  max(0, |m - y| - epsilon)                         a number          no
//   squared_epsilon_          max(0, |m - y| - epsilon)^2                       a number          generalised
//     insensitive_loss
//   huber_loss                r^2 / 2 up to |r| = |m - y| = delta, then         a number          generalised
//                             delta |r| - delta^2 / 2
//
// Losses with a kink (hinge, perceptron, epsilon-insensitive) have a subgradient there: use sgd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/optim.hpp>
#include <paracel/samples.hpp>

namespace paracel::optim {

/// A loss as a function of a row's margin. Derive from it for other losses.
/// Thread-safety: const-concurrent.
class loss {
 public:
  loss() = default;
  loss(const loss&) = delete;
  loss& operator=(const loss&) = delete;
  virtual ~loss() = default;
  /// Returns: the sum of weight * loss. `slope`: weight times the derivative by the margin; `curvature`: the second
  /// derivative, 0 without one. `weight`: empty means all ones. Shape: one number per row.
  virtual double derivatives(std::span<const double> margin, std::span<const double> label,
                             std::span<const double> weight, std::span<double> slope,
                             std::span<double> curvature) const = 0;
  /// Whether newton can use `curvature`.
  [[nodiscard]] virtual bool has_curvature() const { return true; }
  /// The greatest `curvature` of a row of weight 1, for objective::curvature_scale; a rough value will do.
  [[nodiscard]] virtual double greatest_curvature() const { return 1; }
};

using loss_ptr = std::shared_ptr<const loss>;
/// log(1 + exp(-z)) without overflow for any z.
[[nodiscard]] loss_ptr log_loss();
[[nodiscard]] loss_ptr smooth_hinge_loss();
[[nodiscard]] loss_ptr hinge_loss();
[[nodiscard]] loss_ptr squared_hinge_loss();
[[nodiscard]] loss_ptr perceptron_loss();
[[nodiscard]] loss_ptr squared_loss();
/// Throws: config_error unless epsilon is at least 0 and finite.
[[nodiscard]] loss_ptr epsilon_insensitive_loss(double epsilon);
/// Throws: config_error unless epsilon is at least 0 and finite.
[[nodiscard]] loss_ptr squared_epsilon_insensitive_loss(double epsilon);
/// Throws: config_error unless delta is above 0 and finite.
[[nodiscard]] loss_ptr huber_loss(double delta);

/// Features minus their mean, divided by their (weighted, population) standard deviation, without changing the rows: a
/// change of variables of w. Without an intercept features are only divided, so that the model still has none. Constant
/// features are not divided.
class standardization {
 public:
  /// A collective. `columns`: features of all workers. Cost: two sums of `columns` + 1 numbers, two passes.
  standardization(Comm comm, const sample_rows& rows, std::size_t columns, std::span<const double> weight, bool center);
  standardization() = default;

  [[nodiscard]] bool is_identity() const noexcept { return inverse_.empty(); }
  /// Converts weights of the standardised features to those of the features themselves. Shape of both: width numbers
  /// for the intercept, if any, then width numbers per feature. May be in place.
  void to_raw(std::span<const double> w, std::span<double> raw, std::size_t width = 1) const;
  /// Given the derivatives by the raw weights, adds those by w to `gradient`. The transpose of to_raw.
  void add_from_raw(std::span<const double> raw, std::span<double> gradient, std::size_t width = 1) const;
  /// 1 / standard deviation and mean / standard deviation, one per feature; the latter empty without an intercept.
  [[nodiscard]] const std::vector<double>& inverse() const noexcept { return inverse_; }
  [[nodiscard]] const std::vector<double>& shift() const noexcept { return shift_; }

 private:
  std::vector<double> inverse_;
  std::vector<double> shift_;
};

struct linear_options {
  /// Features of all workers: at least rows.columns. 0: rows.columns. (load_samples makes rows.columns the same.)
  std::size_t columns = 0;
  /// Coordinate 0 of w (softmax: the first k) belongs to a feature that is always 1; settings.penalty.free should list
  /// it.
  bool intercept = false;
  /// One weight per row, at least 0; empty: all ones.
  std::vector<double> row_weights{};
  /// Applied to the features; raw_weights undoes it.
  standardization standardize{};
};

/// Groups sparse rows of equal length, within runs of 2,048: the branch predictor then gets the ends of the loops over
/// their entries right, which makes passes of linear_objective 10 to 20% faster. For methods that use all rows at once,
/// if nothing else depends on their order. Cost: one pass, in place.
void group_equal_rows(sample_rows& rows);

/// Sum over the rows of weight * loss(x.w + intercept). Rows stay sparse, or dense.
/// Cost: one pass over the entries for a value with its gradient, one for a Hessian-vector product. Memory: 8 bytes per
/// row; with standardization 24 bytes per coordinate. Lifetime: the rows must outlive it.
class linear_objective final : public objective {
 public:
  /// Throws: error when lengths differ, a weight is below 0, or there are more columns in the rows than `columns`.
  linear_objective(const sample_rows& rows, loss_ptr of, linear_options options);

  [[nodiscard]] std::size_t dimension() const override { return columns_ + first(); }
  [[nodiscard]] double weight() const override;
  double value_and_gradient(std::span<const double> w, std::span<double> gradient) override;
  bool curvature_scale(std::span<double> sums, std::span<double> weights) override;
  bool sampled_curvature_scale(std::span<double> sums, std::span<double> weights) override;
  [[nodiscard]] bool has_hessian() const override { return loss_->has_curvature(); }
  void hessian_vector(std::span<const double> v, std::span<double> out) override;
  bool hessian_diagonal(std::span<double> out) override;
  /// True for at most 100 entries per row, on average.
  [[nodiscard]] bool prefers_dense_hessian() const override;
  void hessian(std::span<double> packed) override;
  [[nodiscard]] std::size_t rows() const override { return rows_.rows(); }
  [[nodiscard]] std::uint64_t first_row() const override { return rows_.first_row; }
  double rows_value_and_gradient(std::span<const std::size_t> rows, std::span<const double> w,
                                 std::span<double> gradient) override;
  [[nodiscard]] bool has_chunks() const override { return true; }
  double range_value_and_gradient(std::size_t begin, std::size_t end, std::span<const double> w,
                                  std::span<double> gradient) override;
  [[nodiscard]] std::vector<std::byte> pack_rows(std::size_t begin, std::size_t end) const override;
  [[nodiscard]] std::shared_ptr<const void> unpack_rows(std::span<const std::byte> packed) const override;
  double packed_value_and_gradient(const void* unpacked, std::span<const double> w,
                                   std::span<double> gradient) override;

  /// x_i.w for the w of the objective.
  [[nodiscard]] std::vector<double> margins(std::span<const double> w) const;
  /// The model for the features without standardization.
  [[nodiscard]] std::vector<double> raw_weights(std::span<const double> w) const;

 private:
  [[nodiscard]] std::size_t first() const noexcept { return options_.intercept ? 1 : 0; }
  [[nodiscard]] double margin(std::size_t i, const double* raw) const { return margin(rows_, i, raw); }
  void add_row(std::size_t i, double times, double* raw) const { add_row(rows_, i, times, raw); }
  [[nodiscard]] double margin(const sample_rows& rows, std::size_t i, const double* raw) const;
  void add_row(const sample_rows& rows, std::size_t i, double times, double* raw) const;
  double add_range(const sample_rows& rows, std::span<const double> weights, std::size_t first_row, std::size_t end,
                   std::span<const double> w, std::span<double> gradient);
  [[nodiscard]] std::span<const double> raw_of(std::span<const double> w);
  template <class Pass>
  void with_raw_gradient(std::span<double> gradient, Pass&& pass);

  const sample_rows& rows_;
  loss_ptr loss_;
  linear_options options_;
  std::size_t columns_;
  std::vector<double> curvature_;     // of each row, at the last w
  std::vector<double> raw_;           // with standardization: the weights of the features themselves
  std::vector<double> raw_gradient_;  // and the derivatives by them
};

/// Softmax regression with k classes: sum over the rows of weight * (log sum_c exp(m_c) - m_label), m_c = x.w_c.
/// Coordinates: k numbers per feature (those of the intercept first), so that a feature's weights are contiguous.
/// Cost: one pass over the entries, times k. Memory: 8 k bytes per row. Lifetime: the rows must outlive it.
class softmax_objective final : public objective {
 public:
  /// Labels are 0, 1, ..., classes - 1. Throws: error for another label, and as linear_objective.
  softmax_objective(const sample_rows& rows, std::size_t classes, linear_options options);

  [[nodiscard]] std::size_t dimension() const override { return (columns_ + first()) * classes_; }
  [[nodiscard]] double weight() const override;
  double value_and_gradient(std::span<const double> w, std::span<double> gradient) override;
  bool curvature_scale(std::span<double> sums, std::span<double> weights) override;
  bool sampled_curvature_scale(std::span<double> sums, std::span<double> weights) override;
  [[nodiscard]] bool has_hessian() const override { return true; }
  void hessian_vector(std::span<const double> v, std::span<double> out) override;
  bool hessian_diagonal(std::span<double> out) override;
  [[nodiscard]] std::size_t rows() const override { return rows_.rows(); }
  [[nodiscard]] std::uint64_t first_row() const override { return rows_.first_row; }
  double rows_value_and_gradient(std::span<const std::size_t> rows, std::span<const double> w,
                                 std::span<double> gradient) override;

  [[nodiscard]] std::vector<double> raw_weights(std::span<const double> w) const;
  /// The coordinates of the intercepts, for penalties::free.
  [[nodiscard]] std::vector<std::size_t> intercepts() const;

 private:
  [[nodiscard]] std::size_t first() const noexcept { return options_.intercept ? 1 : 0; }
  [[nodiscard]] double weight_of(std::size_t i) const {
    return options_.row_weights.empty() ? 1 : options_.row_weights[i];
  }
  void margins_of(std::size_t i, const double* raw, std::span<double> out) const;
  void add_row(std::size_t i, std::span<const double> times, double* raw) const;
  double row_loss(std::size_t i, const double* raw, std::span<double> probability) const;
  [[nodiscard]] std::span<const double> raw_of(std::span<const double> w);
  template <class Pass>
  void with_raw_gradient(std::span<double> gradient, Pass&& pass);

  const sample_rows& rows_;
  std::size_t classes_;
  linear_options options_;
  std::size_t columns_;
  std::vector<double> probability_;  // of each row and class, at the last w
  std::vector<double> raw_;
  std::vector<double> raw_gradient_;
};

}  // namespace paracel::optim
