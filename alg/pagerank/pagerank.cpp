// SPDX-License-Identifier: BSD-3-Clause
#include "pagerank.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <paracel/free_memory.hpp>
#include <paracel/text_input.hpp>

#include "alg/common/output/run_log.hpp"
#include "alg/common/output/warning.hpp"

namespace paracel::alg {

void sum_along_edges(const adjacency& edges, std::span<const double> values, std::span<double> out) {
  const auto* target = edges.target.data();
  const auto* value = values.data();
  if (edges.weight.empty()) {
    for (std::size_t v = 0; v < out.size(); ++v) {
      double sum = 0;
      for (auto e = edges.begin[v]; e < edges.begin[v + 1]; ++e) sum += value[target[e]];
      out[v] = sum;
    }
  } else {
    for (std::size_t v = 0; v < out.size(); ++v) {
      double sum = 0;
      for (auto e = edges.begin[v]; e < edges.begin[v + 1]; ++e) sum += edges.weight[e] * value[target[e]];
      out[v] = sum;
    }
  }
}

pagerank_result page_ranks(Comm comm, const distributed_graph& incoming, const pagerank_options& options) {
  const auto own = incoming.own();
  const auto total = static_cast<double>(incoming.vertices_total());
  const auto d = options.damping;
  halo borders(comm, incoming);

  // 1 / W_u of the own vertices; edges out of u may be on any worker.
  std::vector<double> leaves(own + incoming.ghosts.size());
  const auto& edges = incoming.out;
  for (std::size_t e = 0; e < edges.target.size(); ++e) leaves[edges.target[e]] += edges.weight_at(e);
  borders.push<double>(std::span<const double>(leaves).subspan(own), std::span(leaves).first(own),
                       [](double& into, double more) { into += more; });
  std::vector<double> share(own);
  for (std::size_t v = 0; v < own; ++v) share[v] = leaves[v] > 0 ? 1 / leaves[v] : 0;
  free_memory(leaves);

  pagerank_result result;
  auto& x = result.scores;
  x = options.personalization;
  if (x.empty()) x.assign(own, 1 / total);
  if (options.paracel) x.assign(own, 1 / total);
  std::vector<double> sent(own + incoming.ghosts.size()), sum(own);
  // One reduction a round: the mass of vertices without edges, the L1 norm of the step, the sum of the scores.
  enum { dangling, step, total_score };
  std::vector<double> sums{0, 0, 0};
  for (std::size_t v = 0; v < own; ++v) {
    if (share[v] == 0) sums[dangling] += x[v];
    sums[total_score] += x[v];
  }
  comm.allreduce(sums);
  resumable_loop loop(options.job);
  keep_size(loop, incoming).keep("scores", x).keep("lost", sums);
  while (loop.next(total > 0 ? static_cast<std::int64_t>(options.rounds) : 0)) {
    for (std::size_t v = 0; v < own; ++v) sent[v] = x[v] * share[v];
    borders.pull<double>(std::span<const double>(sent).first(own), std::span(sent).subspan(own));
    sum_along_edges(edges, sent, sum);
    const auto again = d * sums[dangling] + (1 - d);  // factor of t
    sums = {0, 0, 0};
    for (std::size_t v = 0; v < own; ++v) {
      const double t = options.personalization.empty() ? 1 / total : options.personalization[v];
      const double next = options.paracel ? (1 - d) + d * sum[v] : d * sum[v] + again * t;
      sums[step] += std::abs(next - x[v]);
      sums[total_score] += next;
      if (share[v] == 0) sums[dangling] += next;
      x[v] = next;
    }
    comm.allreduce(sums);
    if (options.watch) options.watch(static_cast<std::uint64_t>(loop.iteration()) + 1, sums[step]);
    if (sums[step] <= options.tolerance && options.tolerance > 0) loop.stop();
  }
  result.rounds = static_cast<std::uint64_t>(loop.iteration());
  result.step = sums[step];
  result.sum = sums[total_score];
  return result;
}

void pagerank_settings::keys(key_list& k) {
  graph_settings::keys(k);
  k("rounds", options.rounds, "maximum number of rounds").at_least(0).at_most(1000000000);
  k("damping_factor", options.damping, "d of the formula: the fraction of a score that is passed along the edges")
      .at_least(0)
      .at_most(1);
  k("tolerance", options.tolerance, "stop when the L1 norm of a step is at most this; 0: never").at_least(0);
  k("weights", weights, "whether edges have weights; automatic: yes if the first line has a third field",
    {{"automatic", std::nullopt}, {"yes", true}, {"no", false}});
  duplicates_key(k, duplicates);
  k.files("personalization", personalization,
          "lines `id weight`: where random jumps lead; default: to all vertices alike");
  k("paracel", options.paracel, "Paracel 0.3's formula: not normalised, the score of dead ends is lost");
  k.plugin("handle_file", handle.file, "plug-in for links and scores in the servers; default: the workers keep them")
      .not_resumable();
  handle.function_keys(
      k, "handle_file",
      {{"update_function", "init_updater", "function of handle_file that joins lists of links; default init_updater"},
       {"filter_function", "pr_filter",
        "function of handle_file that selects scores to be written; default pr_filter"}});
}

void pagerank_settings::check(const config& from) const {
  if (options.paracel && !personalization.empty())
    throw config_error(from.place_of("personalization") + ": not with Paracel's formula (\"paracel\": true)");
}

namespace {

/// Calls f(id, rest of the line) for each line that has an id and, with `comments`, is none.
template <class F>
void each_personal_line(std::string_view text, bool comments, F&& f) {
  constexpr std::string_view between = " \t,;|:\r";
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const auto at = std::min(line.find_first_not_of(between), line.size());
    if (at == line.size() || (comments && is_comment(line))) continue;
    const auto end = std::min(line.find_first_of(between, at), line.size());
    const auto second = std::min(line.find_first_not_of(between, end), line.size());
    f(line.substr(at, end - at), line.substr(second));
  }
}

}  // namespace

