// SPDX-License-Identifier: BSD-3-Clause
//
// Serial core numbers: vertices in the order of their degrees, in one bucket array (Batagelj, Zaversnik).
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "graph.hpp"

using namespace serial;

namespace {

std::vector<std::uint32_t> cores(const csr& a) {
  const auto n = a.size();
  std::vector<std::uint32_t> degree(n), order(n), place(n);
  std::uint32_t most = 0;
  for (std::uint32_t v = 0; v < n; ++v) {
    degree[v] = static_cast<std::uint32_t>(a.begin[v + 1] - a.begin[v]);
    most = std::max(most, degree[v]);
  }
  std::vector<std::uint32_t> start(most + 2);
  for (const auto d : degree) ++start[d + 1];
  for (std::uint32_t d = 0; d <= most; ++d) start[d + 1] += start[d];
  auto next = start;
  for (std::uint32_t v = 0; v < n; ++v) {
    place[v] = next[degree[v]]++;
    order[place[v]] = v;
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    const auto v = order[i];
    for (auto e = a.begin[v]; e < a.begin[v + 1]; ++e) {
      const auto u = a.target[e];
      if (degree[u] <= degree[v]) continue;
      const auto first = std::max(start[degree[u]], i + 1);
      const auto other = order[first];
      std::swap(order[place[u]], order[first]);
      std::swap(place[u], place[other]);
      start[degree[u]] = first + 1;
      --degree[u];
    }
  }
  return degree;
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, "", [](arguments& from) {
    const auto g = load(from.input);
    const auto core = cores(compress(g, true));
    const auto greatest = core.empty() ? 0 : *std::max_element(core.begin(), core.end());
    std::printf("degeneracy %u\nvertices_of_that_core %td\n", greatest, std::count(core.begin(), core.end(), greatest));
  });
}
