// SPDX-License-Identifier: BSD-3-Clause
//
// Linear support vector machine for two classes, or one against the rest for more:
//
//     F(w) = |w|^2/2 + C sum_i weight_i loss(y_i w.x_i)          loss(z) = max(0, 1 - z) or its square, y_i = -1 or +1
//
// Source: alg/common/solvers/margin_solver.hpp (hinge); S. Keerthi, D. DeCoste, "A modified finite Newton method for
// fast solution of large scale linear SVMs", JMLR 6, 2005, and paracel/optim.hpp (squared hinge).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "alg/common/output/validation.hpp"
#include "alg/common/solvers/class_base.hpp"
#include "alg/common/solvers/margin_solver.hpp"

namespace paracel::alg {

struct linear_svm_settings : class_settings, validation_settings {
  static constexpr auto program = "linear_svm";
  static constexpr auto summary = "linear support vector machine, for two or more classes";
  void keys(key_list& k);
  void check(const config& from) const { margin.check(from, !squared, "hinge", "squared_hinge"); }

  margin_settings margin;
  bool squared = true;
};

class linear_svm : public class_base {
 public:
  using settings_type = linear_svm_settings;

  linear_svm(Comm comm, const std::string& server_info, const linear_svm_settings& settings);

  /// Loads, trains (or reads a model), tests, predicts and writes the results. Throws: data_error; error when it does
  /// not converge in `rounds`.
  void solve() override;

 private:
  void train();
  /// Sets w_ and bias_. Returns: the features.
  std::uint32_t read_weights(const model_reader& model);
  void check_classes(const model_reader& model) const;
  void use_model(run_log& log, model_writer* model);

  linear_svm_settings settings_;
  bool bias_;
  std::vector<double> w_;  // one row a classifier: one for two classes, else one a class
};

}  // namespace paracel::alg
