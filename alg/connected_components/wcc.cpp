// SPDX-License-Identifier: BSD-3-Clause
#include "wcc.hpp"

#include <algorithm>

#include <paracel/exchange.hpp>

#include "alg/common/graph/contracted_graph.hpp"
#include "alg/common/graph/union_find.hpp"
#include "alg/common/output/run_log.hpp"

namespace paracel::alg {

namespace {

/// Sets the labels of groups to the least of their component; computed by rank 0, which gathers all edges.
void join_on_first(Comm& comm, const distributed_graph& groups, std::vector<std::uint64_t>& labels) {
  std::vector<byte_vector> blocks(comm.get_size()), answers(comm.get_size());
  for (auto& b : blocks) put_bytes(b, std::uint64_t{0});
  for (auto& b : answers) put_bytes(b, std::uint64_t{0});
  put_bytes(blocks[0], labels.data(), labels.size());
  for (std::size_t g = 0; g < groups.own(); ++g) {
    for (const auto t : groups.out.of(g)) {
      put_bytes(blocks[0], static_cast<std::uint32_t>(g));
      put_bytes(blocks[0], groups.number(t));
    }
  }
  const auto got = exchange_blocks(comm, blocks);
  if (comm.get_rank() == 0) {
    union_find sets(groups.vertices_total());
    std::vector<std::uint64_t> least;
    for (std::size_t w = 0; w < got.size(); ++w) {
      byte_reader in(got[w], exchange_room);
      std::vector<std::uint64_t> part;
      in.get(part, groups.first[w + 1] - groups.first[w]);
      least.insert(least.end(), part.begin(), part.end());
      while (!in.empty()) {
        const auto from = static_cast<std::uint32_t>(groups.first[w] + in.get<std::uint32_t>());
        sets.unite(from, static_cast<std::uint32_t>(in.get<std::uint64_t>()));
      }
    }
    for (std::uint32_t g = 0; g < least.size(); ++g) {
      auto& root = least[sets.find(g)];
      root = std::min(root, least[g]);
    }
    for (std::size_t w = 0; w < answers.size(); ++w)
      for (auto g = groups.first[w]; g < groups.first[w + 1]; ++g)
        put_bytes(answers[w], least[sets.find(static_cast<std::uint32_t>(g))]);
  }
  const auto told = exchange_blocks(comm, answers);
  byte_reader in(told[0], exchange_room);
  in.get(labels, groups.own());
}

}  // namespace

wcc_result weak_components(Comm comm, const distributed_graph& graph, pregel_options options, bool resume) {
  const auto own = graph.own();
  std::vector<std::uint32_t> group(own + graph.ghosts.size());
  std::vector<std::uint64_t> least;  // of each group: the least vertex number known here
  {
    union_find sets(group.size());
    for (std::size_t v = 0; v < own; ++v)
      for (const auto t : graph.out.of(v)) sets.unite(static_cast<std::uint32_t>(v), t);
    // Every ghost is adjacent to an own vertex, so the root, the least element, is an own vertex.
    for (std::size_t v = 0; v < group.size(); ++v) {
      const auto root = sets.find(static_cast<std::uint32_t>(v));
      if (root == v) {
        group[v] = static_cast<std::uint32_t>(least.size());
        least.push_back(graph.number(v));
      } else {
        group[v] = group[root];
        if (v >= own) least[group[v]] = std::min(least[group[v]], graph.number(v));
      }
    }
  }

  // Joins the group of a ghost on this worker with its group on its owner.
  const auto borders = std::make_unique<halo>(comm, graph);
  const auto first = number_groups(comm, least.size());
  std::vector<std::uint32_t> at_home(graph.ghosts.size());
  borders->pull<std::uint32_t>(std::span<const std::uint32_t>(group).first(own), at_home);
  std::vector<contracted_edge> links(graph.ghosts.size());
  std::size_t w = 0;
  for (std::size_t g = 0; g < links.size(); ++g) {
    while (borders->ghost_first(w + 1) <= g) ++w;
    links[g] = {group[own + g], first[w] + at_home[g]};
  }
  const auto contracted = contracted_graph(comm, first, links, edge_rule::symmetric);

  pregel_run<least_label_program> run(comm, contracted);
  run.values() = std::move(least);
  // Different graphs may contract to the same groups.
  if (resume || options.checkpoint_every != 0) run.identify(pregel_identity("wcc", {graph_identity(comm, graph)}));
  if (resume) run.restore(options.checkpoint_folder);
  wcc_result result;
  options.max_supersteps = std::min(options.max_supersteps, most_supersteps);
  const auto said = run.run(options);
  result.supersteps = said.supersteps;
  result.groups = first.back();
  result.gathered = !said.finished;
  if (result.gathered) {
    join_on_first(comm, contracted, run.values());
    run.remove_checkpoints();
  }
  result.labels.resize(own);
  for (std::size_t v = 0; v < own; ++v) result.labels[v] = run.value(group[v]);
  return result;
}

void connected_components::solve() {
  const auto graph = load_graph_input(get_comm(), settings_, settings_.load_topology());
  run_log log(*this, 0, "messages");
  pregel_options options;
  options.checkpoint_every = settings_.checkpoint_every;
  options.checkpoint_folder = settings_.checkpoint_folder();
  options.job = this;
  options.watch = [&](std::uint64_t superstep, std::uint64_t, std::uint64_t messages) {
    log.round(static_cast<int>(superstep) + 1, static_cast<double>(messages));
  };
  const auto found = weak_components(get_comm(), graph, options, settings_.resume);
  const auto summary = summary_of_labels(get_comm(), graph, found.labels);
  write_vertex_labels(*this, settings_, graph, "wcc", "component", found.labels);
  log.result("vertices", graph.vertices_total());
  log.result("edges", graph.edges_total);
  log.result("supersteps", found.supersteps);
  log.result("components", summary.groups);
  log.result("largest", summary.largest);
  log.result("output", get_output());
}

}  // namespace paracel::alg
