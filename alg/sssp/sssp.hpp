// SPDX-License-Identifier: BSD-3-Clause
//
// Single-source shortest paths: d(v) = least sum of weights on a path from the source to v; weights must not be
// negative. delta_stepping.hpp has the method.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <paracel/distributed_graph.hpp>

#include "alg/common/graph/graph_base.hpp"

namespace paracel::alg {

struct sssp_result {
  std::vector<double> distances;  ///< of the own vertices; infinity if not reached
  std::uint64_t reached = 0;      ///< over all workers, the source included
  double farthest = 0;
  double sum_of_distances = 0;
  std::uint64_t supersteps = 0;
};

/// The graph has weights >= 0. `source`: a vertex number. `delta`: width of a bucket, 0: from the weights. A
/// collective.
sssp_result shortest_paths(Comm comm, const distributed_graph& graph, std::uint64_t source,
                           const search_options& options = {}, double delta = 0);

struct sssp_settings : graph_settings {
  static constexpr auto program = "sssp";
  static constexpr auto summary = "shortest paths from one vertex to all others";
  void keys(key_list& k);
  void check(const config& from) { source_place = from.place_of("source"); }

  std::string source;
  std::string source_place;
  bool directed = true;
  double delta = 0;
  duplicate_rule duplicates = duplicate_rule::min;
};

/// Reads the graph, computes the distances, writes distance_<rank>.
class single_source_shortest_paths : public graph_program<sssp_settings> {
 public:
  using graph_program::graph_program;
  void solve() override;
};

}  // namespace paracel::alg
