// SPDX-License-Identifier: BSD-3-Clause
//
// Triangles of a graph treated as undirected and simple.
//
// Vertices are ranked by degree (ties by number), and each edge is kept at its end of lower rank: then no vertex keeps
// more than sqrt(2 m) edges, and a triangle is found once, at its lowest vertex u: an edge u-v and the common elements
// of the lists of u and v. The list of another worker's vertex is fetched if a local list contains that vertex, in
// rounds of bounded size, and without the owner's vertices that this worker does not know.
//
// Source: N. Alon, R. Yuster, U. Zwick, Algorithmica 1997; T. Schank, D. Wagner, "Finding, counting and listing all
// triangles in large graphs", WEA 2005 (forward); lists are compared by marks in an array shared by all lists of a
// heavy vertex.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <paracel/distributed_graph.hpp>

#include "alg/common/graph/graph_base.hpp"

namespace paracel::alg {

struct triangle_result {
  std::uint64_t triangles = 0;             ///< over all workers
  std::uint64_t wedges = 0;                ///< pairs of neighbours of a vertex, over all workers
  std::vector<std::uint64_t> of_vertices;  ///< triangles of each own vertex, if requested
  std::uint64_t fetched_bytes = 0;         ///< of lists received by this worker
  std::uint64_t rounds = 0;                ///< of fetching
};

/// The graph is undirected, without self-loops, and has each edge once (graph_options); its edges are taken out of it.
/// A collective. `round_bytes`: size of the edges and lists that a worker sends in a round.
triangle_result count_triangles(Comm comm, distributed_graph& graph, bool per_vertex,
                                std::size_t round_bytes = std::size_t{1} << 20U);

struct triangle_settings : graph_settings {
  static constexpr auto program = "triangle_count";
  static constexpr auto summary = "triangles of a graph";
  void keys(key_list& k) {
    graph_settings::keys(k);
    k("per_vertex", per_vertex, "also count the triangles of each vertex");
  }

  bool per_vertex = false;
};

/// Reads the graph, counts, writes triangles_<rank> if `per_vertex`.
class triangle_counter : public graph_program<triangle_settings> {
 public:
  using graph_program::graph_program;
  void solve() override;
};

}  // namespace paracel::alg
