// SPDX-License-Identifier: BSD-3-Clause
//
// Weights of training samples, from a file of their own.
#pragma once

#include <string>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/samples.hpp>
#include <paracel/schema.hpp>

namespace paracel::alg {

/// Adds the key row_weights.
void add_row_weights_key(config_schema& schema);

/// The weights of this worker's `rows`. The files have one number a row, in the order of the samples of all workers;
/// empty names: no weights. A collective. Throws: data_error: another number of them, one below 0, only zeros.
/// Cost: each weight is sent at most once.
std::vector<double> load_row_weights(Comm comm, const std::vector<std::string>& names, const sample_rows& rows);

}  // namespace paracel::alg
