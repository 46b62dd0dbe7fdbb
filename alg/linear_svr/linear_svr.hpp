// SPDX-License-Identifier: BSD-3-Clause
//
// Linear support vector regression:
//
//     F(w) = |w|^2/2 + C sum_i weight_i loss(x_i.w - y_i)          loss(r) = max(0, |r| - epsilon) or its square
//
// Source: C.-H. Ho, C.-J. Lin, "Large-scale linear support vector regression", JMLR 13, 2012 (the problem);
// alg/common/margin_solver.hpp (the solution).
#pragma once

#include <string>
#include <vector>

#include "alg/common/linear_base.hpp"
#include "alg/common/margin_solver.hpp"
#include "alg/common/validation.hpp"

namespace paracel::alg {

/// The keys of linear_svr's config; README.md explains them.
config_schema linear_svr_schema();

struct linear_svr_settings {
  explicit linear_svr_settings(const config& from);

  linear_settings linear;
  margin_settings margin;
  bool squared;
  double epsilon;
  std::vector<std::string> validation_input;
  int patience;
};

class linear_svr : public linear_base {
 public:
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
