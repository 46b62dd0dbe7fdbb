// SPDX-License-Identifier: BSD-3-Clause
#include "bfs.hpp"

#include <algorithm>
#include <limits>

#include "alg/common/run_log.hpp"

namespace paracel::alg {

config_schema bfs_schema() {
  config_schema s("bfs", "levels of a breadth-first search from one vertex");
  add_graph_keys(s);
  s.key("source", key_type::string, "id of the source vertex").required();
  s.key("directed", key_type::boolean, "follow edges in their direction only").fallback(true);
  add_checkpoint_keys(s);
  return s;
}

bfs_result breadth_first_levels(Comm comm, const distributed_graph& graph, std::uint64_t source,
                                const pregel_options& options, bool resume) {
  pregel_run<bfs_program> run(comm, graph, {source});
  std::ranges::fill(run.values(), bfs_program::unreached);
  run.identify(pregel_identity("bfs", {source}));
  if (resume) run.restore(options.checkpoint_folder);
  run.run(options);
  bfs_result result;
  result.levels = std::move(run.values());
  std::vector<std::int64_t> sums(2);
  std::int64_t depth = 0;
  for (const auto level : result.levels) {
    if (level == bfs_program::unreached) continue;
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
  auto load = settings_.load_options();
  load.entries.values = entry_options::value_rule::ignore;
  load.self_loops = false;
  load.undirected = !settings_.directed;
  const auto graph = load_graph(get_comm(), settings_.input, load);
  const auto source = find_vertex(get_comm(), graph, settings_.source, settings_.source_place);
  run_log log(*this, 0, "messages");
  pregel_options options;
  options.checkpoint_every = settings_.checkpoint_every;
  options.checkpoint_folder = settings_.checkpoint_folder();
  options.watch = [&](std::uint64_t superstep, std::uint64_t, std::uint64_t messages) {
    log.round(static_cast<int>(superstep) + 1, static_cast<double>(messages));
  };
  const auto found = breadth_first_levels(get_comm(), graph, source, options, settings_.resume);
  std::vector<double> values(found.levels.size());
  for (std::size_t v = 0; v < values.size(); ++v) {
    const bool reached = found.levels[v] != bfs_program::unreached;
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
