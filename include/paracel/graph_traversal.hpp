// SPDX-License-Identifier: BSD-3-Clause
//
// Traversals of a graph held by one worker: Paracel's `DFS`, `BFS` and `connected_components`, orders and cycles. None
// of them recurses, so a path of ten million vertices cannot overflow the stack. Neighbours are visited in ascending
// order.
//
// Source: R. Sedgewick and K. Wayne, Algorithms, 4th edition (2011), chapter 4; R. E. Tarjan, Depth-first search and
// linear graph algorithms, SIAM J. Comput. 1 (1972).
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <paracel/graph.hpp>

namespace paracel {

namespace graph_detail {

/// A graph that exposes its compressed adjacency.
template <class G>
concept compact_graph = requires(const G& g, const typename G::id_type& v) {
  { g.ids().size() } -> std::convertible_to<std::size_t>;
  { g.out() } -> std::same_as<const adjacency&>;
  { g.index_of(v) } -> std::same_as<std::optional<std::uint32_t>>;
};

/// Numbers the vertices of any graph that has `adjacent`, in the order in which they are discovered, and lists their
/// neighbours.
template <class G, class T>
class traversal_view {
 public:
  explicit traversal_view(const G& graph) : graph_(&graph) {}
  std::uint32_t start(const T& v) { return index_.intern(v); }
  [[nodiscard]] std::uint32_t find(const T& v) const { return index_.find(v); }
  [[nodiscard]] const T& id(std::uint32_t i) const { return index_[i]; }
  [[nodiscard]] std::size_t size() const { return index_.size(); }
  std::span<const std::uint32_t> row(std::uint32_t i) {
    const auto [at, made] = rows_.try_emplace(i);
    if (made) {
      std::vector<T> ends;
      for (const auto& edge : graph_->adjacent(T(index_[i]))) ends.push_back(edge.first);
      std::sort(ends.begin(), ends.end());
      for (const auto& end : ends) at->second.push_back(index_.intern(end));
    }
    return at->second;
  }

 private:
  const G* graph_;
  interner<T> index_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> rows_;
};

template <compact_graph G, class T>
class traversal_view<G, T> {
 public:
  explicit traversal_view(const G& graph) : graph_(&graph), rows_(&graph.out()) {}
  [[nodiscard]] std::uint32_t start(const T& v) const {
    const auto i = graph_->index_of(v);
    if (!i) throw key_error("a traversal starts at a vertex that is not in the graph");
    return *i;
  }
  [[nodiscard]] std::uint32_t find(const T& v) const { return graph_->index_of(v).value_or(interner<T>::none); }
  [[nodiscard]] const T& id(std::uint32_t i) const { return graph_->ids()[i]; }
  [[nodiscard]] std::size_t size() const { return graph_->ids().size(); }
  [[nodiscard]] std::span<const std::uint32_t> row(std::uint32_t i) const { return rows_->of(i); }

 private:
  const G* graph_;
  const adjacency* rows_;
};

/// Discovery and finishing times of a vertex in a depth-first search.
struct traversal_times {
  std::int64_t pre = -1;   ///< vertices discovered before it; -1: not reached
  std::int64_t post = -1;  ///< vertices finished before it
};

/// Visits everything reachable from `from` that has no `pre` yet. `meet(i)` is called when a vertex is discovered,
/// `leave(i)` when it is finished, `seen(i, j)` for an edge to a vertex already discovered. Cost: O(vertices + edges);
/// 16 bytes for each vertex on the current path from `from`.
template <class View, class Meet, class Leave, class Seen>
void traverse_deep(View& view, std::uint32_t from, std::vector<traversal_times>& times, std::int64_t& met,
                   std::int64_t& left, Meet meet, Leave leave, Seen seen) {
  struct frame {
    std::uint32_t vertex;
    std::size_t next;
  };
  std::vector<frame> path;
  const auto enter = [&](std::uint32_t i) {
    if (times.size() <= i) times.resize(view.size());
    times[i].pre = met++;
    meet(i);
    path.push_back({i, 0});
  };
  enter(from);
  while (!path.empty()) {
    const auto here = path.back().vertex;
    const auto row = view.row(here);
    if (path.back().next == row.size()) {
      times[here].post = left++;
      path.pop_back();
      leave(here);
      continue;
    }
    const auto to = row[path.back().next++];
    if (to >= times.size() || times[to].pre < 0) enter(to);
    else seen(here, to);
  }
}

struct nothing {
  template <class... A>
  void operator()(A&&... /*ignored*/) const {}
};

}  // namespace graph_detail

/// Depth-first search from one vertex: func(v) for each reachable vertex, when it is discovered.
/// Throws: key_error when `src` is not in the graph. Lifetime: the graph must outlive it and not change.
/// Cost: O(vertices + edges)
template <class G, class T, class F>
class DFS {
 public:
  DFS(const G& graph, T src, F func) : view_(graph) {
    graph_detail::traverse_deep(
        view_, view_.start(src), times_, met_, left_, [&](std::uint32_t i) { func(view_.id(i)); },
        graph_detail::nothing(), graph_detail::nothing());
  }
  [[nodiscard]] bool visited(const T& v) const { return pre(v) >= 0; }
  /// Its position in preorder (postorder); -1 when it was not reached.
  [[nodiscard]] std::int64_t pre(const T& v) const { return at(v).pre; }
  [[nodiscard]] std::int64_t post(const T& v) const { return at(v).post; }

