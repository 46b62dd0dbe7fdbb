// SPDX-License-Identifier: BSD-3-Clause
//
// Core numbers: the k-core is the largest subgraph in which every vertex has at least k neighbours; the core number of
// a vertex is the largest k whose core contains it. The graph is treated as undirected and simple; self-loops are
// ignored.
//
// One worker peels: vertices are removed in the order of their degrees, each lowering its neighbours; the degree that a
// vertex has when it is removed is its core number. If the graph is small enough, each edge is loaded once, and rank 0
// builds the adjacency lists of both directions, including the other workers' edges, and peels. Otherwise:
//
// Each worker keeps an upper bound for each of its vertices, which only falls, and the owners' bounds for its ghosts.
// First it peels its part: vertices are removed in the order of their degrees, each lowering its neighbours; a ghost is
// removed when peeling reaches its bound. After each exchange it updates the neighbours of ghosts whose bounds fell: a
// vertex drops to the largest k for which k of its neighbours have a bound of at least k. When no bound falls any more,
// the bounds are the core numbers.
//
// Source: V. Batagelj, M. Zaversnik, "An O(m) algorithm for cores decomposition of networks", 2003; A. Montresor, F. De
// Pellegrini, D. Miorandi, "Distributed k-core decomposition", PODC 2011 (convergence of the bounds).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <paracel/distributed_graph.hpp>

#include "alg/common/graph/graph_base.hpp"

namespace paracel::alg {

/// Default limit of the entries of a graph that rank 0 gathers: a gigabyte.
inline constexpr std::uint64_t default_gather_limit = std::uint64_t{1} << 27U;

/// Core numbers of an undirected graph without self-loops whose adjacency lists have both directions of each edge.
/// Cost: O(edges): a random access for each edge and, for each core number that occurs, a sequential pass over the
/// remaining vertices, in all at most the number of edges. Memory: 12 bytes a vertex.
std::vector<std::uint32_t> peeled_cores(std::span<const std::uint64_t> begin, std::span<const std::uint32_t> target);

/// The bounds of the own vertices of an undirected graph without self-loops.
class core_bounds {
 public:
  explicit core_bounds(const distributed_graph& graph);
  /// Lowers the bounds of the own vertices according to those of the ghosts, which may only fall between calls.
  /// Returns: whether any fell. Cost: O(local edges) the first time, then the edges at each vertex whose bound falls,
  /// each time.
  bool lower(std::span<const std::uint32_t> ghost_bounds);
  /// Bounds of the own vertices; their degrees before the first `lower`.
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
  std::vector<std::uint32_t> support_;  // of an own vertex: the number of neighbours with at least its bound
  std::vector<std::uint32_t> queue_;    // vertices with less support than their bound
  std::vector<bool> queued_;
  bool peeled_ = false;
};

struct k_core_result {
  std::vector<std::uint32_t> cores;  ///< of the own vertices
  std::uint32_t greatest = 0;        ///< the degeneracy of the graph
  std::uint64_t in_greatest = 0;     ///< vertices in that core
  std::uint64_t rounds = 0;          ///< of lowering bounds; 1 if rank 0 peeled the whole graph
};

/// The graph is undirected, without self-loops. A collective. Rank 0 peels a graph that has each edge once
/// (graph_options), for which it needs 8 bytes an edge; for one with both directions, each worker lowers bounds.
/// Cost: 4 bytes for each edge and 8 for each vertex and ghost of workers other than rank 0, and 4 for each vertex
/// back; or 4 bytes a ghost for each round.
k_core_result core_numbers(Comm comm, const distributed_graph& graph);

struct k_core_settings : graph_settings {
  static constexpr auto program = "k_core";
  static constexpr auto summary = "core number of every vertex";
  void keys(key_list& k) {
    graph_settings::keys(k);
    k("gather_limit", gather_limit, "entries of the largest graph that rank 0 peels alone").at_least(0).at_most(4e9);
  }

  std::uint64_t gather_limit = default_gather_limit;
};

/// Reads the graph, computes the core numbers, writes core_<rank>.
class k_core_numbers : public graph_program<k_core_settings> {
 public:
  using graph_program::graph_program;
  void solve() override;
};

}  // namespace paracel::alg
