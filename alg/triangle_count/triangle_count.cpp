// SPDX-License-Identifier: BSD-3-Clause
#include "triangle_count.hpp"

#include <algorithm>
#include <utility>

#include <paracel/exchange.hpp>

#include "alg/common/output/run_log.hpp"
#include "kept_edges.hpp"

namespace paracel::alg {

namespace {

constexpr std::uint32_t unknown = ~std::uint32_t{0};

/// The kept edges of the own vertices, by rank. Rank 0 has the greatest degree of all vertices known to this worker.
class oriented_graph {
 public:
  /// Moves the edges out of the graph: they are at their ends of lower degree.
  oriented_graph(distributed_graph& graph, const std::vector<std::uint32_t>& degree)
      : own_(graph.own()), begin_(std::move(graph.out.begin)), target_(std::move(graph.out.target)) {
    const auto n = own_ + graph.ghosts.size();
    // Counting sort by descending degree, then by number (ghosts of workers before this one, own vertices, ghosts of
    // those after it).
    std::uint32_t most = 0;
    for (const auto d : degree) most = std::max(most, d);
    std::vector<std::uint32_t> place(std::size_t{most} + 2);
    for (const auto d : degree) ++place[most - d + 1];
    for (std::size_t d = 0; d + 1 < place.size(); ++d) place[d + 1] += place[d];
    rank_.resize(n);
    vertex_.resize(n);
    const auto give = [&](std::size_t v) {
      const auto r = place[most - degree[v]]++;
      rank_[v] = r;
      vertex_[r] = static_cast<std::uint32_t>(v);
    };
    std::size_t g = 0;
    const auto own_first = graph.first[graph.rank];
    for (; g < graph.ghosts.size() && graph.ghosts[g] < own_first; ++g) give(own_ + g);
    for (std::size_t v = 0; v < own_; ++v) give(v);
    for (; g < graph.ghosts.size(); ++g) give(own_ + g);

    for (auto& t : target_) t = rank_[t];
    for (std::size_t v = 0; v < own_; ++v) {
      std::sort(target_.begin() + static_cast<std::ptrdiff_t>(begin_[v]),
                target_.begin() + static_cast<std::ptrdiff_t>(begin_[v + 1]));
    }
  }

  /// Ranks, ascending.
  [[nodiscard]] std::span<const std::uint32_t> of(std::size_t v) const {
    return std::span(target_).subspan(begin_[v], begin_[v + 1] - begin_[v]);
  }
  [[nodiscard]] std::uint32_t rank(std::size_t local) const { return rank_[local]; }
  [[nodiscard]] std::uint32_t vertex(std::uint32_t rank) const { return vertex_[rank]; }
  [[nodiscard]] std::size_t own() const { return own_; }
  [[nodiscard]] std::size_t size() const { return rank_.size(); }

 private:
  std::size_t own_;
  std::vector<std::uint64_t> begin_;
  std::vector<std::uint32_t> target_;
  std::vector<std::uint32_t> rank_, vertex_;  // by local index, by rank
};

/// Whether the edge u-v, v at index i of u's list, is counted with the marks of v: by looking up the i elements before
/// v.
bool looks_up_lower(std::size_t i, std::size_t list_of_v) { return i < list_of_v; }

/// Own vertices u below each vertex v whose edge is counted with the marks of v; for a ghost, all of them.
struct lower_neighbours {
  explicit lower_neighbours(const oriented_graph& g) : begin(g.size() + 1) {
    each(g, [&](std::size_t v, std::size_t) { ++begin[v + 1]; });
    for (std::size_t k = 0; k + 1 < begin.size(); ++k) begin[k + 1] += begin[k];
    vertex.resize(begin.back());
    auto next = begin;
    each(g, [&](std::size_t v, std::size_t u) { vertex[next[v]++] = static_cast<std::uint32_t>(u); });
  }
  [[nodiscard]] std::span<const std::uint32_t> of(std::size_t v) const {
    return std::span(vertex).subspan(begin[v], begin[v + 1] - begin[v]);
  }
  template <class F>
  static void each(const oriented_graph& g, F&& f) {
    for (std::size_t u = 0; u < g.own(); ++u) {
      const auto list = g.of(u);
      for (std::size_t i = 1; i < list.size(); ++i) {
        const auto v = g.vertex(list[i]);
        if (v >= g.own() || looks_up_lower(i, g.of(v).size())) f(v, u);
      }
    }
  }
  std::vector<std::uint64_t> begin;
  std::vector<std::uint32_t> vertex;
};

/// Counts triangles, for each known vertex if PerVertex.
template <bool PerVertex>
class counter {
 public:
  explicit counter(const oriented_graph& g) : g_(g), mark_(g.size()), counts_(PerVertex ? g.size() : 0) {}

