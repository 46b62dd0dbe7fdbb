// SPDX-License-Identifier: BSD-3-Clause
//
// Directed and undirected graphs held by one worker; <paracel/graph.hpp> says what all graphs have in common.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include <paracel/detail/adjacency.hpp>
#include <paracel/detail/codec_packed.hpp>
#include <paracel/detail/graph_rows.hpp>
#include <paracel/error.hpp>
#include <paracel/interner.hpp>
#include <paracel/types.hpp>

namespace paracel {

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
  /// Adds a vertex, possibly without edges.
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
  /// The targets of the edges that leave `v`, and their weights; empty for an unknown vertex.
  [[nodiscard]] dict_type<T, double> adjacent(const T& v) const { return row_of(out(), v); }
  [[nodiscard]] dict_type<T, double> reverse_adjacent(const T& v) const { return row_of(in(), v); }
  /// 0 for an unknown vertex. Cost: O(1); the first indegree after a change O(all edges).
  [[nodiscard]] std::size_t outdegree(const T& v) const { return degree_in(out(), v); }
  [[nodiscard]] std::size_t indegree(const T& v) const { return degree_in(in(), v); }
  /// outdegree + indegree; a self-loop counts twice.
  [[nodiscard]] std::size_t degree(const T& v) const { return outdegree(v) + indegree(v); }
  /// Edges per vertex; 0 for an empty graph. (0.3 truncated it to an integer.)
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
  mutable std::optional<adjacency> in_;  // transpose of out_, once requested
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
  /// weight, in that direction only.
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
  /// The number of neighbours; a self-loop counts once. 0 for an unknown vertex.
  [[nodiscard]] std::size_t degree(const T& v) const { return both_.outdegree(v); }
  /// Twice the edges per vertex; 0 for an empty graph.
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

}  // namespace paracel
