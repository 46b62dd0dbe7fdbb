// SPDX-License-Identifier: BSD-3-Clause
#include "scc.hpp"

#include <algorithm>

#include <paracel/exchange.hpp>
#include <paracel/free_memory.hpp>
#include <paracel/pregel.hpp>

#include "alg/common/graph/contracted_graph.hpp"
#include "alg/common/output/run_log.hpp"

namespace paracel::alg {

namespace {

// Trimming continues while a round finishes at least this fraction of the remaining parts; a round reads the local
// edges twice, about the cost of processing them later in the core.
constexpr double worthwhile = 0.02;

/// The parts of a worker: components of its own subgraph, and whether they may belong to a component that spans several
/// workers.
class local_parts {
 public:
  local_parts(const distributed_graph& graph, const halo& borders, std::size_t workers)
      : graph_(graph), part_(graph.own()) {
    parts_ = strong_components(graph.out.begin, graph.out.target, part_);
    begin_.assign(parts_ + 1, 0);
    for (const auto p : part_) ++begin_[p + 1];
    for (std::size_t p = 0; p < parts_; ++p) begin_[p + 1] += begin_[p];
    member_.resize(part_.size());
    auto next = begin_;
    for (std::size_t v = 0; v < part_.size(); ++v) member_[next[part_[v]]++] = static_cast<std::uint32_t>(v);
    open_.assign(parts_, 1);
    entered_.assign(part_.size(), 0);
    for (std::size_t w = 0; w < workers; ++w)
      for (const auto v : borders.shared_with(w)) entered_[v] = 1;
    ghost_open_.assign(graph.ghosts.size(), 1);
  }

  [[nodiscard]] std::uint32_t parts() const { return parts_; }
  [[nodiscard]] const std::vector<std::uint32_t>& part() const { return part_; }
  [[nodiscard]] bool open(std::uint32_t p) const { return open_[p] != 0; }
  [[nodiscard]] bool ghost_open(std::size_t g) const { return ghost_open_[g] != 0; }
  [[nodiscard]] std::span<const std::uint32_t> members(std::size_t p) const {
    return std::span(member_).subspan(begin_[p], begin_[p + 1] - begin_[p]);
  }

  /// Finishes parts that are on no path from another worker to another worker. Returns the number of open parts.
  std::uint64_t trim() {
    const auto own = part_.size();
    // Edges lead to parts with smaller numbers, so one ascending pass finds what reaches outside, one descending pass
    // what is reached from outside.
    std::vector<std::uint8_t> leaves(parts_), comes(parts_);
    for (std::uint32_t p = 0; p < parts_; ++p) {
      if (open_[p] == 0) continue;
      for (const auto v : members(p)) {
        for (const auto t : graph_.out.of(v)) {
          if (t < own ? leaves[part_[t]] != 0 : ghost_open_[t - own] != 0) {
            leaves[p] = 1;
            break;
          }
        }
        if (leaves[p] != 0) break;
      }
    }
    std::uint64_t left = 0;
    for (std::uint32_t p = parts_; p-- > 0;) {
      open_[p] &= leaves[p];
      if (open_[p] == 0) continue;
      if (comes[p] == 0) comes[p] = std::ranges::any_of(members(p), [&](auto v) { return entered_[v] != 0; }) ? 1 : 0;
      open_[p] &= comes[p];
      if (open_[p] == 0) continue;
      ++left;
      for (const auto v : members(p))
        for (const auto t : graph_.out.of(v))
          if (t < own) comes[part_[t]] = 1;
    }
    return left;
  }

  void keep_in(resumable_loop& loop) {
    loop.keep("open", open_).keep("entered", entered_).keep("ghost_open", ghost_open_);
  }

