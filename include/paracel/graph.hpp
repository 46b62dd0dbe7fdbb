// SPDX-License-Identifier: BSD-3-Clause
//
// Graphs held by one worker, with Paracel's interface: `digraph`, `undirected_graph`, `bigraph`,
// `bigraph_continuous`.
//
// Added edges go to a buffer. The first call that reads edges turns it into compressed adjacency (one sort), and so
// does the next one after more edges were added. Vertices are visited in ascending order of their ids, and the edges of
// a vertex in ascending order of the other end. Adding an edge again replaces its weight; it remains one
// edge.
//
// Ids are 64-bit numbers or names (std::string); any comparable and hashable type will do.
//
// Thread-safety: none, not even of const members: the first read of an edge sorts.
// Cost: an edge 4 bytes in each stored direction, 12 if any weight is not 1, and while edges are added 8 or 16; a
// vertex 8 bytes, its id and its slot in a table (6 to 12 bytes). The forms that return dictionaries build them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include <paracel/adjacency.hpp>
#include <paracel/bag.hpp>
#include <paracel/error.hpp>
#include <paracel/interner.hpp>
#include <paracel/types.hpp>

namespace paracel {

namespace graph_detail {

template <class T>
using edge_dict = dict_type<T, dict_type<T, double>>;
template <class T>
using pair_list = list_type<std::tuple<T, T>>;
template <class T>
using triple_list = list_type<std::tuple<T, T, double>>;

template <class T>
dict_type<T, double> row_dict(const adjacency& rows, const interner<T>& ends, std::size_t v) {
  dict_type<T, double> row;
  row.reserve(rows.degree(v));
  for (auto k = rows.begin[v]; k < rows.begin[v + 1]; ++k) row.emplace(ends[rows.target[k]], rows.weight_at(k));
  return row;
}

/// f(from, to, weight) for the edges of the vertices [first, last); an f that takes a double& may change the weight.
template <class T, class F>
void visit_edges(adjacency& rows, const interner<T>& from, const interner<T>& to, std::size_t first, std::size_t last,
                 F& f) {
  constexpr bool reads_only = std::is_invocable_v<F&, const T&, const T&, double>;
  if constexpr (!reads_only) {
    if (rows.weight.empty()) rows.weight.resize(rows.target.size(), 1.0);
  }
  for (auto v = first; v < last; ++v) {
    for (auto k = rows.begin[v]; k < rows.begin[v + 1]; ++k) {
      if constexpr (reads_only) f(from[v], to[rows.target[k]], rows.weight_at(k));
      else f(from[v], to[rows.target[k]], rows.weight[k]);
    }
  }
}

/// f(id) of each vertex, or as in 0.3 f(pair of the id and the dictionary of its edges), which may change weights.
template <class T, class F>
void visit_vertices(adjacency& rows, const interner<T>& from, const interner<T>& to, F& f) {
  using entry = typename edge_dict<T>::value_type;
  for (std::size_t v = 0; v < from.size(); ++v) {
    if constexpr (std::is_invocable_v<F&, entry&>) {
      entry one(from[v], row_dict(rows, to, v));
      f(one);
      for (auto k = rows.begin[v]; k < rows.begin[v + 1]; ++k) {
        const auto weight = one.second.find(to[rows.target[k]]);
        if (weight == one.second.end() || weight->second == rows.weight_at(k)) continue;
        if (rows.weight.empty()) rows.weight.resize(rows.target.size(), 1.0);
        rows.weight[k] = weight->second;
      }
    } else {
      f(from[v]);
    }
  }
}

template <class T>
edge_dict<T> all_rows(const adjacency& rows, const interner<T>& from, const interner<T>& to) {
  edge_dict<T> all;
  all.reserve(from.size());
  for (std::size_t v = 0; v < from.size(); ++v) all.emplace(from[v], row_dict(rows, to, v));
  return all;
}
template <class T>
void all_triples(const adjacency& rows, const interner<T>& from, const interner<T>& to, triple_list<T>& triples) {
  triples.clear();
  triples.reserve(rows.target.size());
  for (std::size_t v = 0; v < from.size(); ++v) {
    for (auto k = rows.begin[v]; k < rows.begin[v + 1]; ++k)
      triples.emplace_back(from[v], to[rows.target[k]], rows.weight_at(k));
  }
}

inline void renumber(std::vector<std::uint32_t>& places, const std::vector<std::uint32_t>& now) {
  if (now.empty()) return;
  for (auto& p : places) p = now[p];
}

/// Merges the edges of `added` into those of `rows`. Both are empty afterwards.
inline edge_buffer joined(adjacency& rows, edge_buffer& added) {
  edge_buffer edges;
  if (rows.target.empty()) {
    edges.from.swap(added.from);
    edges.to.swap(added.to);
    edges.weight.swap(added.weight);
  } else {
    append_edges(edges, rows);
    for (std::size_t k = 0; k < added.size(); ++k) edges.add(added.from[k], added.to[k], added.weight_at(k));
  }
  rows = {};
  added = {};
  return edges;
}

/// Decoded from a value: throws protocol_error when it is not an adjacency of so many rows and columns.
inline void check(const adjacency& a, std::size_t rows, std::size_t columns) {
  bool good = a.begin.size() == rows + 1 && a.begin.front() == 0 && a.begin.back() == a.target.size() &&
              std::is_sorted(a.begin.begin(), a.begin.end()) &&
              (a.weight.empty() || a.weight.size() == a.target.size());
  for (const auto t : a.target) good = good && t < columns;
  if (!good) throw protocol_error("a graph in a value is damaged");
}

template <class T>
interner<T> index_of(const std::vector<T>& ids) {
  interner<T> index;
  for (const auto& id : ids) {
    if (index.intern(id) + 1 != index.size()) throw protocol_error("a graph in a value has a vertex twice");
  }
  return index;
}

/// What digraph and bigraph have in common: construction from lists and dictionaries. Graph has add_edge(a, b, weight).
template <class Graph, class T>
class edge_input {
 public:
  void construct_from_dict(const edge_dict<T>& edges) {
    for (const auto& [v, row] : edges)
      for (const auto& [w, weight] : row) self().add_edge(v, w, weight);
  }
  void construct_from_tuples(const pair_list<T>& edges) {
    for (const auto& [v, w] : edges) self().add_edge(v, w, 1.0);
  }
  void construct_from_triples(const triple_list<T>& edges) {
    for (const auto& [v, w, weight] : edges) self().add_edge(v, w, weight);
  }

