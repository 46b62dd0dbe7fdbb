// SPDX-License-Identifier: BSD-3-Clause
//
// Keys and metrics of programs that use paracel/optim.hpp and can evaluate each step on held-out rows.
#pragma once

#include <string>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/optim.hpp>
#include <paracel/settings.hpp>

#include "run_log.hpp"

namespace paracel::alg {

struct validation_settings {
  /// `step`: after which the loss is computed, for the help. Throws: config_error for patience without
  /// validation_input.
  void keys(key_list& k, const std::string& step = "step");

  std::vector<std::string> validation_input;
  int patience = 0;  ///< 0: no end
};

/// The initial w as the best step so far of a run that continues a model; none without held-out rows. A collective.
optim::best_step measured_start(Comm comm, const optim::validation& held_out, const std::vector<double>& w);

/// The figures of a step for run_log. `accuracy`: labels are classes.
run_log::figures figures_of(const optim::progress& now, bool accuracy);

}  // namespace paracel::alg
