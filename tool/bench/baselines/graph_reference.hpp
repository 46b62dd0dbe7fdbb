// SPDX-License-Identifier: BSD-3-Clause
//
// Serial searches on a graph in memory, to measure the graph programs against: what a program without messages,
// checkpoints and other workers costs. For one worker, so that all targets are own vertices.
//
// Source: S. Beamer, K. Asanovic, D. Patterson, "Direction-optimizing breadth-first search", SC 2012; E. Dijkstra, "A
// note on two problems in connexion with graphs", 1959; U. Meyer, P. Sanders, "Delta-stepping: a parallelizable
// shortest path algorithm", J. Algorithms 49, 2003.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include <paracel/detail/adjacency.hpp>

namespace paracel::bench {

/// Levels, ~0 where there is no path. `in`: the transpose of `out`, or `out` itself; null: top-down only.
inline std::vector<std::uint32_t> reference_bfs(const adjacency& out, const adjacency* in, std::uint32_t source) {
  constexpr std::uint32_t unreached = ~std::uint32_t{0};
  constexpr std::uint64_t alpha = 15, beta = 18;
  const auto n = out.rows();
  std::vector<std::uint32_t> level(n, unreached), frontier{source}, next;
  std::vector<std::uint64_t> now((n + 63) / 64), then((n + 63) / 64);
  level[source] = 0;
  std::uint64_t unexplored = out.target.size(), edges = out.degree(source), before = 0;
  bool bottom_up = false;
  std::uint64_t count = 1;
  for (std::uint32_t depth = 1; count > 0; ++depth) {
    if (in != nullptr) {
      if (!bottom_up && edges > unexplored / alpha && count > before) {
        bottom_up = true;
        std::fill(now.begin(), now.end(), 0);
        for (const auto v : frontier) now[v / 64] |= std::uint64_t{1} << (v % 64);
      } else if (bottom_up && count < n / beta && count <= before) {
        bottom_up = false;
        frontier.clear();
        for (std::size_t w = 0; w < now.size(); ++w)
          for (auto bits = now[w]; bits != 0; bits &= bits - 1)
            frontier.push_back(static_cast<std::uint32_t>(64 * w + static_cast<std::size_t>(__builtin_ctzll(bits))));
      }
    }
    unexplored -= std::min(edges, unexplored);
    edges = 0;
    before = count;
    count = 0;
    if (bottom_up) {
      std::fill(then.begin(), then.end(), 0);
      for (std::uint32_t v = 0; v < n; ++v) {
        if (level[v] != unreached) continue;
        for (const auto u : in->of(v)) {
          if ((now[u / 64] >> (u % 64) & 1U) == 0) continue;
          level[v] = depth;
          then[v / 64] |= std::uint64_t{1} << (v % 64);
          ++count;
          break;
        }
      }
      now.swap(then);
      continue;
    }
    next.clear();
    for (const auto v : frontier)
      for (const auto t : out.of(v)) {
        if (level[t] != unreached) continue;
        level[t] = depth;
        edges += out.degree(t);
        next.push_back(t);
      }
    frontier.swap(next);
    count = frontier.size();
  }
  return level;
}

/// Distances, infinity where there is no path; Dijkstra's algorithm with a binary heap.
inline std::vector<double> reference_dijkstra(const adjacency& out, std::uint32_t source) {
  std::vector<double> distance(out.rows(), std::numeric_limits<double>::infinity());
  using entry = std::pair<double, std::uint32_t>;
  std::priority_queue<entry, std::vector<entry>, std::greater<>> heap;
  distance[source] = 0;
  heap.emplace(0.0, source);
  while (!heap.empty()) {
    const auto [d, v] = heap.top();
    heap.pop();
    if (d > distance[v]) continue;
    for (auto e = out.begin[v]; e < out.begin[v + 1]; ++e) {
      const auto t = out.target[e];
      const auto through = d + out.weight_at(e);
      if (through >= distance[t]) continue;
      distance[t] = through;
      heap.emplace(through, t);
    }
  }
  return distance;
}

/// The same by delta-stepping without a distinction of light and heavy edges.
inline std::vector<double> reference_delta(const adjacency& out, std::uint32_t source, double delta) {
  std::vector<double> distance(out.rows(), std::numeric_limits<double>::infinity());
  std::vector<std::vector<std::uint32_t>> buckets(1);
  distance[source] = 0;
  buckets[0].push_back(source);
  std::vector<std::uint32_t> now;
  for (std::size_t k = 0; k < buckets.size(); ++k) {
    while (!buckets[k].empty()) {
      now.swap(buckets[k]);
      buckets[k].clear();
      for (const auto v : now) {
        const auto d = distance[v];
        if (static_cast<std::size_t>(d / delta) < k) continue;  // done in an earlier bucket
        for (auto e = out.begin[v]; e < out.begin[v + 1]; ++e) {
          const auto t = out.target[e];
          const auto through = d + out.weight_at(e);
          if (through >= distance[t]) continue;
          distance[t] = through;
          const auto to = static_cast<std::size_t>(through / delta);
          if (to >= buckets.size()) buckets.resize(to + 1);
          buckets[std::max(to, k)].push_back(t);
        }
      }
    }
  }
  return distance;
}

}  // namespace paracel::bench
