// SPDX-License-Identifier: BSD-3-Clause
//
// Levels of a breadth-first search: the level of a vertex is the number of edges of a shortest path from the source.
// level_search.hpp has the method.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <paracel/distributed_graph.hpp>

#include "alg/common/graph/graph_base.hpp"
#include "level_search.hpp"

namespace paracel::alg {

struct bfs_result {
  std::vector<std::uint32_t> levels;  ///< of the own vertices; level_search::unreached if not reached
  std::uint64_t reached = 0;          ///< over all workers, the source included
  std::uint64_t depth = 0;            ///< the greatest level
  std::uint64_t sum_of_levels = 0;
  std::uint32_t bottom_up_steps = 0;  ///< supersteps that searched bottom-up
};

/// `source`: a vertex number. A collective.
bfs_result breadth_first_levels(Comm comm, const distributed_graph& graph, std::uint64_t source,
                                const search_options& options = {});

struct bfs_settings : graph_settings {
  static constexpr auto program = "bfs";
  static constexpr auto summary = "levels of a breadth-first search from one vertex";
  void keys(key_list& k);
  void check(const config& from) { source_place = from.place_of("source"); }

  std::string source;
  std::string source_place;
  bool directed = true;
};

/// Reads the graph, searches, writes level_<rank>.
class breadth_first_search : public graph_program<bfs_settings> {
 public:
  using graph_program::graph_program;
  void solve() override;
};

}  // namespace paracel::alg