 private:
  Graph& self() { return static_cast<Graph&>(*this); }
};

}  // namespace graph_detail

/// A directed graph.
template <class T = default_id_type>
class digraph : public graph_detail::edge_input<digraph<T>, T> {
 public:
  using id_type = T;

  digraph() = default;
  digraph(const graph_detail::edge_dict<T>& edges) { this->construct_from_dict(edges); }       // NOLINT: as in 0.3
  digraph(const graph_detail::pair_list<T>& edges) { this->construct_from_tuples(edges); }     // NOLINT
  digraph(const graph_detail::triple_list<T>& edges) { this->construct_from_triples(edges); }  // NOLINT

  void add_edge(const T& v, const T& w, double weight = 1.0) {
    const auto a = index_.intern(v);
    added_.add(a, index_.intern(w), weight);
  }
  /// Adds a vertex, which may have no edge.
  void add_vertex(const T& v) { index_.intern(v); }
  /// Many edges at once, whose ends are indices into `ids`; for loaders.
  void add_edges(interner<T>&& ids, edge_buffer&& edges) {
    if (v() == 0) {
      index_ = std::move(ids);
      added_ = std::move(edges);
      return;
    }
    for (std::size_t i = 0; i < ids.size(); ++i) add_vertex(ids[i]);
    for (std::size_t k = 0; k < edges.size(); ++k) add_edge(ids[edges.from[k]], ids[edges.to[k]], edges.weight_at(k));
  }

