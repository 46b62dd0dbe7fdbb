// SPDX-License-Identifier: BSD-3-Clause
//
// Linear support vector regression:
//
//     F(w) = |w|^2/2 + C sum_i weight_i loss(x_i.w - y_i)          loss(r) = max(0, |r| - epsilon) or its square
//
// Source: C.-H. Ho, C.-J. Lin, "Large-scale linear support vector regression", JMLR 13, 2012 (the problem);
// alg/common/solvers/margin_solver.hpp (the solution).
#pragma once

#include <string>
#include <vector>

#include "alg/common/output/validation.hpp"
#include "alg/common/solvers/linear_base.hpp"
#include "alg/common/solvers/margin_solver.hpp"

namespace paracel::alg {

struct linear_svr_settings : linear_settings, validation_settings {
  static constexpr auto program = "linear_svr";
  static constexpr auto summary = "linear support vector regression";
  void keys(key_list& k);
  void check(const config& from) const {
    margin.check(from, !squared, "epsilon_insensitive", "squared_epsilon_insensitive");
  }

  margin_settings margin;
  bool squared = false;
  double epsilon = 0.1;
};

class linear_svr : public linear_base {
 public:
  using settings_type = linear_svr_settings;

  linear_svr(Comm comm, const std::string& server_info, const linear_svr_settings& settings);

  /// Loads, trains (or reads a model), tests, predicts and writes the results. Throws: data_error; error when it does
  /// not converge in `rounds`.
  void solve() override;

 private:
  void train();
  void use(std::vector<double> theta, run_log& log, model_writer* model);

  linear_svr_settings settings_;
};

}  // namespace paracel::alg
