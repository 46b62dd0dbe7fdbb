// SPDX-License-Identifier: BSD-3-Clause
//
// Small graphs for tests: seeded random ones, and a worker's part of one without a file.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <paracel/distributed_graph.hpp>

namespace paracel::test {

struct test_edge {
  std::uint64_t from = 0, to = 0;
  double weight = 1;
};

/// Vertices 0 ... vertices - 1; the id of vertex v is id(v) = 3 v + 5.
struct test_graph {
  std::uint64_t vertices = 0;
  std::vector<test_edge> edges;  // without duplicate edges
  static std::uint64_t id(std::uint64_t v) { return 3 * v + 5; }
};

/// `skew` above 1 gives few vertices most of the edges. No duplicate edges; self-loops if allowed.
inline test_graph random_graph(unsigned seed, std::uint64_t vertices, std::size_t edges, double skew = 1,
                               bool self_loops = false) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  test_graph g;
  g.vertices = vertices;
  std::set<std::pair<std::uint64_t, std::uint64_t>> there;
  // Odd multipliers scatter the vertices of high degree over the numbers.
  const auto draw = [&] {
    const auto v = static_cast<std::uint64_t>(std::pow(uniform(random), skew) * static_cast<double>(vertices));
    return std::min(v, vertices - 1) * 7919 % vertices;
  };
  for (std::size_t k = 0; k < edges && vertices > 1; ++k) {
    const auto a = draw(), b = draw();
    if ((a == b && !self_loops) || !there.emplace(a, b).second) continue;
    g.edges.push_back({a, b, std::floor(uniform(random) * 1000) / 8});
  }
  return g;
}

/// Shortest distances from vertex 0, by relaxing edges until nothing changes; infinity for what it does not reach.
inline std::vector<double> distances_of(const test_graph& g) {
  std::vector<double> d(g.vertices, std::numeric_limits<double>::infinity());
  if (!d.empty()) d[0] = 0;
  for (bool change = true; change;) {
    change = false;
    for (const auto& e : g.edges)
      if (d[e.from] + e.weight < d[e.to]) {
        d[e.to] = d[e.from] + e.weight;
        change = true;
      }
  }
  return d;
}

struct part_options {
  bool undirected = false;
  bool incoming = false;
  bool weighted = false;
  bool once = false;   ///< undirected: each edge at the end that is first in the test_graph
  bool names = false;  ///< ids are the words "n000005", ... instead of numbers
};

/// What load_graph would return on rank `rank` of `workers`, with vertices divided equally by number instead of work.
inline distributed_graph part_of(const test_graph& g, std::size_t rank, std::size_t workers,
                                 const part_options& options = {}) {
  distributed_graph p;
  p.first.clear();
  for (std::size_t w = 0; w <= workers; ++w) p.first.push_back(g.vertices * w / workers);
  p.rank = rank;
  p.directed = !options.undirected;
  p.once = options.once;
  p.ids = id_list::empty(!options.names);
  for (auto v = p.first[rank]; v < p.first[rank + 1]; ++v) {
    if (options.names) {
      const auto digits = std::to_string(test_graph::id(v));
      p.ids.push_back(std::string_view("n" + std::string(6 - digits.size(), '0') + digits));
    } else {
      p.ids.push_back(test_graph::id(v));
    }
  }
  using triple = std::pair<std::pair<std::uint64_t, std::uint64_t>, double>;
  std::vector<triple> out, in;
  if (options.undirected) {
    std::set<std::pair<std::uint64_t, std::uint64_t>> pairs;
    for (const auto& e : g.edges) {
      if (!pairs.emplace(std::min(e.from, e.to), std::max(e.from, e.to)).second) continue;
      out.push_back({{e.from, e.to}, e.weight});
      if (e.from != e.to && !options.once) out.push_back({{e.to, e.from}, e.weight});
    }
    p.edges_total = pairs.size();
  } else {
    for (const auto& e : g.edges) out.push_back({{e.from, e.to}, e.weight});
    p.edges_total = g.edges.size();
  }
  if (options.incoming)
    for (const auto& e : out) in.push_back({{e.first.second, e.first.first}, e.second});
  const auto own = [&](std::uint64_t v) { return v >= p.first[rank] && v < p.first[rank + 1]; };
  std::set<std::uint64_t> ghosts;
  for (auto* list : {&out, &in}) {
    std::erase_if(*list, [&](const auto& e) { return !own(e.first.first); });
    std::sort(list->begin(), list->end());
    for (const auto& e : *list)
      if (!own(e.first.second)) ghosts.insert(e.first.second);
  }
  p.ghosts.assign(ghosts.begin(), ghosts.end());
  const auto local = [&](std::uint64_t v) {
    if (own(v)) return static_cast<std::uint32_t>(v - p.first[rank]);
    const auto at = std::lower_bound(p.ghosts.begin(), p.ghosts.end(), v) - p.ghosts.begin();
    return static_cast<std::uint32_t>(p.own() + static_cast<std::size_t>(at));
  };
  const auto fill = [&](adjacency& a, const std::vector<triple>& list) {
    a.begin.assign(p.own() + 1, 0);
    for (const auto& e : list) ++a.begin[e.first.first - p.first[rank] + 1];
    for (std::size_t v = 0; v < p.own(); ++v) a.begin[v + 1] += a.begin[v];
    for (const auto& e : list) {
      a.target.push_back(local(e.first.second));
      if (options.weighted) a.weight.push_back(e.second);
    }
  };
  fill(p.out, out);
  if (options.incoming) fill(p.in, in);
  return p;
}

}  // namespace paracel::test
