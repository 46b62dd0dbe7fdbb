// SPDX-License-Identifier: BSD-3-Clause
//
// Serial label propagation: all vertices simultaneously take the most frequent label of their neighbours,
// ties by smallest, until nothing changes or the labels equal those of two rounds ago.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "graph.hpp"

using namespace serial;

namespace {

std::vector<std::uint32_t> spread(const csr& a, int rounds, int& done) {
  std::vector<std::uint32_t> label(a.size()), before, around;
  std::iota(label.begin(), label.end(), 0U);
  for (done = 0; done < rounds;) {
    auto next = label;
    for (std::uint32_t v = 0; v < a.size(); ++v) {
      around.clear();
      for (auto e = a.begin[v]; e < a.begin[v + 1]; ++e) around.push_back(label[a.target[e]]);
      std::sort(around.begin(), around.end());
      std::size_t most = 0;
      for (std::size_t i = 0, j = 0; i < around.size(); i = j) {
        while (j < around.size() && around[j] == around[i]) ++j;
        if (j - i > most) {
          most = j - i;
          next[v] = around[i];
        }
      }
    }
    ++done;
    const bool ends = next == label || next == before;
    before.swap(label);
    label.swap(next);
    if (ends) break;
  }
  return label;
}

double modularity(const csr& a, const std::vector<std::uint32_t>& label) {
  const auto ends = static_cast<double>(a.target.size());
  double inside = 0, squares = 0;
  std::vector<double> degrees(a.size());
  for (std::uint32_t v = 0; v < a.size(); ++v) {
    for (auto e = a.begin[v]; e < a.begin[v + 1]; ++e) inside += label[a.target[e]] == label[v] ? 1 : 0;
    degrees[label[v]] += static_cast<double>(a.begin[v + 1] - a.begin[v]);
  }
  for (const auto d : degrees) squares += d / ends * (d / ends);
  return ends > 0 ? inside / ends - squares : 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, " --rounds N", [](arguments& from) {
    const auto g = load(from.input);
    const auto a = compress(g, true);
    int rounds = 0;
    const auto label = spread(a, from.option["rounds"].empty() ? 100 : std::stoi(from.option["rounds"]), rounds);
    std::vector<char> used(a.size());
    for (const auto l : label) used[l] = 1;
    std::printf("rounds %d\ncommunities %td\nmodularity %.17g\n", rounds, std::count(used.begin(), used.end(), 1),
                modularity(a, label));
  });
}
