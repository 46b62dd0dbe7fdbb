// SPDX-License-Identifier: BSD-3-Clause
//
// Bipartite graphs held by one worker; <paracel/graph.hpp> says what all graphs have in common.
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

#include <paracel/detail/adjacency.hpp>
#include <paracel/detail/bag.hpp>
#include <paracel/detail/codec_packed.hpp>
#include <paracel/detail/graph_rows.hpp>
#include <paracel/error.hpp>
#include <paracel/interner.hpp>
#include <paracel/types.hpp>

namespace paracel {

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
  /// The number of edges into a right vertex. Cost: O(1); the first after a change O(all edges).
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
/// duplicates are kept. Ids must be less than 2^32 - 1.
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
    if (id >= limit) throw error("bigraph_continuous: vertex " + std::to_string(id) + ", want less than 4294967295");
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