  /// f(from, to, weight) for every edge, or for those that leave `v`. An f that takes a double& may change the weight.
  template <class F>
  void traverse(F&& f) {
    build_if_changed();
    graph_detail::visit_edges(out_, index_, index_, 0, index_.size(), f);
    if constexpr (!std::is_invocable_v<F&, const T&, const T&, double>) in_.reset();
  }
  template <class F>
  void traverse(const T& v, F&& f) {
    build_if_changed();
    if (const auto i = index_.find(v); i != index_.none) graph_detail::visit_edges(out_, index_, index_, i, i + 1, f);
    if constexpr (!std::is_invocable_v<F&, const T&, const T&, double>) in_.reset();
  }
  /// f(id), or f(std::pair<const T, dict_type<T, double>>&) with the edges that leave it.
  template <class F>
  void traverse_by_vertex(F&& f) {
    build_if_changed();
    graph_detail::visit_vertices(out_, index_, index_, f);
    in_.reset();
  }

  /// Vertices, ascending.
  [[nodiscard]] std::vector<T> vertex_bag() const { return ids(); }
  [[nodiscard]] std::unordered_set<T> vertex_set() const { return {ids().begin(), ids().end()}; }
  /// Every vertex with the edges that leave it.
  [[nodiscard]] graph_detail::edge_dict<T> get_data() const { return graph_detail::all_rows(out(), index_, index_); }
  void dump2triples(graph_detail::triple_list<T>& triples) const {
    graph_detail::all_triples(out(), index_, index_, triples);
  }
  /// Adds to `dict`; vertices without outgoing edges are not in it.
  void dump2dict(graph_detail::edge_dict<T>& dict) const {
    build_if_changed();
    auto put = [&](const T& v, const T& w, double weight) { dict[v][w] = weight; };
    graph_detail::visit_edges(out_, index_, index_, 0, index_.size(), put);
  }

  /// Reverses every edge.
  void reverse() {
    (void)in();
    std::swap(out_, *in_);
  }

  /// The number of vertices.
  [[nodiscard]] std::size_t v() const { return index_.size(); }
  /// The number of edges; one that was added twice counts once.
  [[nodiscard]] std::size_t e() const { return out().target.size(); }
  [[nodiscard]] bool contains(const T& v) const { return index_.find(v) != index_.none; }
  /// The targets of the edges that leave `v`, and their weights; of an unknown vertex nothing.
  [[nodiscard]] dict_type<T, double> adjacent(const T& v) const { return row_of(out(), v); }
  [[nodiscard]] dict_type<T, double> reverse_adjacent(const T& v) const { return row_of(in(), v); }
  /// Of an unknown vertex 0. Cost: O(1); the first indegree after a change O(all edges).
  [[nodiscard]] std::size_t outdegree(const T& v) const { return degree_in(out(), v); }
  [[nodiscard]] std::size_t indegree(const T& v) const { return degree_in(in(), v); }
  /// outdegree and indegree; a self-loop counts twice.
  [[nodiscard]] std::size_t degree(const T& v) const { return outdegree(v) + indegree(v); }
  /// Edges per vertex; 0 of an empty graph. (0.3 truncated it to an integer.)
  [[nodiscard]] double avg_degree() const {
    return v() == 0 ? 0.0 : static_cast<double>(e()) / static_cast<double>(v());
  }
  [[nodiscard]] std::size_t selfloops() const {
    const auto& rows = out();
    std::size_t n = 0;
    for (std::size_t v = 0; v < rows.rows(); ++v) {
      const auto ends = rows.of(v);
      n += std::binary_search(ends.begin(), ends.end(), static_cast<std::uint32_t>(v)) ? 1 : 0;
    }
    return n;
  }

  // ---- for algorithms: vertices by their index in ids(). Lifetime: until the graph changes.

  /// Ascending.
  [[nodiscard]] const std::vector<T>& ids() const {
    build_if_changed();
    return index_.ids();
  }
  [[nodiscard]] std::optional<std::uint32_t> index_of(const T& v) const {
    build_if_changed();
    const auto i = index_.find(v);
    return i == index_.none ? std::nullopt : std::optional(i);
  }
  [[nodiscard]] const adjacency& out() const {
    build_if_changed();
    return out_;
  }
  [[nodiscard]] const adjacency& in() const {
    build_if_changed();
    if (!in_) in_ = transposed(out_, index_.size());
    return *in_;
  }

  // ---- as a value

