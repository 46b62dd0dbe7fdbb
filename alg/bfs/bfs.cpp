// SPDX-License-Identifier: BSD-3-Clause
#include "bfs.hpp"

#include <algorithm>
#include <limits>

#include "alg/common/output/run_log.hpp"

namespace paracel::alg {

void bfs_settings::keys(key_list& k) {
  graph_settings::keys(k);
  k("source", source, "id of the source vertex").required();
  k("directed", directed, "follow edges in their direction only");
  checkpoint_keys(k);
}

bfs_result breadth_first_levels(Comm comm, const distributed_graph& graph, std::uint64_t source,
                                const search_options& options) {
  level_search search(comm, graph, source);
  run_search(comm, graph, pregel_identity("bfs", {source}), options, search);
  bfs_result result;
  result.levels = search.take_values();
  result.bottom_up_steps = search.bottom_up_steps();
  std::vector<std::int64_t> sums(2);
  std::int64_t depth = 0;
  for (const auto level : result.levels) {
    if (level == level_search::unreached) continue;
    ++sums[0];
    sums[1] += level;
    depth = std::max<std::int64_t>(depth, level);
  }
  comm.allreduce(sums);
  comm.allreduce(depth, reduce_op::max);
  result.reached = static_cast<std::uint64_t>(sums[0]);
  result.sum_of_levels = static_cast<std::uint64_t>(sums[1]);
  result.depth = static_cast<std::uint64_t>(depth);
  return result;
}

void breadth_first_search::solve() {
  auto load = settings_.load_topology();
  load.undirected = !settings_.directed;
  const auto graph = load_graph_input(get_comm(), settings_, load);
  const auto source = find_vertex(get_comm(), graph, settings_.source, settings_.source_place);
  run_log log(*this, 0, "visited");
  auto options = settings_.search([&](std::uint64_t superstep, std::uint64_t visited) {
    log.round(static_cast<int>(superstep) + 1, static_cast<double>(visited));
  });
  options.job = this;
  const auto found = breadth_first_levels(get_comm(), graph, source, options);
  std::vector<double> values(found.levels.size());
  for (std::size_t v = 0; v < values.size(); ++v) {
    const bool reached = found.levels[v] != level_search::unreached;
    values[v] = reached ? found.levels[v] : std::numeric_limits<double>::infinity();
  }
  write_vertex_values<double>(*this, settings_, graph, "bfs", "level", values);
  log.result("vertices", graph.vertices_total());
  log.result("edges", graph.edges_total);
  log.result("reached", found.reached);
  log.result("depth", found.depth);
  log.result("sum_of_levels", found.sum_of_levels);
  log.result("output", get_output());
}

}  // namespace paracel::alg
