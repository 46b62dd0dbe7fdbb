// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/detail/adjacency.hpp"

#include <algorithm>
#include <utility>

namespace paracel {

namespace {

/// Sorts the edges of one row by target and drops duplicates. Returns how many are left.
class row_sorter {
 public:
  std::size_t operator()(std::uint32_t* target, double* weight, std::size_t n, duplicate_edge_rule rule) {
    if (weight == nullptr) {
      std::sort(target, target + n);
      return static_cast<std::size_t>(std::unique(target, target + n) - target);
    }
    edges_.clear();
    for (std::size_t k = 0; k < n; ++k) edges_.emplace_back(target[k], weight[k]);
    std::stable_sort(edges_.begin(), edges_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::size_t left = 0;
    for (const auto& [t, w] : edges_) {
      if (left > 0 && target[left - 1] == t) {
        weight[left - 1] = rule == duplicate_edge_rule::sum ? weight[left - 1] + w : w;
      } else {
        target[left] = t;
        weight[left++] = w;
      }
    }
    return left;
  }

 private:
  std::vector<std::pair<std::uint32_t, double>> edges_;
};

}  // namespace

adjacency make_adjacency(edge_buffer&& edges, std::size_t rows, duplicate_edge_rule rule) {
  adjacency a;
  const bool weighted = !edges.weight.empty();
  a.begin.assign(rows + 1, 0);
  for (const auto v : edges.from) ++a.begin[v + 1];
  for (std::size_t v = 0; v < rows; ++v) a.begin[v + 1] += a.begin[v];
  a.target.resize(edges.size());
  if (weighted) a.weight.resize(edges.size());
  {
    auto at = a.begin;  // the next free place of each row
    for (std::size_t k = 0; k < edges.size(); ++k) {
      const auto place = at[edges.from[k]]++;
      a.target[place] = edges.to[k];
      if (weighted) a.weight[place] = edges.weight[k];
    }
  }
  edges = {};
  if (rule == duplicate_edge_rule::keep) return a;
  if (rule == duplicate_edge_rule::sum && !weighted) a.weight.assign(a.target.size(), 1.0);

  row_sorter sort_row;
  std::size_t written = 0;
  std::uint64_t begin = 0;
  for (std::size_t v = 0; v < rows; ++v) {
    const auto end = a.begin[v + 1];
    auto* target = a.target.data() + begin;
    auto* weight = a.weight.empty() ? nullptr : a.weight.data() + begin;
    const auto left = sort_row(target, weight, end - begin, rule);
    if (written != begin) {
      std::copy(target, target + left, a.target.data() + written);
      if (weight != nullptr) std::copy(weight, weight + left, a.weight.data() + written);
    }
    written += left;
    a.begin[v + 1] = written;
    begin = end;
  }
  if (written < a.target.size()) {
    a.target.resize(written);
    a.target.shrink_to_fit();
    if (!a.weight.empty()) {
      a.weight.resize(written);
      a.weight.shrink_to_fit();
    }
  }
  return a;
}

adjacency transposed(const adjacency& rows, std::size_t columns) {
  adjacency t;
  t.begin.assign(columns + 1, 0);
  for (const auto c : rows.target) ++t.begin[c + 1];
  for (std::size_t c = 0; c < columns; ++c) t.begin[c + 1] += t.begin[c];
  t.target.resize(rows.target.size());
  t.weight.resize(rows.weight.size());
  auto at = t.begin;
  for (std::size_t v = 0; v < rows.rows(); ++v) {
    for (auto k = rows.begin[v]; k < rows.begin[v + 1]; ++k) {
      const auto place = at[rows.target[k]]++;
      t.target[place] = static_cast<std::uint32_t>(v);
      if (!rows.weight.empty()) t.weight[place] = rows.weight[k];
    }
  }
  return t;
}

void append_edges(edge_buffer& to, const adjacency& rows) {
  to.reserve(to.size() + rows.target.size());
  for (std::size_t v = 0; v < rows.rows(); ++v) {
    for (auto k = rows.begin[v]; k < rows.begin[v + 1]; ++k)
      to.add(static_cast<std::uint32_t>(v), rows.target[k], rows.weight_at(k));
  }
}

}  // namespace paracel