  template <class Packer>
  void msgpack_pack(Packer& to) const {
    build_if_changed();
    to.pack_array(4);
    to.pack(index_.ids());
    to.pack(out_.begin);
    to.pack(out_.target);
    to.pack(out_.weight);
  }
  void msgpack_unpack(const msgpack::object& from) {
    std::tuple<std::vector<T>, std::vector<std::uint64_t>, std::vector<std::uint32_t>, std::vector<double>> parts;
    from.convert(parts);
    digraph got;
    got.index_ = graph_detail::index_of(std::get<0>(parts));
    got.out_ = {std::move(std::get<1>(parts)), std::move(std::get<2>(parts)), std::move(std::get<3>(parts))};
    graph_detail::check(got.out_, got.index_.size(), got.index_.size());
    if (!std::is_sorted(got.index_.ids().begin(), got.index_.ids().end()))
      throw protocol_error("the vertices of a graph in a value are not in order");
    *this = std::move(got);
  }

 private:
  void build_if_changed() const {
    if (added_.empty() && out_.rows() == index_.size()) return;
    auto edges = graph_detail::joined(out_, added_);
    in_.reset();
    const auto now = index_.sort();
    graph_detail::renumber(edges.from, now);
    graph_detail::renumber(edges.to, now);
    out_ = make_adjacency(std::move(edges), index_.size(), duplicate_edge_rule::last);
  }
  [[nodiscard]] dict_type<T, double> row_of(const adjacency& rows, const T& v) const {
    const auto i = index_.find(v);
    return i == index_.none ? dict_type<T, double>() : graph_detail::row_dict(rows, index_, i);
  }
  [[nodiscard]] std::size_t degree_in(const adjacency& rows, const T& v) const {
    const auto i = index_.find(v);
    return i == index_.none ? 0 : rows.degree(i);
  }

  mutable interner<T> index_;
  mutable edge_buffer added_;  // since out_ was built
  mutable adjacency out_;
  mutable std::optional<adjacency> in_;  // transpose of out_, once it was requested
};

/// An undirected graph. An edge a-b is the same as b-a.
template <class T = default_id_type>
class undirected_graph : public graph_detail::edge_input<undirected_graph<T>, T> {
 public:
  using id_type = T;

  undirected_graph() = default;
  undirected_graph(const graph_detail::edge_dict<T>& edges) { this->construct_from_dict(edges); }  // NOLINT: as in 0.3
  undirected_graph(const graph_detail::pair_list<T>& edges) { this->construct_from_tuples(edges); }     // NOLINT
  undirected_graph(const graph_detail::triple_list<T>& edges) { this->construct_from_triples(edges); }  // NOLINT

  void add_edge(const T& v, const T& w, double weight = 1.0) {
    both_.add_edge(v, w, weight);
    if (!(v == w)) both_.add_edge(w, v, weight);
  }
  void add_vertex(const T& v) { both_.add_vertex(v); }
  void add_edges(interner<T>&& ids, edge_buffer&& edges) {
    edge_buffer both;
    both.reserve(2 * edges.size());
    for (std::size_t k = 0; k < edges.size(); ++k) {  // interleaved: the last weight is the last of both
      both.add(edges.from[k], edges.to[k], edges.weight_at(k));
      if (edges.from[k] != edges.to[k]) both.add(edges.to[k], edges.from[k], edges.weight_at(k));
    }
    edges = {};
    both_.add_edges(std::move(ids), std::move(both));
  }

  /// f(v, w, weight) for every edge in both directions, or for those of `v`. An f that takes a double& may change the
  /// weight, in that direction.
  template <class F>
  void traverse(F&& f) {
    both_.traverse(std::forward<F>(f));
  }
  template <class F>
  void traverse(const T& v, F&& f) {
    both_.traverse(v, std::forward<F>(f));
  }
  /// As that of digraph.
  template <class F>
  void traverse_by_vertex(F&& f) {
    both_.traverse_by_vertex(std::forward<F>(f));
  }

  [[nodiscard]] std::vector<T> vertex_bag() const { return both_.vertex_bag(); }
  [[nodiscard]] std::unordered_set<T> vertex_set() const { return both_.vertex_set(); }
  [[nodiscard]] graph_detail::edge_dict<T> get_data() const { return both_.get_data(); }

