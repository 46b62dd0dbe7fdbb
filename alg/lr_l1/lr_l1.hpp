// SPDX-License-Identifier: BSD-3-Clause
//
// Binary logistic regression with an L1 penalty:
//
//     F(w) = |w|_1 + C sum_i log(1 + exp(-y_i w.x_i))          y_i = -1 or +1
//
// Proximal Newton steps on blocks of features: the weighted Gram matrix X_A' D X_A of the features that are not at
// their optimum is summed over the workers once a step, coordinate descent minimises the quadratic model without the
// samples, and the step is halved until F decreases sufficiently. If there are more such features than fit in a block,
// all are moved together by Newton steps in their orthant (orthant_newton.hpp), which need only products with X'DX.
//
// Source: G.-X. Yuan, C.-H. Ho, C.-J. Lin, "An improved GLMNET for L1-regularized logistic regression", JMLR 13, 2012
// (the steps, the line search); P. Tseng, S. Yun, "A coordinate gradient descent method for nonsmooth separable
// minimization", Math. Programming 117, 2009 (blocks).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "alg/common/solvers/classification.hpp"
#include "alg/common/solvers/linear_base.hpp"

namespace paracel::alg {

/// Adds a last feature that is 1 in every row.
void append_ones(sample_rows& rows);

/// The loss of rows with margins x.w: returns C sum weight log(1 + exp(-y m)); `weight` may be empty: ones. `slope` is
/// its derivative with respect to each margin, `curvature` the second derivative.
double lr_l1_loss(std::span<const double> margin, std::span<const double> label, std::span<const double> weight,
                  double c, std::span<double> slope, std::span<double> curvature);

struct lr_l1_settings : linear_settings {
  static constexpr auto program = "lr_l1";
  static constexpr auto summary = "logistic regression with an L1 penalty";
  void keys(key_list& k);
  void check(const config& from) const;

  double c = 0;
  bool bias = false;
  std::string bias_place;
  int rounds = 1000;
  double tolerance = 1e-4;
  std::size_t block = 1024;
  bool by_owlqn = false;
};

class lr_l1 : public linear_base {
 public:
  using settings_type = lr_l1_settings;

  lr_l1(Comm comm, const std::string& server_info, const lr_l1_settings& settings);

  /// Loads, trains (or reads a model), tests, predicts and writes the results. Throws: data_error; error when it does
  /// not converge in `rounds`.
  void solve() override;

 private:
  void train();
  /// Both set w. Returns: the number of steps.
  int proximal_newton(run_log& log);
  int owlqn(run_log& log);
  void block_step(double worst);
  [[nodiscard]] bool face_step();
  [[nodiscard]] double evaluate(std::span<const double> margin);
  [[nodiscard]] std::vector<std::uint32_t> choose(double worst) const;
  [[nodiscard]] double penalty_of(std::span<const double> w) const;
  [[nodiscard]] double l1_of(std::size_t j) const { return j + 1 == w_.size() && settings_.bias ? 0.0 : 1.0; }
  [[noreturn]] void refuse_to_end(int round, double worst) const;
  void measure_scales();
  /// Beyond what the rounding of the gradient may be.
  [[nodiscard]] double violation(std::size_t j) const;
  /// `theta`: the bias, 0 without one, and the weights.
  void use(const std::vector<double>& theta, run_log& log, model_writer* model);

  lr_l1_settings settings_;
  sample_rows rows_;
  std::vector<double> w_;         // with a bias, it is the last element
  std::vector<double> gradient_;  // of the loss, over all workers
  double value_ = 0;              // F(w)
  std::vector<double> slope_;     // of this worker's rows, like all below
  std::vector<double> curvature_;
  std::vector<double> least_curvature_;  // of each feature: added to the second derivative
  std::vector<double> rounding_;         // of each element of the gradient
  /// A violation is a fraction of the penalty's slope; of the bias, which has none, of the greatest slope of the losses
  /// where that is less than 1.
  double bias_unit_ = 1;
  std::vector<double> margin_;
  std::vector<double> change_;
  std::vector<double> candidate_;
};

}  // namespace paracel::alg
