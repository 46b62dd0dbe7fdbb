// SPDX-License-Identifier: BSD-3-Clause
#include "kept_edges.hpp"

#include <span>

#include "alg/common/graph/move_edges.hpp"

namespace paracel::alg {

namespace {

/// Degrees of own vertices and ghosts.
std::vector<std::uint32_t> degrees_of(Comm& comm, const distributed_graph& graph) {
  const auto own = graph.own();
  std::vector<std::uint32_t> degree(own + graph.ghosts.size());
  for (std::size_t v = 0; v < own; ++v) {
    degree[v] += static_cast<std::uint32_t>(graph.out.degree(v));
    for (const auto t : graph.out.of(v)) ++degree[t];
  }
  const auto here = std::span(degree).first(own);
  const auto there = std::span(degree).subspan(own);
  halo borders(comm, graph);
  borders.push<std::uint32_t>(there, here, [](std::uint32_t& into, std::uint32_t n) { into += n; });
  borders.pull<std::uint32_t>(here, there);
  return degree;
}

}  // namespace

std::vector<std::uint32_t> keep_at_lower_ends(Comm comm, distributed_graph& graph, std::size_t round_bytes) {
  auto degree = degrees_of(comm, graph);
  const auto is_above = [&](std::uint32_t a, std::uint32_t b) {
    return degree[a] != degree[b] ? degree[a] > degree[b] : graph.number(a) < graph.number(b);
  };
  move_edges(
      comm, graph, round_bytes, [&](std::uint32_t v, std::uint32_t t) { return is_above(t, v); }, is_above);
  degree.resize(graph.own());
  return degree;
}

}  // namespace paracel::alg
