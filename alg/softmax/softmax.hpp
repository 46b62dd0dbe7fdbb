// SPDX-License-Identifier: BSD-3-Clause
//
// Softmax (multinomial logistic) regression:
//
//     F(W, b) = |W|^2/2 + C sum_i weight_i (log sum_c exp(x_i.w_c + b_c) - x_i.w_label - b_label)
//
// The biases b are not penalised; adding a number to all of them changes nothing, so their mean is 0 in the model.
//
// Source: paracel/optim.hpp (newton, lbfgs).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <paracel/optim.hpp>
#include <paracel/optim_losses.hpp>

#include "alg/common/output/validation.hpp"
#include "alg/common/solvers/class_base.hpp"

namespace paracel::alg {

struct softmax_settings : class_settings, validation_settings {
  static constexpr auto program = "softmax";
  static constexpr auto summary = "softmax (multinomial logistic) regression";
  void keys(key_list& k);

  double c = 1;
  bool bias = true;
  std::string bias_place;
  optim::method how = optim::method::newton;
  int rounds = 1000;
  double tolerance = 1e-5;
};

class softmax : public class_base {
 public:
  using settings_type = softmax_settings;

  softmax(Comm comm, const std::string& server_info, const softmax_settings& settings);

  /// Loads, trains (or reads a model), tests, predicts and writes the results. Throws: data_error; error when it does
  /// not converge in `rounds`.
  void solve() override;

 private:
  void train();
  /// Sets w_ and bias_. Returns: the features.
  std::uint32_t read_weights(const model_reader& model);
  [[nodiscard]] std::vector<double> initial_weights(std::vector<double> w, const std::vector<std::string>& of_classes,
                                                    const std::string& path) const;
  [[nodiscard]] double value_at_best(optim::softmax_objective& objective);
  /// Logarithms of the probabilities of the classes.
  void log_probabilities(const sample_rows& rows, std::size_t i, std::span<double> to) const;
  void use_model(run_log& log, model_writer* model);

  softmax_settings settings_;
  bool bias_;
  std::vector<double> w_;  // a number a class for each feature, those of the bias first
};

}  // namespace paracel::alg
