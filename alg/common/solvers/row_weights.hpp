// SPDX-License-Identifier: BSD-3-Clause
//
// Weights of training samples, from separate files.
#pragma once

#include <string>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/samples.hpp>

namespace paracel::alg {

/// The weights of this worker's `rows`. The files have one number a row, in the order of the samples of all workers;
/// empty names: no weights. A collective. Throws: data_error if their number is not that of the samples, one is
/// negative, or all are 0.
/// Cost: each weight is sent at most once.
std::vector<double> load_row_weights(Comm comm, const std::vector<std::string>& names, const sample_rows& rows);

}  // namespace paracel::alg
