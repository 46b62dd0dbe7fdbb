// SPDX-License-Identifier: BSD-3-Clause
#include "validation.hpp"

#include <cmath>

namespace paracel::alg {

void validation_settings::keys(key_list& k, const std::string& step) {
  k.files("validation_input", validation_input, "labelled held-out samples, whose loss is computed after each " + step);
  k("patience", patience,
    "stop after this many " + step + "s without a lower validation loss, and keep the best model; 0: never")
      .at_least(0)
      .at_most(1000000000);
  if (patience > 0 && validation_input.empty())
    throw config_error(k.from()->place_of("patience") + ": only with validation_input");
}

optim::best_step measured_start(Comm comm, const optim::validation& held_out, const std::vector<double>& w) {
  if (!held_out.measure) return {};
  std::vector<double> sums(3);
  held_out.measure(w, sums);
  comm.allreduce(sums);
  return {w, sums[1] / sums[0], 0};
}

run_log::figures figures_of(const optim::progress& now, bool accuracy) {
  run_log::figures figures{
      {"gradient_norm", now.gradient_norm}, {"evaluations", now.evaluations}, {"products", now.products}};
  if (std::isnan(now.validation_loss)) return figures;
  figures.emplace_back("validate_loss", now.validation_loss);
  if (accuracy) figures.emplace_back("validate_accuracy", now.validation_accuracy);
  return figures;
}

}  // namespace paracel::alg
