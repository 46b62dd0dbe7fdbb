// SPDX-License-Identifier: BSD-3-Clause
//
// The serial oracle of breadth-first search: a queue.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

#include "graph.hpp"

using namespace serial;

int main(int argc, char** argv) {
  return run(argc, argv, " --source ID", [](arguments& from) {
    const auto g = load(from.input, from.option["vertices"]);
    const auto a = compress(g, false);
    const auto source = source_of(from, g);
    std::vector<double> level(a.size(), std::numeric_limits<double>::infinity());
    std::vector<std::uint32_t> queue{source};
    level[source] = 0;
    double sum = 0;
    for (std::size_t k = 0; k < queue.size(); ++k) {
      const auto v = queue[k];
      sum += level[v];
      for (auto e = a.begin[v]; e < a.begin[v + 1]; ++e) {
        if (level[a.target[e]] <= level[v] + 1) continue;
        level[a.target[e]] = level[v] + 1;
        queue.push_back(a.target[e]);
      }
    }
    std::printf("reached %zu\ndepth %.0f\nsum_of_levels %.0f\n", queue.size(), level[queue.back()], sum);
    write(from.option["out"], g, [&](std::uint32_t v) { return level[v]; });
  });
}
