// SPDX-License-Identifier: BSD-3-Clause
//
// Shortest paths with weights whose mean says little about the distances: zeros, subnormal and very large numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "alg/sssp/sssp.hpp"
#include "test/support/counting_comm.hpp"
#include "test/support/graphs.hpp"

namespace paracel {
namespace {

TEST(DeltaStepping, WeightsOfZeroAndVerySmallAndLargeOnes) {
  for (const double scale : {0.0, 1e-310, 1e300}) {
    auto g = test::random_graph(8, 200, 1000);
    for (auto& e : g.edges) e.weight = e.weight > 60 ? 0 : e.weight * scale;
    std::vector<double> want(g.vertices, std::numeric_limits<double>::infinity());
    want[0] = 0;
    for (std::uint64_t round = 0; round < g.vertices; ++round)
      for (const auto& e : g.edges) want[e.to] = std::min(want[e.to], want[e.from] + e.weight);
    test::counting_workers(2).run([&](Comm comm, const test::traffic&) {
      const auto part = test::part_of(g, comm.get_rank(), 2, {.weighted = true});
      const auto found = alg::shortest_paths(comm, part, 0);
      for (std::size_t v = 0; v < part.own(); ++v) EXPECT_EQ(found.distances[v], want[part.number(v)]) << scale;
    });
  }
}

}  // namespace
}  // namespace paracel
