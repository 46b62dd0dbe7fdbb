// SPDX-License-Identifier: BSD-3-Clause
//
// Keys and metrics of programs that use paracel/optim.hpp and can evaluate each step on held-out rows.
#pragma once

#include <paracel/optim.hpp>
#include <paracel/schema.hpp>

#include "run_log.hpp"

namespace paracel::alg {

/// Adds validation_input and patience.
void add_validation_keys(config_schema& schema);

/// Throws: config_error for patience without validation_input.
void check_validation_keys(const config& from);

/// The figures of a step for run_log. `accuracy`: labels are classes.
run_log::figures figures_of(const optim::progress& now, bool accuracy);

}  // namespace paracel::alg