  [[nodiscard]] std::size_t v() const { return both_.v(); }
  /// The number of edges; a-b and b-a are one.
  [[nodiscard]] std::size_t e() const { return (both_.e() + selfloops()) / 2; }
  [[nodiscard]] bool contains(const T& v) const { return both_.contains(v); }
  [[nodiscard]] dict_type<T, double> adjacent(const T& v) const { return both_.adjacent(v); }
  /// The number of neighbours; a self-loop is one. Of an unknown vertex 0.
  [[nodiscard]] std::size_t degree(const T& v) const { return both_.outdegree(v); }
  /// Twice the edges per vertex; 0 of an empty graph.
  [[nodiscard]] double avg_degree() const {
    return v() == 0 ? 0.0 : 2.0 * static_cast<double>(e()) / static_cast<double>(v());
  }
  [[nodiscard]] std::size_t max_degree() const {
    std::size_t most = 0;
    for (std::size_t v = 0; v < out().rows(); ++v) most = std::max<std::size_t>(most, out().degree(v));
    return most;
  }
  /// (0.3 returned half of them.)
  [[nodiscard]] std::size_t selfloops() const { return both_.selfloops(); }

  [[nodiscard]] const std::vector<T>& ids() const { return both_.ids(); }
  [[nodiscard]] std::optional<std::uint32_t> index_of(const T& v) const { return both_.index_of(v); }
  /// Every edge in both directions.
  [[nodiscard]] const adjacency& out() const { return both_.out(); }
  [[nodiscard]] const adjacency& in() const { return both_.out(); }

  template <class Packer>
  void msgpack_pack(Packer& to) const {
    both_.msgpack_pack(to);
  }
  void msgpack_unpack(const msgpack::object& from) { both_.msgpack_unpack(from); }

 private:
  digraph<T> both_;
};

/// A bipartite graph: edges lead from left vertices to right ones. The same id on both sides is two vertices.
template <class T = default_id_type>
class bigraph : public graph_detail::edge_input<bigraph<T>, T> {
 public:
  using id_type = T;

  bigraph() = default;
  bigraph(const graph_detail::edge_dict<T>& edges) { this->construct_from_dict(edges); }       // NOLINT: as in 0.3
  bigraph(const graph_detail::pair_list<T>& edges) { this->construct_from_tuples(edges); }     // NOLINT
  bigraph(const graph_detail::triple_list<T>& edges) { this->construct_from_triples(edges); }  // NOLINT

  void add_edge(const T& v, const T& w, double weight = 1.0) {
    const auto a = left_.intern(v);
    added_.add(a, right_.intern(w), weight);
  }
  /// Many edges at once, whose ends are indices into `left` and `right`; for loaders.
  void add_edges(interner<T>&& left, interner<T>&& right, edge_buffer&& edges) {
    if (v() == 0) {
      left_ = std::move(left);
      right_ = std::move(right);
      added_ = std::move(edges);
      return;
    }
    for (std::size_t k = 0; k < edges.size(); ++k)
      add_edge(left[edges.from[k]], right[edges.to[k]], edges.weight_at(k));
  }
  void reset() { *this = {}; }
  void clear() { reset(); }

  /// f(left, right, weight) for every edge, or for those of the left vertex `v`; an f that takes a double& may change
  /// the weight.
  template <class F>
  void traverse(F&& f) {
    build_if_changed();
    graph_detail::visit_edges(out_, left_, right_, 0, left_.size(), f);
  }
  template <class F>
  void traverse(const T& v, F&& f) {
    build_if_changed();
    if (const auto i = left_.find(v); i != left_.none) graph_detail::visit_edges(out_, left_, right_, i, i + 1, f);
  }
  /// f(id), or f(std::pair<const T, dict_type<T, double>>&), which may change weights.
  template <class F>
  void traverse_by_left_vertex(F&& f) {
    build_if_changed();
    graph_detail::visit_vertices(out_, left_, right_, f);
  }