 private:
  [[nodiscard]] graph_detail::traversal_times at(const T& v) const {
    const auto i = view_.find(v);
    return i < times_.size() ? times_[i] : graph_detail::traversal_times();
  }
  graph_detail::traversal_view<G, T> view_;
  std::vector<graph_detail::traversal_times> times_;
  std::int64_t met_ = 0;
  std::int64_t left_ = 0;
};

/// Breadth-first search from one vertex: func(v) for each reachable vertex, nearest first.
/// Throws: key_error when `src` is not in the graph. Lifetime: the graph must outlive it and not change.
/// Cost: O(vertices + edges)
template <class G, class T, class F>
class BFS {
 public:
  BFS(const G& graph, T src, F func) : view_(graph) {
    const auto from = view_.start(src);
    std::vector<std::uint32_t> queue{from};
    record_visit(from, from, 0);
    func(view_.id(from));
    for (std::size_t at = 0; at < queue.size(); ++at) {
      const auto here = queue[at];
      for (const auto to : view_.row(here)) {
        if (to < marks_.size() && marks_[to].dist >= 0) continue;
        record_visit(to, here, marks_[here].dist + 1);
        func(view_.id(to));
        queue.push_back(to);
      }
    }
  }
  [[nodiscard]] bool visited(const T& v) const { return dist(v) >= 0; }
  /// Edges on a shortest path from the source; -1 when there is none.
  [[nodiscard]] int dist(const T& v) const { return at(v).dist; }
  /// The vertex before `v` on that path; for the source, itself. Throws: key_error when `v` was not reached.
  [[nodiscard]] T edgeTo(const T& v) const {
    if (!visited(v)) throw key_error("the search did not reach the vertex that was asked for");
    return view_.id(at(v).before);
  }

 private:
  struct mark {
    std::int32_t dist = -1;
    std::uint32_t before = 0;
  };
  void record_visit(std::uint32_t i, std::uint32_t before, std::int32_t dist) {
    if (marks_.size() <= i) marks_.resize(std::max<std::size_t>(view_.size(), i + std::size_t{1}));
    marks_[i] = {dist, before};
  }
  [[nodiscard]] mark at(const T& v) const {
    const auto i = view_.find(v);
    return i < marks_.size() ? marks_[i] : mark();
  }
  graph_detail::traversal_view<G, T> view_;
  std::vector<mark> marks_;
};

/// Depth-first traversal of the whole graph, restarted at the least undiscovered vertex.
template <class T>
class depth_first_order {
 public:
  template <class G>
  explicit depth_first_order(const G& graph) : ids_(graph.ids()), times_(ids_.size()), reverse_post_(ids_.size()) {
    graph_detail::traversal_view<G, T> view(graph);
    std::int64_t met = 0;
    std::int64_t left = 0;
    for (std::uint32_t v = 0; v < times_.size(); ++v) {
      if (times_[v].pre >= 0) continue;
      graph_detail::traverse_deep(
          view, v, times_, met, left, graph_detail::nothing(),
          [&](std::uint32_t i) { reverse_post_[times_.size() - static_cast<std::size_t>(left)] = i; },
          graph_detail::nothing());
    }
  }
  /// Index of a vertex in preorder and postorder; -1: it is not in the graph.
  [[nodiscard]] std::int64_t pre(const T& v) const { return at(v).pre; }
  [[nodiscard]] std::int64_t post(const T& v) const { return at(v).post; }
  /// The vertices in reverse postorder.
  [[nodiscard]] std::vector<T> reverse_post() const {
    std::vector<T> order;
    order.reserve(ids_.size());
    for (const auto i : reverse_post_) order.push_back(ids_[i]);
    return order;
  }

