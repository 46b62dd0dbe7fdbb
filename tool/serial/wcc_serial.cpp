// SPDX-License-Identifier: BSD-3-Clause
//
// The serial oracle of weakly connected components: union-find over the edges.
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "graph.hpp"

using namespace serial;

namespace {

std::vector<std::uint32_t> weak(const edge_list& g) {
  std::vector<std::uint32_t> parent(g.ids.size());
  std::iota(parent.begin(), parent.end(), 0U);
  const auto find = [&](std::uint32_t v) {
    while (parent[v] != v) v = parent[v] = parent[parent[v]];
    return v;
  };
  for (std::size_t e = 0; e < g.from.size(); ++e) {
    const auto a = find(g.from[e]), b = find(g.to[e]);
    if (a < b) parent[b] = a;
    if (b < a) parent[a] = b;
  }
  for (std::uint32_t v = 0; v < parent.size(); ++v) parent[v] = find(v);
  return parent;
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, "", [](arguments& from) {
    const auto g = load(from.input, from.option["vertices"]);
    const auto label = weak(g);
    report(label);
    write(from.option["out"], g, [&](std::uint32_t v) { return g.ids[label[v]]; });
  });
}