  /// Ascending.
  [[nodiscard]] std::vector<T> left_vertex_bag() const { return left_ids(); }
  [[nodiscard]] std::unordered_set<T> left_vertex_set() const { return {left_ids().begin(), left_ids().end()}; }
  [[nodiscard]] graph_detail::edge_dict<T> get_data() const { return graph_detail::all_rows(out(), left_, right_); }
  void dump2triples(graph_detail::triple_list<T>& triples) const {
    graph_detail::all_triples(out(), left_, right_, triples);
  }
  /// Adds to `dict`.
  void dump2dict(graph_detail::edge_dict<T>& dict) const {
    build_if_changed();
    auto put = [&](const T& v, const T& w, double weight) { dict[v][w] = weight; };
    graph_detail::visit_edges(out_, left_, right_, 0, left_.size(), put);
  }

  /// The number of left vertices.
  [[nodiscard]] std::size_t v() const { return left_.size(); }
  [[nodiscard]] std::size_t e() const { return out().target.size(); }
  [[nodiscard]] bool is_connected(const T& a, const T& b) const { return place(a, b).has_value(); }
  /// 0 when no such edge exists.
  [[nodiscard]] double get_wgt(const T& a, const T& b) const {
    const auto k = place(a, b);
    return k ? out_.weight_at(*k) : 0.0;
  }
  [[nodiscard]] dict_type<T, double> adjacent(const T& v) const {
    build_if_changed();
    const auto i = left_.find(v);
    return i == left_.none ? dict_type<T, double>() : graph_detail::row_dict(out_, right_, i);
  }
  [[nodiscard]] std::size_t outdegree(const T& v) const {
    build_if_changed();
    const auto i = left_.find(v);
    return i == left_.none ? 0 : out_.degree(i);
  }
  /// Of a right vertex. Cost: O(1); the first after a change O(all edges).
  [[nodiscard]] std::size_t indegree(const T& w) const {
    build_if_changed();
    if (indegree_.empty()) {
      indegree_.resize(right_.size() + 1);
      for (const auto t : out_.target) ++indegree_[t];
    }
    const auto i = right_.find(w);
    return i == right_.none ? 0 : indegree_[i];
  }

  [[nodiscard]] const std::vector<T>& left_ids() const {
    build_if_changed();
    return left_.ids();
  }
  [[nodiscard]] const std::vector<T>& right_ids() const {
    build_if_changed();
    return right_.ids();
  }
  /// Rows: indices into left_ids(); targets: indices into right_ids(). Lifetime: until the graph changes.
  [[nodiscard]] const adjacency& out() const {
    build_if_changed();
    return out_;
  }

  template <class Packer>
  void msgpack_pack(Packer& to) const {
    build_if_changed();
    to.pack_array(5);
    to.pack(left_.ids());
    to.pack(right_.ids());
    to.pack(out_.begin);
    to.pack(out_.target);
    to.pack(out_.weight);
  }
  void msgpack_unpack(const msgpack::object& from) {
    std::tuple<std::vector<T>, std::vector<T>, std::vector<std::uint64_t>, std::vector<std::uint32_t>,
               std::vector<double>>
        parts;
    from.convert(parts);
    bigraph got;
    got.left_ = graph_detail::index_of(std::get<0>(parts));
    got.right_ = graph_detail::index_of(std::get<1>(parts));
    got.out_ = {std::move(std::get<2>(parts)), std::move(std::get<3>(parts)), std::move(std::get<4>(parts))};
    graph_detail::check(got.out_, got.left_.size(), got.right_.size());
    *this = std::move(got);
  }

 private:
  void build_if_changed() const {
    if (added_.empty()) return;
    auto edges = graph_detail::joined(out_, added_);
    indegree_.clear();
    graph_detail::renumber(edges.from, left_.sort());
    graph_detail::renumber(edges.to, right_.sort());
    out_ = make_adjacency(std::move(edges), left_.size(), duplicate_edge_rule::last);
  }
  [[nodiscard]] std::optional<std::size_t> place(const T& a, const T& b) const {
    build_if_changed();
    const auto v = left_.find(a);
    const auto w = right_.find(b);
    if (v == left_.none || w == right_.none) return std::nullopt;
    const auto ends = out_.of(v);
    const auto at = std::lower_bound(ends.begin(), ends.end(), w);
    if (at == ends.end() || *at != w) return std::nullopt;
    return out_.begin[v] + static_cast<std::size_t>(at - ends.begin());
  }

