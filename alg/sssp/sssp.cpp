// SPDX-License-Identifier: BSD-3-Clause
#include "sssp.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "alg/common/output/run_log.hpp"
#include "delta_stepping.hpp"

namespace paracel::alg {

void sssp_settings::keys(key_list& k) {
  graph_settings::keys(k);
  k("source", source, "id of the source vertex").required();
  k("directed", directed, "follow edges in their direction only");
  k("delta", delta, "width of a bucket of distances; 0: derived from the weights").at_least(0);
  duplicates_key(k, duplicates);
  checkpoint_keys(k);
}

sssp_result shortest_paths(Comm comm, const distributed_graph& graph, std::uint64_t source,
                           const search_options& options, double delta) {
  delta_stepping search(comm, graph, source, delta);
  run_search(comm, graph, pregel_identity("sssp", {source, std::bit_cast<std::uint64_t>(delta)}), options, search);
  sssp_result result;
  result.supersteps = search.superstep();
  result.distances = search.take_values();
  std::vector<double> sums(2);
  for (const auto d : result.distances) {
    if (std::isinf(d)) continue;
    sums[0] += 1;
    sums[1] += d;
    result.farthest = std::max(result.farthest, d);
  }
  comm.allreduce(sums);
  comm.allreduce(result.farthest, reduce_op::max);
  result.reached = static_cast<std::uint64_t>(sums[0]);
  result.sum_of_distances = sums[1];
  return result;
}

void single_source_shortest_paths::solve() {
  auto load = settings_.load_options();
  load.weighted = true;
  load.entries.non_negative = true;
  load.entries.duplicates = settings_.duplicates;
  load.self_loops = false;
  load.undirected = !settings_.directed;
  const auto graph = load_graph_input(get_comm(), settings_, load);
  const auto source = find_vertex(get_comm(), graph, settings_.source, settings_.source_place);
  run_log log(*this, 0, "visited");
  auto options = settings_.search([&](std::uint64_t superstep, std::uint64_t visited) {
    log.round(static_cast<int>(superstep) + 1, static_cast<double>(visited));
  });
  options.job = this;
  const auto found = shortest_paths(get_comm(), graph, source, options, settings_.delta);
  write_vertex_values<double>(*this, settings_, graph, "sssp", "distance", found.distances);
  log.result("vertices", graph.vertices_total());
  log.result("edges", graph.edges_total);
  log.result("supersteps", found.supersteps);
  log.result("reached", found.reached);
  log.result("farthest", found.farthest);
  log.result("sum_of_distances", found.sum_of_distances);
  log.result("output", get_output());
}

}  // namespace paracel::alg
