// SPDX-License-Identifier: BSD-3-Clause
//
// The serial oracle of PageRank: x <- (1 - d)/N + d (sum over edges of x_u w / W_u + lost mass / N); with --paracel 1
// Paracel's formula x <- (1 - d) + d sum.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "graph.hpp"

using namespace serial;

int main(int argc, char** argv) {
  return run(argc, argv, " --rounds N --tolerance T --damping D --paracel 1", [](arguments& from) {
    const auto g = load(from.input, from.option["vertices"], true);
    const auto a = compress(g, false);
    const auto n = a.size();
    const auto number_of = [&](const char* name, double otherwise) {
      return from.option[name].empty() ? otherwise : std::stod(from.option[name]);
    };
    const double d = number_of("damping", 0.85), tolerance = number_of("tolerance", 1e-10);
    const auto rounds = static_cast<int>(number_of("rounds", 1000));
    const bool old = from.option["paracel"] == "1";
    std::vector<double> leaves(n), x(n, 1.0 / n), next(n);
    for (std::uint32_t v = 0; v < n; ++v)
      for (auto e = a.begin[v]; e < a.begin[v + 1]; ++e) leaves[v] += a.weight[e];
    int round = 0;
    for (double step = 1; round < rounds && step > tolerance; ++round) {
      std::fill(next.begin(), next.end(), 0.0);
      double lost = 0;
      for (std::uint32_t v = 0; v < n; ++v) {
        if (leaves[v] == 0) {
          lost += x[v];
          continue;
        }
        const double part = x[v] / leaves[v];
        for (auto e = a.begin[v]; e < a.begin[v + 1]; ++e) next[a.target[e]] += part * a.weight[e];
      }
      step = 0;
      for (std::uint32_t v = 0; v < n; ++v) {
        next[v] = old ? 1 - d + d * next[v] : (1 - d) / n + d * (next[v] + lost / n);
        step += next[v] > x[v] ? next[v] - x[v] : x[v] - next[v];
      }
      x.swap(next);
    }
    const auto top = static_cast<std::size_t>(std::max_element(x.begin(), x.end()) - x.begin());
    std::printf("rounds %d\ntop %llu\ntop_score %.17g\n", round, static_cast<unsigned long long>(g.ids[top]), x[top]);
    write(from.option["out"], g, [&](std::uint32_t v) { return x[v]; });
  });
}
