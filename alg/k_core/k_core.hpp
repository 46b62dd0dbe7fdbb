// SPDX-License-Identifier: BSD-3-Clause
//
// Core numbers: the k-core is the greatest subgraph in which every vertex has at least k neighbours; the core number of a
// vertex is the greatest k whose core it is in. The graph is taken as undirected and simple, self-loops are ignored.
//
// A worker peels its part: vertices in the order of their degrees, each taken away lowers its neighbours. A ghost is
// taken away when the peeling comes to the bound that its owner has for it. The result is a bound for each own vertex
// that only falls from exchange to exchange, and when none falls any more it is the core number.
//
// Source: V. Batagelj, M. Zaversnik, "An O(m) algorithm for cores decomposition of networks", 2003; A. Montresor, F. De
// Pellegrini, D. Miorandi, "Distributed k-core decomposition", PODC 2011 (that the bounds converge).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <paracel/graph_part.hpp>

#include "alg/common/graph_job.hpp"

namespace paracel::alg {

/// The own part of an undirected graph, to be peeled again and again.
class core_peeling {
 public:
  explicit core_peeling(const graph_part& graph);
  /// Of the own vertices, given the bounds of the ghosts. Cost: O(local edges).
  std::vector<std::uint32_t> peel(std::span<const std::uint32_t> ghost_bounds) const;

 private:
  const graph_part& graph_;
  std::vector<std::uint64_t> begin_;     // own neighbours of ghost g: [begin_[g], begin_[g + 1]) of neighbour_
  std::vector<std::uint32_t> neighbour_;
};

struct k_core_result {
  std::vector<std::uint32_t> cores;  ///< of the own vertices
  std::uint32_t greatest = 0;        ///< the degeneracy of the graph
  std::uint64_t in_greatest = 0;     ///< vertices of that core
  std::uint64_t rounds = 0;
};

/// The graph is undirected, without self-loops. A collective. Cost: a round is 4 bytes a ghost.
k_core_result core_numbers(Comm comm, const graph_part& graph);

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
