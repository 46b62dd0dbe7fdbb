// SPDX-License-Identifier: BSD-3-Clause
//
// PageRank with its state in the servers, as in Paracel 0.3:
//
//     <id>_links | (source, W_u / w_uv) | ...     built once, by the plug-in's update function, which joins lists
//     <id>_pr    | score                          written by the owner in each round
//
// The sources are ids if these are numbers, otherwise the numbers of the vertices in the order of their names.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pagerank.hpp"

namespace paracel::alg {

namespace {

using links = std::vector<std::pair<std::uint64_t, double>>;

/// The edges into the own vertices; those of vertex v are [begin[v], begin[v + 1]): a source (an index into `sources`)
/// and the number by which the source's score is divided.
struct incoming_links {
  std::vector<std::string> sources;  // as text
  std::vector<std::size_t> begin{0};
  std::vector<std::uint32_t> source;
  std::vector<double> divisor;
};

std::vector<std::string> keys_of(const id_list& ids, const char* suffix) {
  std::vector<std::string> keys;
  keys.reserve(ids.size());
  for (std::size_t v = 0; v < ids.size(); ++v) keys.push_back(ids.text(v) + suffix);
  return keys;
}

/// Adds the links of the own vertices to the lists of their targets. `leaves`: W_u of the own vertices.
void push_links(paralg& job, const distributed_graph& graph, const state_plugin& handle,
                const std::vector<double>& leaves) {
  const auto own = graph.own();
  const auto ghosts = ids_of_numbers(job.get_comm(), graph, graph.ghosts);
  std::vector<links> into(own + graph.ghosts.size());
  for (std::size_t v = 0; v < own; ++v) {
    const auto node = graph.ids.numeric() ? graph.ids.number(v) : graph.number(v);
    for (auto e = graph.out.begin[v]; e < graph.out.begin[v + 1]; ++e) {
      const auto weight = graph.out.weight_at(e);
      if (weight > 0) into[graph.out.target[e]].emplace_back(node, leaves[v] / weight);
    }
  }
  dict_type<std::string, links> lists;
  for (std::size_t t = 0; t < into.size(); ++t) {
    const auto id = t < own ? graph.ids.text(t) : ghosts.text(t - own);
    if (!into[t].empty()) lists.emplace(id + "_links", std::move(into[t]));
  }
  job.paracel_update_multi(lists, {handle.file, handle.functions[0]});
  job.iter_commit();
  job.paracel_sync();
}

incoming_links pull_links(paralg& job, const distributed_graph& graph, const state_plugin& handle) {
  const auto keys = keys_of(graph.ids, "_links");
  dict_type<std::string, links> lists;
  job.paracel_read_multi(keys, lists);
  job.paracel_remove_multi(keys);
  std::vector<std::uint64_t> nodes;
  for (const auto& [key, list] : lists)
    for (const auto& link : list) nodes.push_back(link.first);
  std::ranges::sort(nodes);
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  incoming_links in;
  if (graph.ids.numeric()) {
    for (const auto n : nodes) in.sources.push_back(std::to_string(n));
  } else {
    if (!nodes.empty() && nodes.back() >= graph.vertices_total())
      throw plugin_error(handle.functions[0] + ": found a link from vertex " + std::to_string(nodes.back()) +
                         ", want a number below " + std::to_string(graph.vertices_total()));
    const auto names = ids_of_numbers(job.get_comm(), graph, nodes);
    for (std::size_t i = 0; i < names.size(); ++i) in.sources.push_back(names.text(i));
  }
  for (const auto& key : keys) {
    for (const auto& [node, divisor] : lists[key]) {
      in.source.push_back(static_cast<std::uint32_t>(std::ranges::lower_bound(nodes, node) - nodes.begin()));
      in.divisor.push_back(divisor);
    }
    in.begin.push_back(in.source.size());
  }
  return in;
}

}  // namespace

pagerank_result page_ranks_in_servers(paralg& job, const distributed_graph& outgoing, const pagerank_options& options,
                                      const state_plugin& handle) {
  auto comm = job.get_comm();
  const auto own = outgoing.own();
  const auto total = static_cast<double>(outgoing.vertices_total());
  const auto d = options.damping;
  std::vector<double> leaves(own);
  for (std::size_t v = 0; v < own; ++v)
    for (auto e = outgoing.out.begin[v]; e < outgoing.out.begin[v + 1]; ++e) leaves[v] += outgoing.out.weight_at(e);
  job.set_consistency(consistency_model::bsp);                    // lists are joined in rank order
  if (!job.resumed()) push_links(job, outgoing, handle, leaves);  // else they came with the checkpoint
  const auto in = pull_links(job, outgoing, handle);

  auto keys = in.sources;
  for (auto& key : keys) key += "_pr";
  const auto source_keys = job.paracel_prepare(std::move(keys));
  const auto own_names = keys_of(outgoing.ids, "_pr");
  const auto own_keys = job.paracel_prepare(own_names);
  const auto publish = [&](const std::vector<double>& x) {
    if (own > 0) job.paracel_write(own_keys, x);
    job.paracel_sync();
  };

  pagerank_result result;
  auto& x = result.scores;
  x = options.personalization;
  if (x.empty() || options.paracel) x.assign(own, 1 / total);
  std::vector<double> of_sources(in.sources.size());
  // As in pagerank.cpp.
  enum { dangling, step, total_score };
  std::vector<double> sums{0, 0, 0};
  for (std::size_t v = 0; v < own; ++v) {
    if (leaves[v] == 0) sums[dangling] += x[v];
    sums[total_score] += x[v];
  }
  comm.allreduce(sums);
  result.sum = sums[total_score];
  publish(x);
  while (result.rounds < options.rounds && total > 0) {
    if (!of_sources.empty()) job.paracel_read(source_keys, std::span<double>(of_sources));
    const auto again = d * sums[dangling] + (1 - d);  // factor of t
    sums = {0, 0, 0};
    for (std::size_t v = 0; v < own; ++v) {
      double sum = 0;
      for (auto e = in.begin[v]; e < in.begin[v + 1]; ++e) sum += of_sources[in.source[e]] / in.divisor[e];
      const double t = options.personalization.empty() ? 1 / total : options.personalization[v];
      const double next = options.paracel ? (1 - d) + d * sum : d * sum + again * t;
      sums[step] += std::abs(next - x[v]);
      sums[total_score] += next;
      if (leaves[v] == 0) sums[dangling] += next;
      x[v] = next;
    }
    comm.allreduce(sums);  // so all have read before the next scores are written
    publish(x);
    result.step = sums[step];
    result.sum = sums[total_score];
    ++result.rounds;
    if (options.watch) options.watch(result.rounds, result.step);
    if (result.step <= options.tolerance && options.tolerance > 0) break;
  }

  std::unordered_map<std::string_view, std::size_t> at;
  for (std::size_t v = 0; v < own; ++v) at.emplace(own_names[v], v);
  result.selected.assign(own, 0);
  job.paracel_read_special_handle<double>(handle.file, handle.functions[1],
                                          [&](const std::string& key, const double& score) {
                                            const auto found = at.find(key);
                                            if (found == at.end()) return;
                                            result.selected[found->second] = 1;
                                            x[found->second] = score;
                                          });
  return result;
}

}  // namespace paracel::alg