  /// Triangles whose two lower vertices u and v are own ones. Only the elements of u's list before v can be in v's
  /// list; the shorter of both is looked up in the marks of the other.
  void count_own(const lower_neighbours& below) {
    for (std::size_t u = 0; u < g_.own(); ++u) {
      const auto list = g_.of(u);
      if (list.size() < 2) continue;
      bool marked = false;
      for (std::size_t i = 1; i < list.size(); ++i) {
        const auto v = g_.vertex(list[i]);
        if (v >= g_.own() || g_.of(v).empty() || looks_up_lower(i, g_.of(v).size())) continue;
        if (!marked) mark(list, 1);
        marked = true;
        count(static_cast<std::uint32_t>(u), v, g_.of(v));
      }
      if (marked) mark(list, 0);
    }
    for (std::uint32_t v = 0; v < g_.own(); ++v)
      if (!below.of(v).empty()) count_upper(v, g_.of(v), below.of(v));
  }
  /// Triangles of v with these own vertices below it: `list` is v's, as local ranks.
  void count_upper(std::uint32_t v, std::span<const std::uint32_t> list, std::span<const std::uint32_t> below) {
    mark(list, 1);
    for (const auto u : below) {
      const auto all = g_.of(u);
      const auto before = std::lower_bound(all.begin(), all.end(), g_.rank(v)) - all.begin();
      count(u, v, all.first(static_cast<std::size_t>(before)));
    }
    mark(list, 0);
  }

  [[nodiscard]] std::uint64_t total() const { return total_; }
  [[nodiscard]] const std::vector<std::uint64_t>& counts() const { return counts_; }

 private:
  void mark(std::span<const std::uint32_t> list, std::uint8_t value) {
    for (const auto r : list) mark_[r] = value;
  }
  void count(std::uint32_t u, std::uint32_t v, std::span<const std::uint32_t> list) {
    std::uint64_t found = 0;
    for (const auto r : list) {
      found += mark_[r];
      if constexpr (PerVertex) counts_[g_.vertex(r)] += mark_[r];
    }
    total_ += found;
    if constexpr (PerVertex) {
      counts_[u] += found;
      counts_[v] += found;
    }
  }
  const oriented_graph& g_;
  std::vector<std::uint8_t> mark_;  // by rank
  std::vector<std::uint64_t> counts_;
  std::uint64_t total_ = 0;
};

// Lists sent by the owner of ghosts to a worker that requested them:
//
//     | room | more to come (8 bytes) | list | list | ...
//     list: index of the ghost at the receiver, n, n elements (4 bytes each)
//
// An element is the receiver's local index if the sender knows it (a vertex of the sender, or of the receiver),
// otherwise the marker `unknown` and its number as two words.

class list_sender {
 public:
  list_sender(const distributed_graph& graph, const oriented_graph& g, const halo& borders, std::size_t to,
              byte_reader wanted, std::size_t first_ghost_there)
      : graph_(graph), g_(g), to_(to), shared_(borders.shared_with(to)), first_there_(first_ghost_there) {
    while (!wanted.empty()) wanted_.push_back(wanted.get<std::uint32_t>());
  }
  [[nodiscard]] bool done() const { return at_ == wanted_.size(); }

  /// Appends lists until `bytes` are reached, at least one if any is left. `place`: scratch of one word for each own
  /// vertex, all `unknown`.
  void fill(byte_vector& block, std::size_t bytes, std::vector<std::uint32_t>& place) {
    if (done()) return;
    const auto own_there = static_cast<std::uint32_t>(graph_.first[to_ + 1] - graph_.first[to_]);
    for (std::size_t k = 0; k < shared_.size(); ++k)
      place[shared_[k]] = own_there + static_cast<std::uint32_t>(first_there_ + k);
    std::vector<std::uint32_t> list;
    const auto full = block.size() + bytes;
    while (!done() && block.size() < full) {
      const auto k = wanted_[at_++];
      list.clear();
      for (const auto r : g_.of(shared_[k])) {
        const auto x = g_.vertex(r);
        if (x < graph_.own()) {
          if (place[x] != unknown) list.push_back(place[x]);
          continue;
        }
        const auto number = graph_.number(x);
        if (number >= graph_.first[to_] && number < graph_.first[to_ + 1]) {
          list.push_back(static_cast<std::uint32_t>(number - graph_.first[to_]));
        } else {
          list.push_back(unknown);
          list.push_back(static_cast<std::uint32_t>(number));
          list.push_back(static_cast<std::uint32_t>(number >> 32U));
        }
      }
      if (list.empty()) continue;
      put_bytes(block, k);
      put_bytes(block, static_cast<std::uint32_t>(list.size()));
      put_bytes(block, list.data(), list.size());
    }
    for (const auto v : shared_) place[v] = unknown;
  }

