// SPDX-License-Identifier: BSD-3-Clause
//
// Whether supplies on the left can meet demands on the right of a bipartite graph, and if not, a set of right vertices
// whose demand exceeds the supply of all their neighbours. Such a set exists if and only if the demands cannot be met
// (max-flow min-cut; for matchings Hall's theorem).
//
// Source: E. Dinic, "Algorithm for solution of a problem of maximum flow in networks", 1970.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace paracel::alg {

/// A certificate that demands cannot be met; empty sets: they can.
struct infeasibility_certificate {
  std::vector<std::uint32_t> right;  ///< these have the total demand `wanted` ...
  std::vector<std::uint32_t> left;   ///< ... and all their neighbours the supply `available`, which is less
  double wanted = 0;
  double available = 0;
  /// Set unless the total supply is too small: `full_right` must receive `pushed`, all that `full_left` have, but their
  /// demand is only `room`.
  std::vector<std::uint32_t> full_right;
  std::vector<std::uint32_t> full_left;
  double pushed = 0;
  double room = 0;

  [[nodiscard]] bool exists() const noexcept { return !right.empty(); }
};

/// `edges`: (left, right), without capacities. Amounts below 1e-12 of the total supply count as zero.
/// Cost: a few passes over the edges if little has to be moved, O(V^2 E) at worst.
infeasibility_certificate find_infeasibility(std::span<const double> supply, std::span<const double> demand,
                                             std::span<const std::pair<std::uint32_t, std::uint32_t>> edges);

}  // namespace paracel::alg
