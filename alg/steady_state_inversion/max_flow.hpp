// SPDX-License-Identifier: BSD-3-Clause
//
// Whether supplies on the left can meet demands on the right of a bipartite graph, and if not, a set of right vertices
// that want more than all who lead to them have. Such a set exists just when the demands cannot be met (max-flow
// min-cut; for matchings Hall's theorem).
//
// Source: E. Dinic, "Algorithm for solution of a problem of maximum flow in networks", 1970.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace paracel::alg {

/// A proof that demands cannot be met; empty sets: none is needed.
struct shortage {
  std::vector<std::uint32_t> right;  ///< these together want `wanted` ...
  std::vector<std::uint32_t> left;   ///< ... and these, all who lead to them, have `available`, which is less
  double wanted = 0;
  double available = 0;
  std::vector<std::uint32_t>
      full_right;  ///< these must take `pushed`, all that `full_left` have, and are to have `room`;
  std::vector<std::uint32_t> full_left;  ///< empty when the left has too little in all
  double pushed = 0;
  double room = 0;

  [[nodiscard]] bool exists() const noexcept { return !right.empty(); }
};

/// `edges`: (left, right), without limits. Numbers below 1e-12 of the whole supply count as nothing.
/// Cost: a few passes over the edges where little is to be moved, O(V^2 E) at worst.
shortage find_shortage(std::span<const double> supply, std::span<const double> demand,
                       std::span<const std::pair<std::uint32_t, std::uint32_t>> edges);

}  // namespace paracel::alg
