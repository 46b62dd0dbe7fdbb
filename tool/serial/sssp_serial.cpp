// SPDX-License-Identifier: BSD-3-Clause
//
// Serial shortest paths: Dijkstra's algorithm with a heap. Parallel edges are alternatives.
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

int main(int argc, char** argv) {
  return run(argc, argv, " --source ID", [](arguments& from) {
    const auto g = load(from.input, true);
    const auto a = compress(g, false);
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
  });
}
