// SPDX-License-Identifier: BSD-3-Clause
#include "label_propagation.hpp"

#include <algorithm>

#include "alg/common/output/run_log.hpp"
#include "alg/common/output/warning.hpp"

namespace paracel::alg {

std::uint64_t most_frequent(std::vector<std::uint64_t>& labels) {
  std::sort(labels.begin(), labels.end());
  std::uint64_t best = labels.front();
  std::size_t most = 0;
  for (std::size_t i = 0; i < labels.size();) {
    auto j = i + 1;
    while (j < labels.size() && labels[j] == labels[i]) ++j;
    if (j - i > most) {
      most = j - i;
      best = labels[i];
    }
    i = j;
  }
  return best;
}

double modularity_of(Comm comm, const distributed_graph& graph, std::span<const std::uint64_t> labels,
                     std::span<const std::uint64_t> ghost_labels) {
  const auto own = graph.own();
  std::vector<std::uint64_t> degrees(own);
  std::vector<std::int64_t> ends{0, 0};  // edges: all, and those inside a community
  for (std::size_t v = 0; v < own; ++v) {
    degrees[v] = graph.out.degree(v);
    ends[0] += static_cast<std::int64_t>(degrees[v]);
    for (const auto t : graph.out.of(v)) ends[1] += (t < own ? labels[t] : ghost_labels[t - own]) == labels[v] ? 1 : 0;
  }
  comm.allreduce(ends);
  if (ends[0] == 0) return 0;
  std::vector<double> squares{0};
  const auto twice_m = static_cast<double>(ends[0]);
  for (const auto d : label_totals(comm, graph, labels, degrees)) {
    const auto part = static_cast<double>(d) / twice_m;
    squares[0] += part * part;
  }
  comm.allreduce(squares);
  return static_cast<double>(ends[1]) / twice_m - squares[0];
}

label_propagation_result propagate_labels(Comm comm, const distributed_graph& graph, std::uint64_t rounds,
                                          const std::function<void(std::uint64_t, std::uint64_t)>& watch, paralg* job) {
  const auto own = graph.own();
  halo borders(comm, graph);
  label_propagation_result result;
  auto& labels = result.labels;
  labels.resize(own);
  for (std::size_t v = 0; v < own; ++v) labels[v] = graph.number(v);
  std::vector<std::uint64_t> ghosts(graph.ghosts), next(own), before, around;
  auto ended = static_cast<int>(result.ended);
  resumable_loop loop(job);
  keep_size(loop, graph).keep("labels", labels).keep("before", before).keep("ghosts", ghosts).keep("ended", ended);
  while (loop.next(static_cast<std::int64_t>(rounds))) {
    std::vector<std::int64_t> changed{0, 0};  // since the previous round, and since the one before it
    for (std::size_t v = 0; v < own; ++v) {
      const auto targets = graph.out.of(v);
      next[v] = labels[v];
      if (!targets.empty()) {
        around.clear();
        bool alike = true;
        for (const auto t : targets) {
          around.push_back(t < own ? labels[t] : ghosts[t - own]);
          alike = alike && around.back() == around.front();
        }
        next[v] = alike ? around.front() : most_frequent(around);
      }
      changed[0] += next[v] != labels[v] ? 1 : 0;
      changed[1] += before.empty() || next[v] != before[v] ? 1 : 0;
    }
    before = labels;
    labels.swap(next);
    comm.allreduce(changed);
    borders.pull<std::uint64_t>(labels, ghosts);
    if (watch) watch(static_cast<std::uint64_t>(loop.iteration()) + 1, static_cast<std::uint64_t>(changed[0]));
    if (changed[0] == 0) ended = static_cast<int>(label_propagation_result::ending::fixed_point);
    else if (changed[1] == 0) ended = static_cast<int>(label_propagation_result::ending::cycle);
    else continue;
    loop.stop();
  }
  result.rounds = static_cast<std::uint64_t>(loop.iteration());
  result.ended = static_cast<label_propagation_result::ending>(ended);
  result.modularity = modularity_of(comm, graph, labels, ghosts);
  return result;
}

void label_propagation::solve() {
  auto load = settings_.load_options();
  load.entries.values = entry_options::value_rule::ignore;
  load.self_loops = false;
  load.undirected = true;
  const auto graph = load_graph_input(get_comm(), settings_, load);
  run_log log(*this, settings_.rounds, "changed");
  const auto found = propagate_labels(
      get_comm(), graph, static_cast<std::uint64_t>(settings_.rounds),
      [&](std::uint64_t round, std::uint64_t changed) {
        log.round(static_cast<int>(round), static_cast<double>(changed));
      },
      this);
  const auto summary = summary_of_labels(get_comm(), graph, found.labels);
  write_vertex_labels(*this, settings_, graph, "label_propagation", "label", found.labels);
  using ending = label_propagation_result::ending;
  log.result("vertices", graph.vertices_total());
  log.result("edges", graph.edges_total);
  log.result("rounds", found.rounds);
  log.result("ended", std::string(found.ended == ending::fixed_point ? "fixed_point"
                                  : found.ended == ending::cycle     ? "cycle"
                                                                     : "rounds"));
  if (found.ended == ending::rounds)
    warn(get_comm(), "labels still change after " + std::to_string(found.rounds) + " rounds; raise rounds");
  log.result("communities", summary.groups);
  log.result("largest", summary.largest);
  log.result("modularity", found.modularity);
  log.result("output", get_output());
}

}  // namespace paracel::alg
