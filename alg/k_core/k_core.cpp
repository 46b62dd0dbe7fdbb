// SPDX-License-Identifier: BSD-3-Clause
#include "k_core.hpp"

#include <algorithm>
#include <utility>

#include "alg/common/run_log.hpp"

namespace paracel::alg {

core_bounds::core_bounds(const distributed_graph& graph)
    : graph_(graph),
      begin_(graph.ghosts.size() + 1),
      bound_(graph.own() + graph.ghosts.size()),
      support_(graph.own()),
      queued_(graph.own()) {
  const auto own = graph.own();
  for (std::size_t v = 0; v < own; ++v) bound_[v] = static_cast<std::uint32_t>(graph.out.degree(v));
  for (const auto t : graph.out.target)
    if (t >= own) ++begin_[t - own + 1];
  for (std::size_t g = 0; g + 1 < begin_.size(); ++g) begin_[g + 1] += begin_[g];
  neighbour_.resize(begin_.back());
  auto next = begin_;
  for (std::size_t v = 0; v < own; ++v)
    for (const auto t : graph.out.of(v))
      if (t >= own) neighbour_[next[t - own]++] = static_cast<std::uint32_t>(v);
}

bool core_bounds::lower(std::span<const std::uint32_t> ghost_bounds) {
  const auto own = graph_.own();
  const auto ghosts = std::span(bound_).subspan(own);
  if (!peeled_) {
    std::ranges::copy(ghost_bounds, ghosts.begin());
    const std::vector<std::uint32_t> before(bound_.begin(), bound_.begin() + static_cast<std::ptrdiff_t>(own));
    peel();
    peeled_ = true;
    return !std::equal(before.begin(), before.end(), bound_.begin());
  }
  for (std::size_t g = 0; g < ghosts.size(); ++g) {
    const auto before = std::exchange(ghosts[g], ghost_bounds[g]);
    if (before == ghosts[g]) continue;
    for (const auto v : beside(g)) fall(v, before, ghosts[g]);
  }
  const bool falls = !queue_.empty();
  settle();
  return falls;
}

/// Updates the support of v after the bound of a neighbour fell.
void core_bounds::fall(std::uint32_t v, std::uint32_t before, std::uint32_t now) {
  if (bound_[v] > before || bound_[v] <= now) return;
  if (--support_[v] >= bound_[v] || queued_[v]) return;
  queued_[v] = true;
  queue_.push_back(v);
}

void core_bounds::settle() {
  const auto own = graph_.own();
  std::vector<std::uint32_t> with;  // number of neighbours by bound; larger bounds than that of v count as equal
  for (std::size_t i = 0; i < queue_.size(); ++i) {
    const auto v = queue_[i];
    queued_[v] = false;
    const auto before = bound_[v];
    with.assign(std::size_t{before} + 1, 0);
    for (const auto u : graph_.out.of(v)) ++with[std::min(bound_[u], before)];
    auto k = before;
    auto support = with[k];
    while (support < k) support += with[--k];
    bound_[v] = k;
    support_[v] = support;
    if (k == before) continue;
    for (const auto u : graph_.out.of(v))
      if (u < own) fall(u, before, k);
  }
  queue_.clear();
}

void core_bounds::peel() {
  const auto own = graph_.own();
  const auto n = bound_.size();
  auto& level = bound_;
  for (std::size_t v = 0; v < own; ++v) level[v] = static_cast<std::uint32_t>(graph_.out.degree(v));
  const auto most = n == 0 ? 0 : *std::max_element(level.begin(), level.end());
  // Vertices by level; `start[k]` is where level k begins. It advances as vertices drop to lower levels.
  std::vector<std::uint32_t> start(std::size_t{most} + 2), order(n), place(n);
  for (const auto k : level) ++start[k + 1];
  for (std::size_t k = 0; k + 1 < start.size(); ++k) start[k + 1] += start[k];
  {
    auto next = start;
    for (std::size_t v = 0; v < n; ++v) {
      place[v] = next[level[v]]++;
      order[place[v]] = static_cast<std::uint32_t>(v);
    }
  }
  const auto lower = [&](std::uint32_t u, std::uint32_t k) {
    if (u >= own || level[u] <= k) return;  // a ghost's bound is changed by its owner only
    const auto first = start[level[u]]++;
    const auto other = order[first];
    std::swap(order[first], order[place[u]]);
    std::swap(place[other], place[u]);
    --level[u];
  };
  for (std::size_t i = 0; i < n; ++i) {
    const auto v = order[i];
    const auto k = level[v];
    // Removed vertices are before the start of every level.
    start[k] = std::max(start[k], static_cast<std::uint32_t>(i + 1));
    if (v < own) {
      for (const auto u : graph_.out.of(v)) lower(u, k);
    } else {
      for (const auto u : beside(v - own)) lower(u, k);
    }
  }
  for (std::size_t v = 0; v < own; ++v)
    support_[v] = static_cast<std::uint32_t>(
        std::ranges::count_if(graph_.out.of(v), [&](auto u) { return level[u] >= level[v]; }));
}

k_core_result core_numbers(Comm comm, const distributed_graph& graph) {
  k_core_result result;
  halo borders(comm, graph);
  core_bounds part(graph);
  std::vector<std::uint32_t> ghosts(graph.ghosts.size());
  while (true) {
    borders.pull<std::uint32_t>(part.own(), ghosts);
    ++result.rounds;
    std::int64_t changed = part.lower(ghosts) ? 1 : 0;
    comm.allreduce(changed);
    if (changed == 0 || comm.get_size() == 1) break;
  }
  result.cores.assign(part.own().begin(), part.own().end());
  std::vector<std::int64_t> greatest{0};
  for (const auto k : result.cores) greatest[0] = std::max<std::int64_t>(greatest[0], k);
  comm.allreduce(greatest, reduce_op::max);
  result.greatest = static_cast<std::uint32_t>(greatest[0]);
  auto in = static_cast<std::int64_t>(std::ranges::count(result.cores, result.greatest));
  comm.allreduce(in);
  result.in_greatest = static_cast<std::uint64_t>(in);
  return result;
}

config_schema k_core_schema() {
  config_schema s("k_core", "core number of every vertex");
  add_graph_keys(s);
  return s;
}

void k_core_numbers::solve() {
  auto load = settings_.load_options();
  load.entries.values = entry_options::value_rule::ignore;
  load.self_loops = false;
  load.undirected = true;
  const auto graph = load_graph(get_comm(), settings_.input, load);
  run_log log(*this, 0);
  const auto found = core_numbers(get_comm(), graph);
  std::vector<std::int64_t> values(found.cores.begin(), found.cores.end());
  write_vertex_values<std::int64_t>(*this, settings_, graph, "k_core", "core", values);
  log.result("vertices", graph.vertices_total());
  log.result("edges", graph.edges_total);
  log.result("rounds", found.rounds);
  log.result("degeneracy", std::uint64_t{found.greatest});
  log.result("vertices_of_that_core", found.in_greatest);
  log.result("output", get_output());
}

}  // namespace paracel::alg
