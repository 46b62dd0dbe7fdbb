// SPDX-License-Identifier: BSD-3-Clause
#include <charconv>

#include "core/number_parsing.hpp"
#include "paracel/graph.hpp"
#include "paracel/samples.hpp"

namespace paracel {

namespace {

bool read_vertex_id(std::string_view text, default_id_type& out) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), out);
  return failure == std::errc() && end == text.data() + text.size();
}

}  // namespace

bigraph_continuous::bigraph_continuous(const std::string& filename) {
  std::size_t number = 0;
  visit_lines(filename, 0, 1, [&](std::string&& line) {
    ++number;
    const auto refuse = [&](const char* want) {
      throw data_error(filename + ":" + std::to_string(number) + ":1: found " + quote_for_error(line) + ", want " +
                       want);
    };
    if (number == 1) {
      default_id_type n = 0;
      if (!read_vertex_id(line, n) || n > limit) refuse("the number of left vertices");
      resize(n);
      return;
    }
    if (line.empty()) return;
    const std::string_view all(line);
    const auto first = all.find(',');
    const auto second = first == all.npos ? all.npos : all.find(',', first + 1);
    default_id_type v = 0;
    default_id_type w = 0;
    double weight = 1;
    if (first == all.npos || !read_vertex_id(all.substr(0, first), v) || v >= limit ||
        !read_vertex_id(all.substr(first + 1, second == all.npos ? second : second - first - 1), w) || w >= limit ||
        (second != all.npos && !read_whole_number(all.substr(second + 1), weight)))
      refuse("left,right,weight");
    add_edge(v, w, weight);
  });
}

void bigraph_continuous::resize(default_id_type n) {
  if (n > limit) throw error("bigraph_continuous: " + std::to_string(n) + " left vertices, want at most 4294967295");
  const auto& rows = out();
  indegree_.clear();
  if (n < size_) {
    edge_buffer edges;
    for (std::size_t v = 0; v < n; ++v) {
      for (auto k = rows.begin[v]; k < rows.begin[v + 1]; ++k)
        edges.add(static_cast<std::uint32_t>(v), rows.target[k], rows.weight_at(k));
    }
    out_ = {};
    added_ = std::move(edges);
  }
  size_ = n;
}

const adjacency& bigraph_continuous::out() const {
  if (!added_.empty() || out_.rows() != size_) {
    indegree_.clear();
    out_ = make_adjacency(graph_detail::joined(out_, added_), size_, duplicate_edge_rule::keep);
  }
  return out_;
}

bag_type<std::pair<default_id_type, double>> bigraph_continuous::adjacent(default_id_type v) const {
  bag_type<std::pair<default_id_type, double>> bag;
  if (v >= size_) return bag;
  const auto& rows = out();
  for (auto k = rows.begin[v]; k < rows.begin[v + 1]; ++k) bag.put({rows.target[k], rows.weight_at(k)});
  return bag;
}

std::size_t bigraph_continuous::indegree(default_id_type w) const {
  const auto& rows = out();
  if (indegree_.empty()) {
    for (const auto t : rows.target) {
      if (t >= indegree_.size()) indegree_.resize(std::size_t{t} + 1);
      ++indegree_[t];
    }
  }
  return w < indegree_.size() ? indegree_[w] : 0;
}

}  // namespace paracel
