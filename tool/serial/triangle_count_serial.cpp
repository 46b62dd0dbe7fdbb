// SPDX-License-Identifier: BSD-3-Clause
//
// The serial oracle of triangles: each edge is kept at its end of lower degree, and the lists of both ends are compared
// by marks (Schank, Wagner).
#include <cstdint>
#include <cstdio>
#include <vector>

#include "graph.hpp"

using namespace serial;

int main(int argc, char** argv) {
  return run(argc, argv, "", [](arguments& from) {
    const auto g = load(from.input, from.option["vertices"]);
    auto a = compress(g, true);
    const auto n = a.size();
    const auto before = [&](std::uint32_t u, std::uint32_t v) {
      const auto du = a.begin[u + 1] - a.begin[u], dv = a.begin[v + 1] - a.begin[v];
      return du < dv || (du == dv && u < v);
    };
    csr kept;
    kept.begin.push_back(0);
    for (std::uint32_t u = 0; u < n; ++u) {
      for (auto e = a.begin[u]; e < a.begin[u + 1]; ++e)
        if (before(u, a.target[e])) kept.target.push_back(a.target[e]);
      kept.begin.push_back(kept.target.size());
    }
    std::vector<std::uint8_t> mark(n);
    std::uint64_t triangles = 0;
    for (std::uint32_t u = 0; u < n; ++u) {
      for (auto e = kept.begin[u]; e < kept.begin[u + 1]; ++e) mark[kept.target[e]] = 1;
      for (auto e = kept.begin[u]; e < kept.begin[u + 1]; ++e) {
        const auto v = kept.target[e];
        for (auto f = kept.begin[v]; f < kept.begin[v + 1]; ++f) triangles += mark[kept.target[f]];
      }
      for (auto e = kept.begin[u]; e < kept.begin[u + 1]; ++e) mark[kept.target[e]] = 0;
    }
    std::printf("triangles %llu\n", static_cast<unsigned long long>(triangles));
  });
}
