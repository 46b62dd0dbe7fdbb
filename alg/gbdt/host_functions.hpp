// SPDX-License-Identifier: BSD-3-Clause
//
// An objective and a metric of the process's host, an interpreter, in place of a loss of gbdt: the keys objective and
// eval_metric name them.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace paracel::alg {

/// Set by the host before a run begins. The program's main thread calls them; what they throw ends the run.
/// Shape: `label` has a number for each row, the others `outputs` for each, row by row.
struct host_functions {
  /// The first and second derivatives of each row's loss with respect to its raw predictions, without weights, for
  /// this worker's rows. Once a round.
  std::function<void(std::span<const double> label, std::span<const double> raw, std::size_t outputs,
                     std::span<double> first, std::span<double> second)>
      objective;
  /// The smaller, the better. Once a round, on rank 0, for the validation rows of all workers in rank order.
  std::function<double(std::span<const double> label, std::span<const double> prediction, std::size_t outputs)> metric;

  /// Those of this process.
  static host_functions& current() {
    static host_functions all;
    return all;
  }
};

}  // namespace paracel::alg
