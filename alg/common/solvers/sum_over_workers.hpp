// SPDX-License-Identifier: BSD-3-Clause
//
// Sums over the workers, used by several algorithms.
#pragma once

#include <span>
#include <utility>

#include <paracel/comm.hpp>

namespace paracel::alg {

/// Replaces `values` by their element-wise sum over the workers, folded in rank order: bit-identical on every worker
/// and in every run. Every worker must call it with the same length. Cost: that of an all-reduce.
inline void sum_over_workers(Comm comm, std::span<double> values) { comm.allreduce(values); }
inline double sum_over_workers(Comm comm, double value) {
  sum_over_workers(std::move(comm), std::span<double>(&value, 1));
  return value;
}

}  // namespace paracel::alg
