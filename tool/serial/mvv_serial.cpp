// SPDX-License-Identifier: BSD-3-Clause
//
// Serial the maximum value: in descending order of ids, every vertex that can still be reached gets that
// id.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "graph.hpp"

using namespace serial;

int main(int argc, char** argv) {
  return run(argc, argv, "", [](arguments& from) {
    const auto g = load(from.input);
    const auto a = compress(g, false);
    std::vector<double> value(a.size(), -1);
    std::vector<std::uint32_t> stack;
    double sum = 0;
    for (auto s = a.size(); s-- > 0;) {
      if (value[s] >= 0) continue;
      const auto best = static_cast<double>(g.ids[s]);
      value[s] = best;
      stack.push_back(s);
      while (!stack.empty()) {
        const auto v = stack.back();
        stack.pop_back();
        sum += best;
        for (auto e = a.begin[v]; e < a.begin[v + 1]; ++e) {
          if (value[a.target[e]] >= 0) continue;
          value[a.target[e]] = best;
          stack.push_back(a.target[e]);
        }
      }
    }
    std::printf("sum_of_values %.17g\n", sum);
  });
}
