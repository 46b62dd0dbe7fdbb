// SPDX-License-Identifier: BSD-3-Clause
#include "alg/steady_state_inversion/steady_state_inversion.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include <paracel/random.hpp>

namespace paracel::alg {
namespace {

double received(const steady_edges& edges, double x) {
  double q = 0;
  for (std::size_t k = 0; k < edges.mass.size(); ++k)
    q += edges.mass[k] * edges.weight[k] * x / (edges.weight[k] * x + edges.rest[k]);
  return q;
}

TEST(SteadyRoot, OfOneEdgeIsTheClosedForm) {
  // m w x / (w x + c) = t  =>  x = t c / (w (m - t))
  for (const double target : {1e-9, 0.1, 0.29999}) {
    const steady_edges edges{{0.3}, {2}, {5}};
    EXPECT_NEAR(steady_root(edges, target, 1e-12) / (target * 5 / (2 * (0.3 - target))), 1, 1e-9);
  }
}

TEST(SteadyRoot, GivesTheTargetForManyEdgesFromAnyStartBelow) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    counter_random random(seed);
    steady_edges edges;
    double most = 0;
    for (std::uint64_t n = 1 + random.below(20); n > 0; --n) {
      const double rest = random.below(5) == 0 ? 0 : std::exp(5 * random.normal());
      edges.mass.push_back(random.uniform_above_zero());
      edges.weight.push_back(std::exp(2 * random.normal()));
      edges.rest.push_back(rest);
      most += edges.mass.back();
    }
    edges.rest[0] = 1;  // otherwise the whole mass arrives for any x
    double floor = 0;
    for (std::size_t k = 0; k < edges.mass.size(); ++k) floor += edges.rest[k] == 0 ? edges.mass[k] : 0;
    const double target = floor + (most - floor) * (0.001 + 0.99 * random.uniform());
    const double x = steady_root(edges, target, 1e-30);
    EXPECT_NEAR(received(edges, x) / target, 1, 1e-12) << seed;
    EXPECT_NEAR(steady_root(edges, target, x / 2) / x, 1, 1e-9) << seed;
  }
}

TEST(SteadyRoot, IsInfiniteWhenAllMassesDoNotExceedTheTarget) {
  const steady_edges edges{{0.25, 0.25}, {1, 1}, {1, 1}};
  EXPECT_EQ(steady_root(edges, 0.5, 1), std::numeric_limits<double>::infinity());
  EXPECT_EQ(steady_root({}, 0.5, 1), std::numeric_limits<double>::infinity());
}

using edge_list = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

TEST(Shortage, IsParacelsExample) {
  // A to B, C; B to A, C; C to D; D to A.
  const std::vector<double> p{0.16665, 0.125, 0.125, 0.08333};
  const auto s = find_infeasibility(p, p, edge_list{{0, 1}, {0, 2}, {1, 0}, {1, 2}, {2, 3}, {3, 0}});
  EXPECT_EQ(s.right, (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ(s.left, (std::vector<std::uint32_t>{0, 1, 3}));
  EXPECT_NEAR(s.wanted, 0.41665, 1e-12);
  EXPECT_NEAR(s.available, 0.37498, 1e-12);
  EXPECT_EQ(s.full_right, std::vector<std::uint32_t>{3});
  EXPECT_EQ(s.full_left, std::vector<std::uint32_t>{2});
  EXPECT_NEAR(s.pushed, 0.125, 1e-12);
  EXPECT_NEAR(s.room, 0.08333, 1e-12);
}

TEST(Shortage, ExistsJustWhenSomeSetWantsMoreThanLeadsToIt) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    counter_random random(seed, 7);
    const std::size_t n = 1 + random.below(6);
    const std::size_t m = 1 + random.below(6);
    edge_list edges;
    for (std::uint32_t l = 0; l < n; ++l) {
      for (std::uint32_t r = 0; r < m; ++r) {
        if (random.below(3) == 0) edges.emplace_back(l, r);
      }
    }
    // Integers, so that sums are exact and ties occur.
    std::vector<double> supply(n);
    std::vector<double> demand(m);
    for (auto& v : supply) v = static_cast<double>(random.below(6));
    for (auto& v : demand) v = static_cast<double>(random.below(5));
    bool short_set = false;
    for (std::uint32_t set = 1; set < 1U << m; ++set) {
      double wanted = 0;
      double available = 0;
      for (std::uint32_t r = 0; r < m; ++r) wanted += (set >> r & 1U) != 0 ? demand[r] : 0;
      for (std::uint32_t l = 0; l < n; ++l) {
        bool leads = false;
        for (const auto& [a, b] : edges) leads = leads || (a == l && (set >> b & 1U) != 0);
        available += leads ? supply[l] : 0;
      }
      short_set = short_set || wanted > available;
    }
    const auto s = find_infeasibility(supply, demand, edges);
    EXPECT_EQ(s.exists(), short_set) << seed;
    if (!s.exists()) continue;
    // The certificate, checked by its own numbers.
    const std::set<std::uint32_t> right(s.right.begin(), s.right.end());
    const std::set<std::uint32_t> left(s.left.begin(), s.left.end());
    double wanted = 0;
    double available = 0;
    for (const auto r : right) wanted += demand[r];
    for (const auto l : left) available += supply[l];
    for (const auto& [l, r] : edges) EXPECT_TRUE(!right.contains(r) || left.contains(l)) << seed;
    EXPECT_EQ(wanted, s.wanted);
    EXPECT_EQ(available, s.available);
    EXPECT_GT(wanted, available) << seed;
  }
}

TEST(Shortage, OfALongChainIsFoundWithoutDeepRecursion) {
  // Each right vertex demands exactly what its two neighbours can supply; moving the last unit shifts all the others.
  const std::uint32_t n = 20000;
  edge_list edges;
  for (std::uint32_t i = 0; i < n; ++i) {
    edges.emplace_back(i, i);
    if (i + 1 < n) edges.emplace_back(i, i + 1);
  }
  const std::vector<double> supply(n, 1);
  std::vector<double> demand(n, 1);
  EXPECT_FALSE(find_infeasibility(supply, demand, edges).exists());
  demand[0] = 1.5;
  EXPECT_TRUE(find_infeasibility(supply, demand, edges).exists());
}

}  // namespace
}  // namespace paracel::alg
