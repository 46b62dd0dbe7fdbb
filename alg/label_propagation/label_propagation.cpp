// SPDX-License-Identifier: BSD-3-Clause
#include "label_propagation.hpp"

#include <algorithm>

#include "alg/common/output/run_log.hpp"
#include "alg/common/output/warning.hpp"

namespace paracel::alg {

std::uint64_t label_counts::take() {
  for (const auto at : used_) slots_[at].count = 0;
  used_.clear();
  most_ = 0;
  mask_ = (1U << least_bits) - 1;
  shift_ = 64 - least_bits;
  return best_;
}

void label_counts::grow() {
  std::vector<slot> kept;
  for (const auto at : used_) {
    kept.push_back(slots_[at]);
    slots_[at].count = 0;
  }
  used_.clear();
  mask_ = 2 * mask_ + 1;
  --shift_;
  if (slots_.size() <= mask_) slots_.resize(mask_ + 1);
  for (const auto& k : kept) {
    auto& to = slot_of(k.label);
    to = k;
    used_.push_back(static_cast<std::uint32_t>(&to - slots_.data()));
  }
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

namespace {

/// The most frequent label of the targets, of which there must be one. Runs of equal labels count as one step.
template <class F>
std::uint64_t most_frequent(std::span<const std::uint32_t> targets, F&& label_of, label_counts& counts) {
  auto label = label_of(targets.front());
  std::uint32_t run = 0;
  bool alike = true;
  for (const auto t : targets) {
    const auto next = label_of(t);
    if (next != label) {
      counts.add(label, run);
      alike = false;
      label = next;
      run = 0;
    }
    ++run;
  }
  if (alike) return label;
  counts.add(label, run);
  return counts.take();
}

}  // namespace

label_propagation_result propagate_labels(Comm comm, const distributed_graph& graph, std::uint64_t rounds,
                                          const std::function<void(std::uint64_t, std::uint64_t)>& watch, paralg* job) {
  const auto own = graph.own();
  halo borders(comm, graph);
  label_propagation_result result;
  auto& labels = result.labels;
  labels.resize(own);
  for (std::size_t v = 0; v < own; ++v) labels[v] = graph.number(v);
  std::vector<std::uint64_t> ghosts(graph.ghosts), pulled(ghosts.size()), next(own), before;
  // By own vertex and ghost: whether its label changed in the last round. A vertex around which none did keeps its own.
  // Not kept in checkpoints: after one all count as changed.
  std::vector<std::uint8_t> moved(own + ghosts.size(), 1);
  label_counts counts;
  auto ended = static_cast<int>(result.ended);
  resumable_loop loop(job);
  keep_size(loop, graph).keep("labels", labels).keep("before", before).keep("ghosts", ghosts).keep("ended", ended);
  while (loop.next(static_cast<std::int64_t>(rounds))) {
    std::vector<std::int64_t> changed{0, 0};  // since the previous round, and since the one before it
    // Before the first round all labels are distinct.
    const bool distinct = loop.iteration() == 0;
    for (std::size_t v = 0; v < own; ++v) {
      const auto targets = graph.out.of(v);
      next[v] = labels[v];
      const auto label_of = [&](std::uint32_t t) { return t < own ? labels[t] : ghosts[t - own]; };
      if (std::ranges::any_of(targets, [&](std::uint32_t t) { return moved[t] != 0; })) {
        next[v] = distinct ? label_of(*std::ranges::min_element(targets, {}, label_of))
                           : most_frequent(targets, label_of, counts);
      }
      changed[0] += next[v] != labels[v] ? 1 : 0;
      changed[1] += before.empty() || next[v] != before[v] ? 1 : 0;
    }
    for (std::size_t v = 0; v < own; ++v) moved[v] = next[v] != labels[v] ? 1 : 0;
    before = labels;
    labels.swap(next);
    comm.allreduce(changed);
    borders.pull<std::uint64_t>(labels, pulled);
    for (std::size_t g = 0; g < pulled.size(); ++g) moved[own + g] = pulled[g] != ghosts[g] ? 1 : 0;
    ghosts.swap(pulled);
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
  auto load = settings_.load_topology();
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
