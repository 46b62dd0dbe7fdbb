// SPDX-License-Identifier: BSD-3-Clause
//
// Strongly connected components: two vertices are in one component if each can be reached from the other.
//
// 1. Each worker finds the components of its own subgraph (Tarjan's algorithm without recursion, in Pearce's variant
//    with one word a vertex). They are parts of the global components.
// 2. A component that spans workers contains a cycle through their borders. So a part that cannot be reached from
//    another worker, or from which no other worker can be reached, is finished. This is repeated while it pays off,
//    with the parts that other workers have finished removed.
// 3. What remains is the core: a graph whose vertices are parts. If it has at most `gather_limit` edges, rank 0 gathers
//    it and solves it with 1. Otherwise all workers solve it, by vertex programs: trim vertices without edges in or
//    out; give every vertex the greatest number that reaches it (its colour); the vertices of a colour that reach the
//    vertex with that number are its component; repeat with the rest.
//
// Source: R. Tarjan, "Depth-first search and linear graph algorithms", SIAM J. Computing 1972; D. Pearce, "A
// space-efficient algorithm for finding strongly connected components", IPL 2016; S. Orzan, "On distributed
// verification and verified distribution", 2004 (colours).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <paracel/distributed_graph.hpp>

#include "alg/common/graph/graph_base.hpp"

namespace paracel::alg {

/// Components of a graph in compressed form: the edges of vertex v lead to target[begin[v], begin[v + 1]); targets that
/// are not vertices (begin.size() - 1 or more) are ignored. component[v] becomes its number; returns their count. An
/// edge between two components leads to the one with the smaller number. Cost: O(vertices + edges); 4 bytes a vertex
/// and 16 bytes for each vertex on the stack.
std::uint32_t strong_components(std::span<const std::uint64_t> begin, std::span<const std::uint32_t> target,
                                std::span<std::uint32_t> component);

struct scc_result {
  std::vector<std::uint64_t> labels;  ///< of the own vertices: the least number of a vertex in the component
  std::uint64_t core_vertices = 0, core_edges = 0;  ///< over all workers
  bool gathered = false;
};

/// A collective. `job`: rounds of 2 and supersteps of 3 are iterations of it (resumable_loop.hpp).
scc_result strong_components(Comm comm, const distributed_graph& graph, std::uint64_t gather_limit,
                             paralg* job = nullptr);

struct scc_settings : graph_settings {
  static constexpr auto program = "scc";
  static constexpr auto summary = "strongly connected components";
  void keys(key_list& k) {
    graph_settings::keys(k);
    k("gather_limit", gather_limit, "largest core, in edges, that rank 0 solves alone").at_least(0).at_most(4e9);
  }

  // 2^24 edges are 64 MB in a message and take less than a second on rank 0.
  std::uint64_t gather_limit = 1U << 24U;
};

/// Reads the graph, finds the components, writes component_<rank>.
class strongly_connected_components : public graph_program<scc_settings> {
 public:
  using graph_program::graph_program;
  void solve() override;
};

}  // namespace paracel::alg
