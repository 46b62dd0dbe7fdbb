// SPDX-License-Identifier: BSD-3-Clause
//
// The serial oracle of shortest paths: Dijkstra's algorithm with a heap.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <queue>
#include <stdexcept>
#include <utility>
#include <vector>

#include "graph.hpp"

using namespace serial;

namespace {

/// Merges parallel edges, summing their weights.
void merge_parallel(csr& a) {
  std::vector<std::pair<std::uint32_t, double>> row;
  std::uint64_t kept = 0;
  for (std::uint32_t v = 0; v < a.size(); ++v) {
    row.clear();
    for (auto e = a.begin[v]; e < a.begin[v + 1]; ++e) row.emplace_back(a.target[e], a.weight[e]);
    std::stable_sort(row.begin(), row.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
    a.begin[v] = kept;
    for (const auto& [t, w] : row) {
      if (kept > a.begin[v] && a.target[kept - 1] == t) {
        a.weight[kept - 1] += w;
      } else {
        a.target[kept] = t;
        a.weight[kept++] = w;
      }
    }
  }
  a.begin.back() = kept;
  a.target.resize(kept);
  a.weight.resize(kept);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, " --source ID", [](arguments& from) {
    const auto g = load(from.input, from.option["vertices"], true);
    auto a = compress(g, false);
    merge_parallel(a);
    for (const auto w : a.weight)
      if (!(w >= 0)) throw std::runtime_error("a weight is below 0");
    const auto source = source_of(from, g);
    std::vector<double> distance(a.size(), std::numeric_limits<double>::infinity());
    using entry = std::pair<double, std::uint32_t>;
    std::priority_queue<entry, std::vector<entry>, std::greater<>> heap;
    distance[source] = 0;
    heap.emplace(0.0, source);
    std::size_t reached = 0;
    double sum = 0, farthest = 0;
    while (!heap.empty()) {
      const auto [d, v] = heap.top();
      heap.pop();
      if (d > distance[v]) continue;
      ++reached;
      sum += d;
      farthest = d;
      for (auto e = a.begin[v]; e < a.begin[v + 1]; ++e) {
        const auto t = a.target[e];
        if (d + a.weight[e] >= distance[t]) continue;
        distance[t] = d + a.weight[e];
        heap.emplace(distance[t], t);
      }
    }
    std::printf("reached %zu\nfarthest %.17g\nsum_of_distances %.17g\n", reached, farthest, sum);
    write(from.option["out"], g, [&](std::uint32_t v) { return distance[v]; });
  });
}