  /// Exchanges with the other workers which vertices are finished. A collective.
  void exchange(halo& borders) {
    const auto own = part_.size();
    std::vector<std::uint8_t> mine(own), reached(ghost_open_.size());
    for (std::size_t v = 0; v < own; ++v) {
      mine[v] = open_[part_[v]];
      if (mine[v] == 0) continue;
      for (const auto t : graph_.out.of(v))
        if (t >= own) reached[t - own] = 1;
    }
    borders.pull<std::uint8_t>(mine, ghost_open_);
    std::fill(entered_.begin(), entered_.end(), std::uint8_t{0});
    borders.push<std::uint8_t>(reached, entered_, [](std::uint8_t& into, std::uint8_t more) { into |= more; });
  }

 private:
  const distributed_graph& graph_;
  std::vector<std::uint32_t> part_;
  std::uint32_t parts_ = 0;
  std::vector<std::uint64_t> begin_;  // members of part p: [begin_[p], begin_[p + 1]) of member_
  std::vector<std::uint32_t> member_;
  std::vector<std::uint8_t> open_;     // by part
  std::vector<std::uint8_t> entered_;  // by own vertex: an open vertex of another worker has an edge to it
  std::vector<std::uint8_t> ghost_open_;
};

// ---- the core, on rank 0

/// least[g]: the least vertex number of this worker's group g; becomes that of its component.
void solve_on_first(Comm& comm, const distributed_graph& core, std::vector<std::uint64_t>& least) {
  const auto size = comm.get_size();
  std::vector<byte_vector> blocks(size);
  for (auto& b : blocks) put_bytes(b, std::uint64_t{0});
  auto& mine = blocks[0];
  put_bytes(mine, least.data(), least.size());
  for (std::size_t g = 0; g < core.own(); ++g) put_bytes(mine, static_cast<std::uint32_t>(core.out.degree(g)));
  for (const auto t : core.out.target) put_bytes(mine, static_cast<std::uint32_t>(core.number(t)));
  const auto got = exchange_blocks(comm, blocks);

  std::vector<byte_vector> answers(size);
  for (auto& b : answers) put_bytes(b, std::uint64_t{0});
  if (comm.get_rank() == 0) {
    std::vector<std::uint64_t> begin{0}, all_least;
    std::vector<std::uint32_t> target, degrees;
    for (std::size_t w = 0; w < size; ++w) {
      byte_reader in(got[w], exchange_room);
      const auto groups = core.first[w + 1] - core.first[w];
      std::vector<std::uint64_t> part_least;
      in.get(part_least, groups);
      all_least.insert(all_least.end(), part_least.begin(), part_least.end());
      in.get(degrees, groups);
      for (const auto d : degrees) begin.push_back(begin.back() + d);
      std::vector<std::uint32_t> part_target;
      in.get(part_target, in.size() / sizeof(std::uint32_t));
      target.insert(target.end(), part_target.begin(), part_target.end());
    }
    std::vector<std::uint32_t> component(all_least.size());
    const auto components = strong_components(begin, target, component);
    std::vector<std::uint64_t> label(components, ~std::uint64_t{0});
    for (std::size_t g = 0; g < component.size(); ++g)
      label[component[g]] = std::min(label[component[g]], all_least[g]);
    for (std::size_t w = 0; w < size; ++w)
      for (auto g = core.first[w]; g < core.first[w + 1]; ++g) put_bytes(answers[w], label[component[g]]);
  }
  const auto told = exchange_blocks(comm, answers);
  byte_reader in(told[0], exchange_room);
  in.get(least, core.own());
}

// ---- the core, by all workers. Each program checkpoints what it changes.

struct core_state {
  std::vector<std::uint8_t> settled;             // whether the component is known
  std::vector<std::uint8_t> told;                // whether the neighbours have been told
  std::vector<std::uint32_t> in_left, out_left;  // unsettled neighbours
  std::vector<std::uint64_t> colour;
  std::vector<std::uint64_t> root;  // of settled vertices: the number of the group that represents the component
};

struct nothing_kept {};

struct gone {
  std::uint32_t in = 0, out = 0;
};

/// Repeatedly settles vertices without incoming or without outgoing edges.
struct trim_program {
  using value_type = nothing_kept;
  using message_type = gone;
  core_state* core;
  void keep(resumable_loop& loop) const {
    loop.keep("settled", core->settled).keep("told", core->told).keep("root", core->root);
    loop.keep("in_left", core->in_left).keep("out_left", core->out_left);
  }
  static void combine(gone& into, const gone& more) {
    into.in += more.in;
    into.out += more.out;
  }
  template <class Vertex>
  void compute(Vertex& v, std::span<const gone> messages) {
    const auto i = v.local();
    for (const auto& m : messages) {
      core->in_left[i] -= m.in;
      core->out_left[i] -= m.out;
    }
    if (core->settled[i] == 0 && (core->in_left[i] == 0 || core->out_left[i] == 0)) {
      core->settled[i] = 1;
      core->root[i] = v.number();
    }
    if (core->settled[i] != 0 && core->told[i] == 0) {
      core->told[i] = 1;
      v.send_to_targets({1, 0});
      v.send_to_sources({0, 1});
    }
    v.vote_to_halt();
  }
};

struct colour_program {
  using value_type = nothing_kept;
  using message_type = std::uint64_t;
  core_state* core;
  void keep(resumable_loop& loop) const { loop.keep("colour", core->colour); }
  static void combine(std::uint64_t& into, std::uint64_t more) { into = std::max(into, more); }
  template <class Vertex>
  void compute(Vertex& v, std::span<const std::uint64_t> messages) {
    const auto i = v.local();
    v.vote_to_halt();
    if (core->settled[i] != 0) return;
    bool news = v.superstep() == 0;
    if (news) core->colour[i] = v.number();
    for (const auto m : messages) {
      if (m <= core->colour[i]) continue;
      core->colour[i] = m;
      news = true;
    }
    if (news) v.send_to_targets(core->colour[i]);
  }
};

/// Propagates backwards within a colour from each vertex that kept its own number as colour. A message is a colour;
/// those that reach a vertex are at least its own, so their minimum tells whether one is equal.
struct backward_program {
  using value_type = nothing_kept;
  using message_type = std::uint64_t;
  core_state* core;
  void keep(resumable_loop& loop) const { loop.keep("settled", core->settled).keep("root", core->root); }
  static void combine(std::uint64_t& into, std::uint64_t more) { into = std::min(into, more); }
  template <class Vertex>
  void compute(Vertex& v, std::span<const std::uint64_t> messages) {
    const auto i = v.local();
    v.vote_to_halt();
    if (core->settled[i] != 0) return;
    const bool begins = v.superstep() == 0 && core->colour[i] == v.number();
    const bool reached = !messages.empty() && messages[0] == core->colour[i];
    if (!begins && !reached) return;
    core->settled[i] = 1;
    core->root[i] = core->colour[i];
    v.send_to_sources(core->colour[i]);
  }
};

/// The group that represents a component collects the least number of all, and sends it to all.
struct least_program {
  using value_type = std::uint64_t;
  struct message_type {
    std::uint64_t from = 0, least = 0;
  };
  core_state* core;
  template <class Vertex>
  void compute(Vertex& v, std::span<const message_type> messages) {
    v.vote_to_halt();
    if (v.superstep() == 0) return v.send_to_number(core->root[v.local()], {v.number(), v.value()});
    for (const auto& m : messages) v.value() = std::min(v.value(), m.least);
    if (v.superstep() == 1)
      for (const auto& m : messages) v.send_to_number(m.from, {v.number(), v.value()});
  }
};

void solve_by_colours(Comm& comm, const distributed_graph& core, std::vector<std::uint64_t>& least, paralg* job) {
  const auto n = core.own();
  core_state state;
  state.settled.assign(n, 0);
  state.told.assign(n, 0);
  state.colour.assign(n, 0);
  state.root.assign(n, 0);
  state.in_left.resize(n);
  state.out_left.resize(n);
  for (std::size_t g = 0; g < n; ++g) {
    state.in_left[g] = static_cast<std::uint32_t>(core.in.degree(g));
    state.out_left[g] = static_cast<std::uint32_t>(core.out.degree(g));
  }
  const auto borders = std::make_shared<const halo>(comm, core);
  const auto trim = [&] {
    pregel_run<trim_program>(comm, core, {&state}, borders).run({.job = job});
    auto left = static_cast<std::int64_t>(std::ranges::count(state.settled, std::uint8_t{0}));
    comm.allreduce(left);
    return left;
  };
  resumable_loop colours(job);
  if (trim() == 0) colours.stop();
  // The state is kept here as well, because what the inner loops keep is discarded after each iteration. Inner loops
  // that had ended restore the state as it was then; the one that continues restores it last.
  trim_program{&state}.keep(colours);
  while (colours.next()) {
    pregel_run<colour_program>(comm, core, {&state}, borders).run({.job = job});
    pregel_run<backward_program>(comm, core, {&state}, borders).run({.job = job});
    if (trim() == 0) colours.stop();
  }
  pregel_run<least_program> last(comm, core, {&state}, borders);
  last.values() = least;
  last.run({.job = job});
  least = last.values();
}

std::int64_t sum_of(Comm& comm, std::uint64_t n) {
  auto sum = static_cast<std::int64_t>(n);
  comm.allreduce(sum);
  return sum;
}

}  // namespace

std::uint32_t strong_components(std::span<const std::uint64_t> begin, std::span<const std::uint32_t> target,
                                std::span<std::uint32_t> component) {
  // component[v] of an unfinished vertex is its discovery time or the earliest one it reaches, counted from 1 (0: not
  // yet discovered); of a finished vertex a number counted down from n. The two ranges cannot meet, because finishing a
  // vertex frees its discovery time.
  const auto n = static_cast<std::uint32_t>(begin.size() - 1);
  std::ranges::fill(component, 0U);
  struct frame {
    std::uint64_t next;
    std::uint32_t vertex;
    bool root;
  };
  std::vector<frame> path;
  std::vector<std::uint32_t> waiting;
  std::uint32_t count = 1, down = n;
  for (std::uint32_t start = 0; start < n; ++start) {
    if (component[start] != 0) continue;
    component[start] = count++;
    path.push_back({begin[start], start, true});
    while (!path.empty()) {
      auto& f = path.back();
      const auto v = f.vertex;
      const auto end = begin[v + 1];
      auto low = component[v];
      std::uint32_t deeper = n;
      while (f.next < end) {
        const auto t = target[f.next];
        if (t < n) {
          if (component[t] == 0) {
            deeper = t;  // visited again after returning from it
            break;
          }
          if (component[t] < low) {
            low = component[t];
            f.root = false;
          }
        }
        ++f.next;
      }
      component[v] = low;
      if (deeper != n) {
        component[deeper] = count++;
        path.push_back({begin[deeper], deeper, true});
        continue;
      }
      if (f.root) {
        --count;
        while (!waiting.empty() && component[waiting.back()] >= low) {
          component[waiting.back()] = down;
          waiting.pop_back();
          --count;
        }
        component[v] = down--;
      } else {
        waiting.push_back(v);
      }
      path.pop_back();
    }
  }
  for (auto& c : component) c = n - c;
  return n - down;
}

scc_result strong_components(Comm comm, const distributed_graph& graph, std::uint64_t gather_limit, paralg* job) {
  const auto own = graph.own();
  const auto size = comm.get_size();
  const auto borders = std::make_unique<halo>(comm, graph);
  local_parts parts(graph, *borders, size);

  scc_result result;
  std::vector<std::uint64_t> least(parts.parts());
  for (std::uint32_t p = 0; p < parts.parts(); ++p)
    least[p] = graph.number(parts.members(p).front());  // members are
                                                        // ascending

  if (size > 1) {
    auto left = sum_of(comm, parts.trim());
    resumable_loop trimming(job);
    parts.keep_in(keep_size(trimming, graph).keep("left", left));
    if (left == 0) trimming.stop();
    while (trimming.next()) {
      parts.exchange(*borders);
      const auto before = left;
      left = sum_of(comm, parts.trim());
      const auto finished = static_cast<double>(before - left);
      if (left == 0 || finished <= worthwhile * static_cast<double>(before)) trimming.stop();
    }
    result.core_vertices = static_cast<std::uint64_t>(left);
    if (left > 0) {
      std::vector<std::uint32_t> group(parts.parts(), ~std::uint32_t{0});
      std::vector<std::uint64_t> core_least;
      for (std::uint32_t p = 0; p < parts.parts(); ++p) {
        if (!parts.open(p)) continue;
        group[p] = static_cast<std::uint32_t>(core_least.size());
        core_least.push_back(least[p]);
      }
      const auto first = number_groups(comm, core_least.size());
      std::vector<std::uint32_t> mine(own), theirs(graph.ghosts.size());
      for (std::size_t v = 0; v < own; ++v) mine[v] = group[parts.part()[v]];
      borders->pull<std::uint32_t>(mine, theirs);
      std::vector<std::uint64_t> ghost_group(graph.ghosts.size());
      std::size_t w = 0;
      for (std::size_t g = 0; g < ghost_group.size(); ++g) {
        while (borders->ghost_first(w + 1) <= g) ++w;
        ghost_group[g] = theirs[g] == ~std::uint32_t{0} ? ~std::uint64_t{0} : first[w] + theirs[g];
      }
      // Only the first of parallel edges from a part is kept, so the list has few more edges than the core.
      std::vector<contracted_edge> links;
      std::vector<std::uint32_t> seen_part(core_least.size(), ~std::uint32_t{0}), seen_ghost(ghost_group.size(), ~0U);
      for (std::uint32_t p = 0; p < parts.parts(); ++p) {
        if (!parts.open(p)) continue;
        const auto from = group[p];
        for (const auto v : parts.members(p)) {
          for (const auto t : graph.out.of(v)) {
            if (t < own) {
              const auto to = mine[t];
              if (to == ~std::uint32_t{0} || to == from || seen_part[to] == from) continue;
              seen_part[to] = from;
              links.push_back({from, first[graph.rank] + to});
            } else if (ghost_group[t - own] != ~std::uint64_t{0} && seen_ghost[t - own] != from) {
              seen_ghost[t - own] = from;
              links.push_back({from, ghost_group[t - own]});
            }
          }
        }
      }
      const auto links_total = static_cast<std::uint64_t>(sum_of(comm, links.size()));
      result.gathered = links_total <= gather_limit;
      const auto core =
          contracted_graph(comm, first, links, result.gathered ? edge_rule::out_only : edge_rule::both_ways);
      free_memory(links);
      result.core_edges = core.edges_total;
      if (result.gathered) {
        solve_on_first(comm, core, core_least);
      } else {
        solve_by_colours(comm, core, core_least, job);
      }
      for (std::uint32_t p = 0; p < parts.parts(); ++p)
        if (parts.open(p)) least[p] = core_least[group[p]];
    }
  }
  result.labels.resize(own);
  for (std::size_t v = 0; v < own; ++v) result.labels[v] = least[parts.part()[v]];
  return result;
}

void strongly_connected_components::solve() {
  const auto graph = load_graph_input(get_comm(), settings_, settings_.load_topology());
  (void)first_iteration();  // a run may have no loop
  run_log log(*this, 0);
  const auto found = strong_components(get_comm(), graph, settings_.gather_limit, this);
  const auto summary = summary_of_labels(get_comm(), graph, found.labels);
  write_vertex_labels(*this, settings_, graph, "scc", "component", found.labels);
  log.result("vertices", graph.vertices_total());
  log.result("edges", graph.edges_total);
  log.result("core_vertices", found.core_vertices);
  log.result("core_edges", found.core_edges);
  log.result("components", summary.groups);
  log.result("largest", summary.largest);
  log.result("output", get_output());
}

}  // namespace paracel::alg