 private:
  const distributed_graph& graph_;
  const oriented_graph& g_;
  std::size_t to_;
  std::span<const std::uint32_t> shared_;
  std::size_t first_there_;
  std::vector<std::uint32_t> wanted_;  // indices into shared_
  std::size_t at_ = 0;
};

template <bool PerVertex>
triangle_result count_all(Comm comm, distributed_graph& graph, std::size_t round_bytes) {
  const auto size = comm.get_size();
  const auto own = graph.own();
  triangle_result result;
  auto degree = keep_at_lower_ends(comm, graph, round_bytes);
  for (const std::uint64_t d : degree)
    if (d > 1) result.wedges += d * (d - 1) / 2;
  halo borders(comm, graph);
  degree.resize(own + graph.ghosts.size());
  borders.pull<std::uint32_t>(std::span<const std::uint32_t>(degree).first(own), std::span(degree).subspan(own));
  const oriented_graph g(graph, degree);
  counter<PerVertex> count(g);
  const lower_neighbours below(g);
  count.count_own(below);

  if (size > 1) {
    std::vector<byte_vector> questions(size);
    for (std::size_t w = 0; w < size; ++w) {
      put_bytes(questions[w], std::uint64_t{0});
      put_bytes(questions[w], static_cast<std::uint64_t>(borders.ghost_first(w)));
      for (auto i = borders.ghost_first(w); i < borders.ghost_first(w + 1); ++i)
        if (!below.of(own + i).empty()) put_bytes(questions[w], static_cast<std::uint32_t>(i - borders.ghost_first(w)));
    }
    const auto asked = exchange_blocks(comm, questions);
    std::vector<list_sender> senders;
    for (std::size_t w = 0; w < size; ++w) {
      byte_reader in(asked[w], exchange_room);
      const auto first = in.get<std::uint64_t>();
      senders.emplace_back(graph, g, borders, w, in, first);
    }
    std::vector<std::uint32_t> place(own, unknown), list;
    for (bool more = true; more;) {
      std::vector<byte_vector> blocks(size);
      for (std::size_t w = 0; w < size; ++w) {
        put_bytes(blocks[w], std::uint64_t{0});
        put_bytes(blocks[w], std::uint64_t{0});
        if (w != graph.rank) senders[w].fill(blocks[w], std::max<std::size_t>(round_bytes / (size - 1), 1), place);
      }
      const std::uint64_t mine = std::ranges::any_of(senders, [](const auto& s) { return !s.done(); }) ? 1 : 0;
      for (auto& b : blocks) std::memcpy(b.data() + exchange_room, &mine, sizeof mine);
      const auto got = exchange_blocks(comm, blocks);
      ++result.rounds;
      more = false;
      for (std::size_t w = 0; w < size; ++w) {
        byte_reader in(got[w], exchange_room);
        more = in.get<std::uint64_t>() != 0 || more;
        result.fetched_bytes += in.size();
        while (!in.empty()) {
          const auto ghost = borders.ghost_first(w) + in.get<std::uint32_t>();
          const auto n = in.get<std::uint32_t>();
          list.clear();
          for (std::uint32_t i = 0; i < n; ++i) {
            const auto x = in.get<std::uint32_t>();
            if (x != unknown) {
              list.push_back(g.rank(x));
              continue;
            }
            const std::uint64_t low = in.get<std::uint32_t>();
            const auto number = low | std::uint64_t{in.get<std::uint32_t>()} << 32U;
            i += 2;
            const auto known = std::lower_bound(graph.ghosts.begin(), graph.ghosts.end(), number);
            if (known != graph.ghosts.end() && *known == number)
              list.push_back(g.rank(own + static_cast<std::size_t>(known - graph.ghosts.begin())));
          }
          count.count_upper(static_cast<std::uint32_t>(own + ghost), list, below.of(own + ghost));
        }
      }
    }
  }

  std::vector<std::int64_t> sums{static_cast<std::int64_t>(count.total()), static_cast<std::int64_t>(result.wedges)};
  comm.allreduce(sums);
  result.triangles = static_cast<std::uint64_t>(sums[0]);
  result.wedges = static_cast<std::uint64_t>(sums[1]);
  if constexpr (PerVertex) {
    const std::span all(count.counts());
    result.of_vertices.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(own));
    borders.push<std::uint64_t>(all.subspan(own), result.of_vertices,
                                [](std::uint64_t& into, std::uint64_t n) { into += n; });
  }
  return result;
}

}  // namespace

triangle_result count_triangles(Comm comm, distributed_graph& graph, bool per_vertex, std::size_t round_bytes) {
  return per_vertex ? count_all<true>(std::move(comm), graph, round_bytes)
                    : count_all<false>(std::move(comm), graph, round_bytes);
}

void triangle_counter::solve() {
  auto load = settings_.load_topology();
  load.undirected = true;
  load.once = true;
  auto graph = load_graph_input(get_comm(), settings_, load);
  (void)first_iteration();  // the replacement of a worker can repeat all of it
  run_log log(*this, 0);
  const auto found = count_triangles(get_comm(), graph, settings_.per_vertex);
  if (settings_.per_vertex)
    write_vertex_values<std::uint64_t>(*this, settings_, graph, "triangle_count", "triangles", found.of_vertices);
  log.result("vertices", graph.vertices_total());
  log.result("edges", graph.edges_total);
  log.result("triangles", found.triangles);
  const auto wedges = static_cast<double>(found.wedges);
  log.result("transitivity", wedges > 0 ? 3 * static_cast<double>(found.triangles) / wedges : 0.0);
  log.result("output", get_output());
}

}  // namespace paracel::alg
