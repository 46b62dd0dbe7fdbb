// SPDX-License-Identifier: BSD-3-Clause
//
// Sums over the workers, used by several algorithms.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <paracel/comm.hpp>

namespace paracel::alg {

/// Replaces `values` by their element-wise sum over the workers, folded in rank order: bit-identical on every worker
/// and in every run. Every worker must call it with the same length. Cost: one round trip for each 8 MB; a worker sends
/// and receives `values` once.
inline void sum_over_workers(Comm comm, std::span<double> values) {
  if (comm.get_size() == 1) return;
  constexpr std::size_t block = std::size_t{1} << 20U;  // numbers in a message: 8 MB, far below any message limit
  std::vector<double> part;
  for (std::size_t at = 0; at < values.size(); at += block) {
    const auto piece = values.subspan(at, std::min(block, values.size() - at));
    part.assign(piece.begin(), piece.end());
    comm.allreduce(part);
    std::copy(part.begin(), part.end(), piece.begin());
  }
}
inline double sum_over_workers(Comm comm, double value) {
  sum_over_workers(std::move(comm), std::span<double>(&value, 1));
  return value;
}

}  // namespace paracel::alg
