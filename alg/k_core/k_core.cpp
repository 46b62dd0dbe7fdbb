// SPDX-License-Identifier: BSD-3-Clause
#include "k_core.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include <paracel/exchange.hpp>
#include <paracel/free_memory.hpp>

#include "alg/common/output/run_log.hpp"

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

std::vector<std::uint32_t> peeled_cores(std::span<const std::uint64_t> begin, std::span<const std::uint32_t> target) {
  const auto n = begin.size() - 1;
  std::vector<std::uint32_t> degree(n), left(n), stack;
  for (std::size_t v = 0; v < n; ++v) {
    degree[v] = static_cast<std::uint32_t>(begin[v + 1] - begin[v]);
    left[v] = static_cast<std::uint32_t>(v);
  }
  // The degree of a removed vertex stays its core number, which is at most k.
  for (std::uint32_t k = 0; !left.empty();) {
    auto least = std::numeric_limits<std::uint32_t>::max();
    std::size_t kept = 0;
    for (const auto v : left) {
      const auto d = degree[v];
      if (d < k) continue;  // removed in an earlier pass
      if (d == k) {
        stack.push_back(v);
        continue;
      }
      least = std::min(least, d);
      left[kept++] = v;
    }
    left.resize(kept);
    if (stack.empty()) {
      k = least;
      continue;
    }
    while (!stack.empty()) {
      const auto v = stack.back();
      stack.pop_back();
      for (auto e = begin[v]; e < begin[v + 1]; ++e) {
        auto& d = degree[target[e]];
        if (d > k && --d == k) stack.push_back(target[e]);
      }
    }
    ++k;
  }
  return degree;
}

namespace {

/// Builds both directions of edges that arrive one by one, given the degrees of the vertices. The second direction is
/// buffered in buckets of adjacent vertices: written immediately, each to a random place, it took four times as long.
class neighbour_lists {
 public:
  explicit neighbour_lists(std::span<const std::uint64_t> degrees) : begin_(degrees.size() + 2) {
    // begin_[v + 1] is where the next neighbour of v goes, and at the end where its list ends.
    for (std::size_t v = 0; v < degrees.size(); ++v) begin_[v + 2] = begin_[v + 1] + degrees[v];
    target_.resize(begin_.back());
    while ((degrees.size() >> shift_) >= most_buckets) ++shift_;
    const auto buckets = (degrees.size() >> shift_) + 1;
    const auto wanted = begin_.back() / 2 / buckets + 1;
    capacity_ = std::min<std::size_t>(wanted, most_waiting);
    waiting_.resize(buckets * capacity_);
    filled_.resize(buckets);
  }
  void add(std::uint32_t u, std::uint32_t v) {
    target_[begin_[u + 1]++] = v;
    const auto b = v >> shift_;
    waiting_[b * capacity_ + filled_[b]] = {v, u};
    if (++filled_[b] == capacity_) empty(b);
  }
  /// Call it after the last `add`.
  void finish() {
    for (std::size_t b = 0; b < filled_.size(); ++b) empty(b);
    free_memory(waiting_);
  }
  [[nodiscard]] std::span<const std::uint64_t> begin() const { return std::span(begin_).first(begin_.size() - 1); }
  [[nodiscard]] std::span<const std::uint32_t> target() const { return target_; }

 private:
  static constexpr std::size_t most_buckets = 512;
  static constexpr std::size_t most_waiting = 8192;  // in a bucket; 32 MB in all
  struct edge {
    std::uint32_t from, to;
  };
  void empty(std::size_t b) {
    for (const auto& e : std::span(waiting_).subspan(b * capacity_, filled_[b])) target_[begin_[e.from + 1]++] = e.to;
    filled_[b] = 0;
  }

