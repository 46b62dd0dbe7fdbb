// SPDX-License-Identifier: BSD-3-Clause
//
// Ridge regression:  J(w, b) = sum_i (y_i - b - w.x_i)^2 + a |w|^2,  the intercept b free.
//
// exact: the normal equations (X'X + a I) w = X'y on centred samples, by Cholesky factorisation and one step of
// iterative refinement on the samples; beyond 2,000 features by conjugate gradients with the diagonal as
// preconditioner. sgd: Paracel's method, each worker passes over its samples and the weights become the mean of the
// workers' results.
//
// Source: A. Hoerl, R. Kennard, "Ridge regression: biased estimation for nonorthogonal problems", Technometrics 12,
// 1970; Y. Saad, "Iterative methods for sparse linear systems", 2nd ed., algorithm 9.1 (conjugate gradients).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "alg/common/solvers/linear_base.hpp"

namespace paracel::alg {

/// Cholesky factors of a packed symmetric matrix (design_matrix.hpp) plus `a` on its diagonal, scaled to a diagonal of
/// ones, so that features of any scale count. If that is numerically singular, eigenvalues: the solution of minimum
/// norm in the scaled coordinates.
class ridge_factors {
 public:
  ridge_factors(std::span<const double> packed, std::size_t n, double a);
  [[nodiscard]] std::vector<double> solve(std::span<const double> right) const;

 private:
  std::size_t n_;
  bool definite_ = false;
  std::vector<double> matrix_;   // column-major: L, or orthonormal eigenvectors
  std::vector<double> inverse_;  // of the eigenvalues; 0 for those that count as 0
  std::vector<double> scale_;    // 1 / square root of the diagonal; 0 where that is 0
};

/// Conjugate gradients for (M + a I) w = right, with M v = product(v) and M's diagonal as preconditioner, in whose
/// norm, independent of the features' scales, the residual is measured. `start`: empty: 0. Stops when the residual is
/// below tolerance times the norm of `right`; calls `report(iteration, relative residual)`. Returns w.
std::vector<double> ridge_conjugate_gradients(
    const std::function<std::vector<double>(std::span<const double>)>& product, std::span<const double> diagonal,
    std::span<const double> right, double a, double tolerance, int iterations,
    const std::function<void(int, double)>& report, std::vector<double> start = {});

/// A pass of stochastic steps over the rows of `order`: w += step (e x - 2 beta w), b += step e with e = y - b - w.x;
/// feature j is scaled by scale[j]. `step` is `of_mean_weight` for a row of weight `mean_weight`, and proportional to
/// the weight. In place.
void ridge_steps(const sample_rows& rows, std::span<const double> scale, std::span<const std::size_t> order,
                 double of_mean_weight, double mean_weight, double beta, std::span<double> w, double& b);

struct ridge_settings : linear_settings {
  static constexpr auto program = "ridge";
  static constexpr auto summary = "least squares with an L2 penalty";
  void keys(key_list& k);
  void check(const config& from) const;

  bool exact = true;
  double beta = 0;                // a / (2n)
  std::optional<double> penalty;  // a; absent: computed from beta
  bool standardize = false;
  int rounds = 1000;
  double alpha = 0.001;
  double decay = 0;
  std::optional<double> tolerance;
  std::uint64_t seed = 0;
  std::string update_file;
  std::string update_func;

  [[nodiscard]] const char* method_name() const { return exact ? "exact" : "sgd"; }
};

class ridge_regression : public linear_base {
 public:
  using settings_type = ridge_settings;

  ridge_regression(Comm comm, const std::string& server_info, const ridge_settings& settings);

  /// Loads, trains (or reads a model), tests, predicts and writes the results. Throws: data_error.
  void solve() override;
  void checkpoint_state(saved_state& to) override;
  void restore_state(const saved_states& from) override;

 private:
  void train();
  [[nodiscard]] std::vector<double> solve_exactly(const centred_samples& samples, run_log& log);
  [[nodiscard]] std::vector<double> descend(const centred_samples& samples, run_log& log);
  void read_initial();
  [[nodiscard]] double objective(const centred_samples& samples, std::span<const double> w,
                                 double* squares = nullptr) const;
  void use(const std::vector<double>& theta, double test_error, run_log& log);

  ridge_settings settings_;
  double penalty_ = 0;           // a
  std::vector<double> initial_;  // theta of the initial model; empty: none
  int rounds_before_ = 0;        // sgd: that it was trained for
  double intercept_offset_ = 0;  // sgd: of its intercept, and now of this one, from the best one for its weights
  int rounds_done_ = 0;
  double first_ = 0;  // objective at the start
  double last_ = 0;   // of the previous round
};

}  // namespace paracel::alg
