// SPDX-License-Identifier: BSD-3-Clause
//
// Compressed adjacency: the edges of vertex 0, of vertex 1, ..., one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace paracel {

/// Vertices (rows) and the targets of their edges. Cost: 4 bytes an edge, 12 with weights, and 8 a vertex.
struct adjacency {
  std::vector<std::uint64_t> begin{0};  ///< vertex v has [begin[v], begin[v + 1]) of target and weight
  std::vector<std::uint32_t> target;    ///< index of a vertex or column; ascending within a vertex by default
  std::vector<double> weight;           ///< parallel to target; empty when every weight is 1

  [[nodiscard]] std::size_t rows() const noexcept { return begin.size() - 1; }
  [[nodiscard]] std::span<const std::uint32_t> of(std::size_t v) const {
    return std::span(target).subspan(begin[v], begin[v + 1] - begin[v]);
  }
  [[nodiscard]] std::uint64_t degree(std::size_t v) const { return begin[v + 1] - begin[v]; }
  /// The weight of edge k, an index into target.
  [[nodiscard]] double weight_at(std::size_t k) const { return weight.empty() ? 1.0 : weight[k]; }
};

/// Edges in the order in which they were added.
struct edge_buffer {
  std::vector<std::uint32_t> from;
  std::vector<std::uint32_t> to;
  std::vector<double> weight;  ///< parallel to from; empty as long as all are 1

  [[nodiscard]] std::size_t size() const noexcept { return from.size(); }
  [[nodiscard]] bool empty() const noexcept { return from.empty(); }
  [[nodiscard]] double weight_at(std::size_t k) const { return weight.empty() ? 1.0 : weight[k]; }
  void reserve(std::size_t n) {
    from.reserve(n);
    to.reserve(n);
  }
  void add(std::uint32_t a, std::uint32_t b, double w) {
    if (w != 1 || !weight.empty()) {
      weight.resize(from.size(), 1.0);
      weight.push_back(w);
    }
    from.push_back(a);
    to.push_back(b);
  }
};

/// How duplicate edges are handled.
enum class duplicate_edge_rule {
  last,  ///< one edge with the weight added last
  sum,   ///< one edge with the sum of the weights, added in insertion order
  keep,  ///< all of them; the edges of a vertex stay in insertion order
};

/// Compressed adjacency of `rows` rows. Cost: O(edges log degree); memory: the buffer (freed half way) and the result.
adjacency make_adjacency(edge_buffer&& edges, std::size_t rows, duplicate_edge_rule rule);

/// The transpose. `columns`: greater than any target. Cost: O(edges + columns)
adjacency transposed(const adjacency& rows, std::size_t columns);

/// Appends the edges of `rows` in their order.
void append_edges(edge_buffer& to, const adjacency& rows);

}  // namespace paracel