 private:
  [[nodiscard]] graph_detail::traversal_times at(const T& v) const {
    const auto i = std::lower_bound(ids_.begin(), ids_.end(), v);
    return i != ids_.end() && *i == v ? times_[static_cast<std::size_t>(i - ids_.begin())]
                                      : graph_detail::traversal_times();
  }
  std::vector<T> ids_;
  std::vector<graph_detail::traversal_times> times_;
  std::vector<std::uint32_t> reverse_post_;
};

/// The vertices of one directed cycle, in its order; empty when there is none. A self-loop is a cycle of one.
/// Cost: O(vertices + edges)
template <class T>
std::vector<T> find_cycle(const digraph<T>& graph) {
  graph_detail::traversal_view<digraph<T>, T> view(graph);
  std::vector<graph_detail::traversal_times> times(view.size());
  std::vector<std::uint32_t> path;  // vertices discovered but not finished
  std::vector<T> cycle;
  std::int64_t met = 0;
  std::int64_t left = 0;
  for (std::uint32_t v = 0; v < times.size() && cycle.empty(); ++v) {
    if (times[v].pre >= 0) continue;
    graph_detail::traverse_deep(
        view, v, times, met, left, [&](std::uint32_t i) { path.push_back(i); }, [&](std::uint32_t) { path.pop_back(); },
        [&](std::uint32_t, std::uint32_t to) {
          if (times[to].post >= 0 || !cycle.empty()) return;  // leads to a finished vertex, or a cycle was found
          for (auto at = std::find(path.rbegin(), path.rend(), to).base() - 1; at != path.end(); ++at)
            cycle.push_back(view.id(*at));
        });
  }
  return cycle;
}

/// A topological order of the vertices; empty when there is a cycle.
/// Cost: O(vertices + edges)
template <class T>
std::optional<std::vector<T>> topological_order(const digraph<T>& graph) {
  const depth_first_order<T> order(graph);
  auto vertices = order.reverse_post();
  const auto& rows = graph.out();
  for (std::size_t v = 0; v < rows.rows(); ++v) {
    const auto post = order.post(graph.ids()[v]);
    for (const auto w : rows.of(v))
      if (order.post(graph.ids()[w]) >= post) return std::nullopt;
  }
  return vertices;
}

/// Connected components; for a directed graph, the weakly connected ones. Numbered 0, 1, ... in the order of their
/// least vertices. Cost: O(vertices + edges log vertices)
template <class G, class T>
class connected_components {
 public:
  explicit connected_components(const G& graph) : ids_(graph.ids()), component_(ids_.size()) {
    std::vector<std::uint32_t> root(ids_.size());
    std::iota(root.begin(), root.end(), 0U);
    const auto find = [&](std::uint32_t v) {
      while (root[v] != v) v = root[v] = root[root[v]];
      return v;
    };
    const auto& rows = graph.out();
    for (std::uint32_t v = 0; v < root.size(); ++v) {
      for (const auto w : rows.of(v)) {
        const auto a = find(v);
        const auto b = find(w);
        root[std::max(a, b)] = std::min(a, b);  // a root is the least vertex of its component
      }
    }
    for (std::uint32_t v = 0; v < root.size(); ++v) {
      const auto r = find(v);
      component_[v] = r == v ? count_++ : component_[r];
    }
  }
  [[nodiscard]] bool is_connected(const T& v, const T& w) const { return id(v) >= 0 && id(v) == id(w); }
  /// The number of components.
  [[nodiscard]] int cnt() const { return count_; }
  /// The component of a vertex; -1 when it is not in the graph.
  [[nodiscard]] int id(const T& v) const {
    const auto i = std::lower_bound(ids_.begin(), ids_.end(), v);
    return i != ids_.end() && *i == v ? component_[static_cast<std::size_t>(i - ids_.begin())] : -1;
  }
  /// func(vertex, component) for every vertex.
  template <class F>
  void handleCC(F&& func) const {
    for (std::size_t v = 0; v < ids_.size(); ++v) func(ids_[v], component_[v]);
  }

 private:
  std::vector<T> ids_;
  std::vector<int> component_;
  int count_ = 0;
};

}  // namespace paracel