  std::vector<std::uint64_t> begin_;
  std::vector<std::uint32_t> target_;
  unsigned shift_ = 0;
  std::size_t capacity_ = 0;
  std::vector<edge> waiting_;
  std::vector<std::size_t> filled_;  // of each bucket
};

// What a worker sends to rank 0 first: | room | edges stored at each own vertex | edges stored elsewhere on this worker
// that lead to it | number of each ghost, and edges that lead to it | in words of 4 bytes.
byte_vector counts_of(const distributed_graph& graph) {
  const auto own = graph.own();
  std::vector<std::uint32_t> from(own), to(own + graph.ghosts.size());
  for (std::size_t v = 0; v < own; ++v) from[v] = static_cast<std::uint32_t>(graph.out.degree(v));
  for (const auto t : graph.out.target) ++to[t];
  byte_vector block(exchange_room);
  block.reserve(exchange_room + sizeof(std::uint32_t) * 2 * to.size());
  put_bytes(block, from.data(), own);
  put_bytes(block, to.data(), own);
  for (std::size_t g = 0; g < graph.ghosts.size(); ++g) {
    put_bytes(block, static_cast<std::uint32_t>(graph.ghosts[g]));
    put_bytes(block, to[own + g]);
  }
  return block;
}

/// Rank 0 builds the lists of all vertices from the edges of one worker after the other, and peels. Returns: cores of
/// the own vertices.
std::vector<std::uint32_t> cores_by_first(Comm& comm, const distributed_graph& graph) {
  const auto size = comm.get_size();
  const bool peels = graph.rank == 0;
  std::vector<byte_vector> counts(size);
  counts[0] = counts_of(graph);
  const auto counted = exchange_blocks(comm, counts);
  std::vector<std::vector<std::uint32_t>> stored(size);  // at each vertex of a worker
  std::vector<std::uint64_t> degrees(peels ? graph.vertices_total() : 0);
  for (std::size_t w = 0; peels && w < size; ++w) {
    byte_reader in(counted[w], exchange_room);
    const auto vertices = graph.first[w + 1] - graph.first[w];
    std::vector<std::uint32_t> to;
    in.get(stored[w], vertices);
    in.get(to, vertices);
    for (std::size_t v = 0; v < vertices; ++v) degrees[graph.first[w] + v] += std::uint64_t{stored[w][v]} + to[v];
    while (!in.empty()) {
      const auto ghost = in.get<std::uint32_t>();
      degrees[ghost] += in.get<std::uint32_t>();
    }
  }
  neighbour_lists lists(degrees);
  free_memory(degrees);
  for (std::size_t v = 0; peels && v < graph.own(); ++v) {
    for (const auto t : graph.out.of(v))
      lists.add(static_cast<std::uint32_t>(v), static_cast<std::uint32_t>(graph.number(t)));
  }
  // Rank 1, then rank 2, ..., which bounds the data in flight.
  const auto edges_of = comm.allgather(static_cast<std::uint64_t>(graph.out.target.size()));
  constexpr std::size_t most = (std::size_t{4} << 20U) / sizeof(std::uint32_t);
  for (std::size_t w = 1; w < size; ++w) {
    auto u = graph.first[w];
    std::uint32_t of_u = 0;  // edges of u received so far
    for (std::uint64_t at = 0; at < edges_of[w]; at += most) {
      std::vector<byte_vector> blocks(size);
      if (graph.rank == w) {
        const auto part = std::span(graph.out.target).subspan(at, std::min<std::size_t>(most, edges_of[w] - at));
        blocks[0].resize(part.size() * sizeof(std::uint32_t));
        auto* to = blocks[0].data();
        for (const auto t : part) to = store_fields(to, static_cast<std::uint32_t>(graph.number(t)));
      }
      const auto got = comm.alltoall_bytes(blocks);
      if (!peels) continue;
      for (byte_reader in(got[w]); !in.empty(); ++of_u) {
        for (; of_u == stored[w][u - graph.first[w]]; of_u = 0) ++u;
        lists.add(static_cast<std::uint32_t>(u), in.get<std::uint32_t>());
      }
    }
  }
  lists.finish();
  std::vector<byte_vector> answers(size);
  for (auto& a : answers) put_bytes(a, std::uint64_t{0});
  if (peels) {
    const auto cores = peeled_cores(lists.begin(), lists.target());
    for (std::size_t w = 0; w < size; ++w)
      put_bytes(answers[w], cores.data() + graph.first[w], graph.first[w + 1] - graph.first[w]);
  }
  const auto told = exchange_blocks(comm, answers);
  std::vector<std::uint32_t> mine;
  byte_reader(told[0], exchange_room).get(mine, graph.own());
  return mine;
}

/// Lowers bounds until none changes.
std::vector<std::uint32_t> cores_by_bounds(Comm& comm, const distributed_graph& graph, std::uint64_t& rounds) {
  halo borders(comm, graph);
  core_bounds part(graph);
  std::vector<std::uint32_t> ghosts(graph.ghosts.size());
  for (std::int64_t changed = 1; changed != 0;) {
    borders.pull<std::uint32_t>(part.own(), ghosts);
    ++rounds;
    changed = part.lower(ghosts) ? 1 : 0;
    comm.allreduce(changed);
  }
  return {part.own().begin(), part.own().end()};
}

}  // namespace

k_core_result core_numbers(Comm comm, const distributed_graph& graph) {
  k_core_result result;
  result.rounds = 1;
  if (graph.once) {
    result.cores = cores_by_first(comm, graph);
  } else if (comm.get_size() == 1) {
    result.cores = peeled_cores(graph.out.begin, graph.out.target);
  } else {
    result.rounds = 0;
    result.cores = cores_by_bounds(comm, graph, result.rounds);
  }
  std::vector<std::int64_t> greatest{0};
  for (const auto k : result.cores) greatest[0] = std::max<std::int64_t>(greatest[0], k);
  comm.allreduce(greatest, reduce_op::max);
  result.greatest = static_cast<std::uint32_t>(greatest[0]);
  auto in = static_cast<std::int64_t>(std::ranges::count(result.cores, result.greatest));
  comm.allreduce(in);
  result.in_greatest = static_cast<std::uint64_t>(in);
  return result;
}

void k_core_numbers::solve() {
  auto load = settings_.load_topology();
  load.undirected = true;
  load.once = true;
  load.once_limit = settings_.gather_limit;
  const auto graph = load_graph_input(get_comm(), settings_, load);
  (void)first_iteration();  // the replacement of a dead worker repeats everything
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