std::vector<double> read_personalization(Comm comm, const distributed_graph& graph,
                                         const std::vector<std::string>& files, bool comments) {
  std::vector<double> t(graph.own());
  // Every worker reads all lines and keeps those of its own vertices; unknown ids are detected together.
  std::vector<std::int64_t> found;
  double sum = 0;
  visit_whole_text(comm, files, [&](std::string_view text, const text_failure& fail) {
    each_personal_line(text, comments, [&](std::string_view id, std::string_view rest) {
      double weight = 1;
      if (!rest.empty()) {
        const auto field = rest.substr(0, rest.find_first_of(" \t,;|:\r"));
        if (!parse_number(field, weight) || weight < 0)
          fail(field.data(), "found " + quoted_text(field) + ", want a weight of at least 0");
      }
      std::optional<std::size_t> local;
      if (graph.ids.numeric()) {
        std::uint64_t n = 0;
        if (parse_id(id, n)) local = graph.ids.find(n);
      } else {
        local = graph.ids.find(id);
      }
      if (local) t[*local] += weight;
      sum += weight;
      found.push_back(local ? 1 : 0);
    });
  });
  if (!found.empty()) comm.allreduce(found);
  if (std::ranges::count(found, 0) > 0) {
    std::size_t k = 0;
    visit_whole_text(comm, files, [&](std::string_view text, const text_failure& fail) {
      each_personal_line(text, comments, [&](std::string_view id, std::string_view) {
        if (found[k++] == 0) fail(id.data(), "found " + quoted_text(id) + ", want the id of a vertex of the graph");
      });
    });
  }
  if (!(sum > 0)) throw data_error(files.front() + ": found no weight above 0, want at least one");
  for (auto& x : t) x /= sum;
  return t;
}

void pagerank::solve() {
  auto load = settings_.load_options();
  load.entries.transpose = !settings_.handle.given();
  load.weighted =
      settings_.weights ? *settings_.weights : entries_have_values(get_comm(), settings_.input, load.entries);
  load.entries.non_negative = true;
  load.entries.duplicates = settings_.duplicates;
  if (!load.weighted) {
    load.entries.values = entry_options::value_rule::ignore;
    // Each parallel edge counts, like a single edge with the sum of their weights.
    if (settings_.duplicates == duplicate_rule::sum) load.entries.duplicates = duplicate_rule::keep;
  }
  const auto graph = load_graph_input(get_comm(), settings_, load);
  auto options = settings_.options;
  if (!settings_.personalization.empty())
    options.personalization =
        read_personalization(get_comm(), graph, settings_.personalization, settings_.entries.comments);
  run_log log(*this, static_cast<int>(options.rounds), "change");
  options.job = this;
  options.watch = [&](std::uint64_t round, double step) { log.round(static_cast<int>(round), step); };
  const auto found = settings_.handle.given() ? page_ranks_in_servers(*this, graph, options, settings_.handle)
                                              : page_ranks(get_comm(), graph, options);

  // The vertex with the greatest score, ties by number.
  std::vector<double> best{0};
  for (const auto x : found.scores) best[0] = std::max(best[0], x);
  get_comm().allreduce(best, reduce_op::max);
  const auto at = std::ranges::find(found.scores, best[0]);
  auto top = std::numeric_limits<std::int64_t>::max();
  if (at != found.scores.end())
    top = static_cast<std::int64_t>(graph.number(static_cast<std::size_t>(at - found.scores.begin())));
  get_comm().allreduce(top, reduce_op::min);
  std::vector<std::uint64_t> numbers;
  if (graph.vertices_total() > 0) numbers.push_back(static_cast<std::uint64_t>(top));
  const auto top_id = ids_of_numbers(get_comm(), graph, numbers);
  if (found.selected.empty()) {
    write_vertex_values<double>(*this, settings_, graph.ids, "pagerank", "pagerank", found.scores);
  } else {
    auto ids = id_list::empty(graph.ids.numeric());
    std::vector<double> scores;
    for (std::size_t v = 0; v < found.selected.size(); ++v) {
      if (found.selected[v] == 0) continue;
      if (ids.numeric()) ids.push_back(graph.ids.number(v));
      else ids.push_back(graph.ids.name(v));
      scores.push_back(found.scores[v]);
    }
    write_vertex_values<double>(*this, settings_, ids, "pagerank", "pagerank", scores);
  }
  log.result("vertices", graph.vertices_total());
  log.result("edges", graph.edges_total);
  log.result("rounds", found.rounds);
  log.result("change", found.step);
  log.result("sum", found.sum);
  if (options.tolerance > 0 && found.step > options.tolerance && found.rounds >= options.rounds)
    warn_not_converged(get_comm(), static_cast<int>(found.rounds), "the last step", found.step, options.tolerance,
                       "raise rounds or tolerance");
  if (top_id.size() > 0) log.result("top", top_id.text(0));
  log.result("top_score", best[0]);
  log.result("output", get_output());
}

}  // namespace paracel::alg
