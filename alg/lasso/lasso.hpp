// SPDX-License-Identifier: BSD-3-Clause
//
// Least squares with an L1 penalty, or with both (elastic net), the intercept b free:
//
//     J(w, b) = 1/(2n) sum_i (y_i - b - w.x_i)^2 + a (r |w|_1 + (1 - r)/2 |w|^2)          r = l1_ratio
//
// Block coordinate descent: the block is a working set of features, solved to convergence on its Gram matrix without
// further passes over the samples; then the gradient over all features shows whether features must be added. A path of
// penalties runs from the largest to the smallest, each started from the previous solution.
//
// Source: J. Friedman, T. Hastie, R. Tibshirani, "Regularization paths for generalized linear models via coordinate
// descent", J. Stat. Software 33(1), 2010 (covariance updates, warm starts); M. Massias, A. Gramfort, J. Salmon,
// "Celer: a fast solver for the lasso with dual extrapolation", ICML 2018 (working sets that double).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "alg/common/solvers/linear_base.hpp"

namespace paracel::alg {

struct lasso_settings : linear_settings {
  static constexpr auto program = "lasso";
  static constexpr auto summary = "least squares with an L1 penalty, or an elastic net";
  void keys(key_list& k);
  void check(const config& from) const;

  std::vector<double> lambdas;    // n a, one or more
  std::vector<double> penalties;  // a, instead
  int path = 0;                   // number of penalties, descending from the least one for which all weights are 0
  double path_ratio = 0.001;
  double l1_ratio = 1;
  bool standardize = false;
  int rounds = 1000;
  double tolerance = 1e-7;
};

class lasso : public linear_base {
 public:
  using settings_type = lasso_settings;

  lasso(Comm comm, const std::string& server_info, const lasso_settings& settings);

  /// Loads, trains (or reads a model), tests, predicts and writes the results. Throws: data_error; error when it does
  /// not converge in `rounds`.
  void solve() override;

 private:
  struct point {
    double a = 0;
    double objective = 0;
    double violation = 0;  // the greatest, as a fraction of a
    std::size_t nonzeros = 0;
    int rounds = 0;
    double train_error = 0;
    double test_error = 0;
    std::vector<double> theta;
    MSGPACK_DEFINE(a, objective, violation, nonzeros, rounds, train_error, test_error, theta)
  };
  void train();
  [[nodiscard]] point solve_one(const centred_samples& samples, double a);
  void grow(const centred_samples& samples, const std::vector<double>& violation);
  void use(const std::vector<double>& theta, double test_error, run_log& log);

  lasso_settings settings_;
  // State that is carried from one penalty to the next.
  std::vector<double> w_;
  std::vector<double> correlation_;  // X'r / n
  std::vector<std::uint32_t> working_;
  std::vector<double> gram_;  // X'X / n of the working set
  int rounds_done_ = 0;
};

}  // namespace paracel::alg
