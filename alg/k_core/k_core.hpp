// SPDX-License-Identifier: BSD-3-Clause
//
// Core numbers: the k-core is the greatest subgraph in which every vertex has at least k neighbours; the core number of
// a vertex is the greatest k whose core it is in. The graph is taken as undirected and simple, self-loops are ignored.
//
// A worker has a bound for each of its vertices that only falls, and the owners' bounds for its ghosts. First it peels
// its part: vertices in the order of their degrees, each taken away lowers its neighbours; a ghost is taken away when
// the peeling comes to its bound. Then, from exchange to exchange, it looks at what hangs on the ghosts that fell: a
// vertex falls to the greatest k for which k of its neighbours have a bound of k or more. When none falls any more the
// bounds are the core numbers.
//
// Source: V. Batagelj, M. Zaversnik, "An O(m) algorithm for cores decomposition of networks", 2003; A. Montresor, F. De
// Pellegrini, D. Miorandi, "Distributed k-core decomposition", PODC 2011 (that the bounds converge).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <paracel/distributed_graph.hpp>

#include "alg/common/graph_base.hpp"

namespace paracel::alg {

/// The bounds of the own vertices of an undirected graph without self-loops.
class core_bounds {
 public:
  explicit core_bounds(const distributed_graph& graph);
  /// Lowers the bounds of the own vertices to what those of the ghosts allow, which may only fall from call to call.
  /// Returns: whether one fell. Cost: O(local edges) the first time, then the edges at vertices that fall, each time
  /// one does.
  bool lower(std::span<const std::uint32_t> ghost_bounds);
  /// Of the own vertices; their degrees before the first `lower`.
  [[nodiscard]] std::span<const std::uint32_t> own() const noexcept { return {bound_.data(), graph_.own()}; }

 private:
  void peel();
  void settle();
  void fall(std::uint32_t neighbour, std::uint32_t before, std::uint32_t now);
  [[nodiscard]] std::span<const std::uint32_t> beside(std::size_t ghost) const noexcept {
    return {neighbour_.data() + begin_[ghost], neighbour_.data() + begin_[ghost + 1]};
  }

  const distributed_graph& graph_;
  std::vector<std::uint64_t> begin_;  // own neighbours of ghost g: [begin_[g], begin_[g + 1]) of neighbour_
  std::vector<std::uint32_t> neighbour_;
  std::vector<std::uint32_t> bound_;    // of the own vertices, then of the ghosts
  std::vector<std::uint32_t> support_;  // of an own vertex: neighbours whose bound is not below its own
  std::vector<std::uint32_t> queue_;    // vertices with less support than they need
  std::vector<bool> queued_;
  bool peeled_ = false;
};

struct k_core_result {
  std::vector<std::uint32_t> cores;  ///< of the own vertices
  std::uint32_t greatest = 0;        ///< the degeneracy of the graph
  std::uint64_t in_greatest = 0;     ///< vertices of that core
  std::uint64_t rounds = 0;
};

/// The graph is undirected, without self-loops. A collective. Cost: a round is 4 bytes a ghost.
k_core_result core_numbers(Comm comm, const distributed_graph& graph);

using k_core_settings = graph_settings;
config_schema k_core_schema();

/// Reads the graph, finds the core numbers, writes core_<rank>.
class k_core_numbers : public paralg {
 public:
  k_core_numbers(Comm comm, const std::string& server_info, const k_core_settings& settings)
      : paralg(server_info, std::move(comm), settings.output), settings_(settings) {}
  void solve() override;

 private:
  k_core_settings settings_;
};

}  // namespace paracel::alg
