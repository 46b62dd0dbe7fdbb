// SPDX-License-Identifier: BSD-3-Clause
#include "validation.hpp"

#include <cmath>

namespace paracel::alg {

void add_validation_keys(config_schema& s) {
  s.key("validation_input", key_type::files, "labelled held-out samples, whose loss is computed after each step");
  s.key("patience", key_type::integer,
        "stop after this many steps without a lower validation loss, and keep the best model; 0: never")
      .fallback(0)
      .at_least(0)
      .at_most(1000000000);
}

void check_validation_keys(const config& from) {
  if (from.get<int>("patience") > 0 && from.get<std::vector<std::string>>("validation_input").empty())
    throw config_error(from.place_of("patience") + ": only with validation_input");
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