  mutable interner<T> left_, right_;
  mutable edge_buffer added_;
  mutable adjacency out_;
  mutable std::vector<std::uint32_t> indegree_;  // empty: not yet counted
};

/// A bipartite graph whose left vertices are 0 ... v() - 1. Edges stay in the order in which they were added, and
/// duplicates are kept. Ids are less than 2^32 - 1.
class bigraph_continuous {
 public:
  using id_type = default_id_type;

  bigraph_continuous() = default;
  /// With left vertices 0 ... n - 1 and no edges.
  explicit bigraph_continuous(default_id_type n) { resize(n); }
  /// From a file: the number of left vertices, then lines `left,right,weight` (or `left,right`).
  /// Throws: data_error file:line.
  explicit bigraph_continuous(const std::string& filename);

  void add_edge(default_id_type v, default_id_type w, double weight = 1.0) {
    size_ = std::max(size_, checked(v) + 1);
    added_.add(static_cast<std::uint32_t>(v), static_cast<std::uint32_t>(checked(w)), weight);
  }
  /// Sets the left vertices to 0 ... n - 1; edges of others are dropped. (In 0.3 e() became 0 although edges stayed.)
  void resize(default_id_type n);

  /// The number of left vertices.
  [[nodiscard]] default_id_type v() const { return size_; }
  [[nodiscard]] default_id_type e() const { return out_.target.size() + added_.size(); }
  [[nodiscard]] bag_type<std::pair<default_id_type, double>> adjacent(default_id_type v) const;
  [[nodiscard]] std::size_t outdegree(default_id_type v) const { return v < size_ ? out().degree(v) : 0; }
  /// Cost: O(1); the first after a change O(all edges).
  [[nodiscard]] std::size_t indegree(default_id_type w) const;

  /// f(left, right, weight) for every edge, or for those of `v`; an f that takes a double& may change the weight.
  template <class F>
  void traverse(F&& f) {
    visit(0, size_, f);
  }
  template <class F>
  void traverse(default_id_type v, F&& f) {
    if (v < size_) visit(v, v + 1, f);
  }

  /// Rows: left vertices. Targets are in insertion order. Lifetime: until the graph changes.
  [[nodiscard]] const adjacency& out() const;

  template <class Packer>
  void msgpack_pack(Packer& to) const {
    const auto& rows = out();
    to.pack_array(3);
    to.pack(rows.begin);
    to.pack(rows.target);
    to.pack(rows.weight);
  }
  void msgpack_unpack(const msgpack::object& from) {
    std::tuple<std::vector<std::uint64_t>, std::vector<std::uint32_t>, std::vector<double>> parts;
    from.convert(parts);
    if (std::get<0>(parts).empty()) throw protocol_error("a graph in a value is damaged");
    bigraph_continuous got;
    got.out_ = {std::move(std::get<0>(parts)), std::move(std::get<1>(parts)), std::move(std::get<2>(parts))};
    got.size_ = got.out_.rows();
    graph_detail::check(got.out_, got.size_, limit);
    *this = std::move(got);
  }

 private:
  static constexpr default_id_type limit = 0xffffffff;
  static default_id_type checked(default_id_type id) {
    if (id >= limit)
      throw error("a vertex " + std::to_string(id) + " of a bigraph_continuous, want less than 4294967295");
    return id;
  }
  template <class F>
  void visit(default_id_type first, default_id_type last, F& f) {
    constexpr bool reads_only = std::is_invocable_v<F&, default_id_type, default_id_type, double>;
    (void)out();
    if constexpr (!reads_only) {
      if (out_.weight.empty()) out_.weight.resize(out_.target.size(), 1.0);
    }
    for (auto v = first; v < last; ++v) {
      for (auto k = out_.begin[v]; k < out_.begin[v + 1]; ++k) {
        const default_id_type w = out_.target[k];
        if constexpr (reads_only) f(v, w, out_.weight_at(k));
        else f(v, w, out_.weight[k]);
      }
    }
  }

  default_id_type size_ = 0;
  mutable edge_buffer added_;
  mutable adjacency out_;
  mutable std::vector<std::uint32_t> indegree_;
};

}  // namespace paracel
