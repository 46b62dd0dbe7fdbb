// SPDX-License-Identifier: BSD-3-Clause
//
// What `digraph` and `bigraph` share: edges that were added become adjacency rows, which are visited, converted to
// dictionaries and checked when they are decoded from a value.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <vector>

#include <paracel/detail/adjacency.hpp>
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

/// f(id) for each vertex, or as in 0.3 f(pair of the id and the dictionary of its edges), which may change weights.
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

/// Checks an adjacency decoded from a value. Throws: protocol_error when it does not have that many rows and columns.
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

}  // namespace paracel
