// SPDX-License-Identifier: BSD-3-Clause
//
// The local parts of the graph algorithms.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "alg/common/graph/union_find.hpp"
#include "alg/k_core/k_core.hpp"
#include "alg/label_propagation/label_propagation.hpp"
#include "alg/pagerank/pagerank.hpp"
#include "alg/scc/scc.hpp"
#include "test/support/graphs.hpp"

namespace paracel::alg {
namespace {

TEST(UnionFind, ASetIsItsLeastElement) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    std::mt19937 random(seed);
    const std::size_t n = 200;
    union_find sets(n);
    std::vector<std::uint32_t> label(n);
    for (std::size_t v = 0; v < n; ++v) label[v] = static_cast<std::uint32_t>(v);
    for (int k = 0; k < 150; ++k) {
      const auto a = static_cast<std::uint32_t>(random() % n), b = static_cast<std::uint32_t>(random() % n);
      sets.unite(a, b);
      const auto from = std::max(label[a], label[b]), to = std::min(label[a], label[b]);
      for (auto& l : label)
        if (l == from) l = to;
      for (std::uint32_t v = 0; v < n; ++v) ASSERT_EQ(sets.find(v), label[v]);
    }
  }
}

TEST(StrongComponents, TwoVerticesAreTogetherIfEachReachesTheOther) {
  for (const unsigned seed : {1U, 2U, 3U, 4U, 5U}) {
    const auto g = test::random_graph(seed, 120, 100 + 60 * seed, 1 + seed % 3, true);
    const auto part = test::part_of(g, 0, 1);
    std::vector<std::uint32_t> component(g.vertices);
    const auto n = strong_components(part.out.begin, part.out.target, component);
    std::vector<std::vector<char>> reach(g.vertices, std::vector<char>(g.vertices));
    for (std::uint64_t v = 0; v < g.vertices; ++v) reach[v][v] = 1;
    for (const auto& e : g.edges) reach[e.from][e.to] = 1;
    for (std::uint64_t k = 0; k < g.vertices; ++k)
      for (std::uint64_t a = 0; a < g.vertices; ++a)
        for (std::uint64_t b = 0; b < g.vertices && reach[a][k] != 0; ++b) reach[a][b] |= reach[k][b];
    for (std::uint64_t a = 0; a < g.vertices; ++a) {
      ASSERT_LT(component[a], n);
      for (std::uint64_t b = 0; b < g.vertices; ++b) {
        ASSERT_EQ(component[a] == component[b], reach[a][b] != 0 && reach[b][a] != 0);
        if (reach[a][b] != 0) {
          ASSERT_GE(component[a], component[b]);
        }
      }
    }
  }
}

TEST(StrongComponents, APathOfAMillionVerticesNeedsNoDeepStack) {
  const std::uint32_t n = 1'000'000;
  std::vector<std::uint64_t> begin(n + 1);
  std::vector<std::uint32_t> target;
  for (std::uint32_t v = 0; v < n; ++v) {
    if (v + 1 < n) target.push_back(v + 1);
    begin[v + 1] = target.size();
  }
  std::vector<std::uint32_t> component(n);
  EXPECT_EQ(strong_components(begin, target, component), n);
  target.push_back(0);  // closes the ring
  ++begin[n];
  EXPECT_EQ(strong_components(begin, target, component), 1U);
}

TEST(LabelPropagation, TheMostFrequentLabelWinsAndOfThoseTheSmallest) {
  label_counts counts;
  const auto most_frequent = [&](const std::vector<std::uint64_t>& labels) {
    for (const auto label : labels) counts.add(label);
    return counts.take();
  };
  EXPECT_EQ(most_frequent({5, 3, 5, 9, 3}), 3U);
  EXPECT_EQ(most_frequent({7, 5, 7}), 7U);
  EXPECT_EQ(most_frequent({8}), 8U);
  counts.add(4, 2);
  counts.add(9, 3);
  counts.add(4);
  EXPECT_EQ(counts.take(), 4U);
  // Thousands of distinct labels and few, in turn, against counts in order.
  std::mt19937_64 random(1);
  for (const std::uint64_t distinct : {1U, 5000U, 3U, 200U, 100000U, 30U, 129U, 128U, 127U}) {
    std::map<std::uint64_t, std::uint64_t> times;
    std::vector<std::uint64_t> labels;
    for (int i = 0; i < 20000; ++i) {
      labels.push_back((random() % distinct) << (distinct % 2 * 40));
      ++times[labels.back()];
    }
    const auto more = [](const auto& a, const auto& b) { return a.second < b.second; };
    EXPECT_EQ(most_frequent(labels), std::ranges::max_element(times, more)->first) << distinct;
  }
}

/// The first `own` vertices of a graph as the part of worker 0; the others are its ghosts.
distributed_graph first_vertices(const test::test_graph& g, std::uint32_t own) {
  auto part = test::part_of(g, 0, 1, {.undirected = true});
  part.first = {0, own, g.vertices};
  for (std::uint64_t v = own; v < g.vertices; ++v) part.ghosts.push_back(v);
  part.out.begin.resize(own + 1);
  part.out.target.resize(part.out.begin[own]);
  return part;
}

std::vector<std::uint32_t> bounds_with(const distributed_graph& part, const std::vector<std::uint32_t>& ghosts) {
  core_bounds bounds(part);
  bounds.lower(ghosts);
  return {bounds.own().begin(), bounds.own().end()};
}

TEST(CoreBounds, GhostsHoldTheirNeighboursUpToTheirBound) {
  // A triangle 0 1 2 whose vertices are all adjacent to ghost 3 (a vertex of worker 1).
  test::test_graph g;
  g.vertices = 4;
  g.edges = {{0, 1, 1}, {1, 2, 1}, {0, 2, 1}, {0, 3, 1}, {1, 3, 1}, {2, 3, 1}};
  const auto part = first_vertices(g, 3);
  EXPECT_EQ(bounds_with(part, {3}), (std::vector<std::uint32_t>{3, 3, 3}));
  EXPECT_EQ(bounds_with(part, {1}), (std::vector<std::uint32_t>{2, 2, 2}));
  EXPECT_EQ(bounds_with(part, {100}), (std::vector<std::uint32_t>{3, 3, 3}));
}

TEST(CoreBounds, ThoseThatFallStepByStepAreThoseOfTheLastBoundsAlone) {
  for (const unsigned seed : {1U, 2U, 3U, 4U, 5U}) {
    constexpr std::uint32_t own = 120, all = 200;
    test::test_graph g;
    g.vertices = all;
    std::mt19937 random(seed);
    for (std::uint32_t u = 0; u < all; ++u)
      for (std::uint32_t v = u + 1; v < all; ++v)
        if (random() % 12 == 0) g.edges.push_back({u, v, 1});
    const auto part = first_vertices(g, own);
    std::vector<std::uint32_t> ghosts(all - own, 30);
    core_bounds bounds(part);
    bounds.lower(ghosts);
    std::size_t fell = 0;
    for (std::uint64_t step = 0; step < 300; ++step) {
      auto& one = ghosts[step * 37 % ghosts.size()];
      one -= std::min<std::uint32_t>(one, 1 + static_cast<std::uint32_t>(step % 9));
      fell += bounds.lower(ghosts) ? 1 : 0;
      ASSERT_EQ(std::vector<std::uint32_t>(bounds.own().begin(), bounds.own().end()), bounds_with(part, ghosts))
          << "seed " << seed << ", step " << step;
    }
    EXPECT_GT(fell, 20U);
    EXPECT_FALSE(bounds.lower(ghosts));
  }
}

TEST(PageRank, SumsAlongEdgesAreWeighted) {
  adjacency edges;
  edges.begin = {0, 2, 2, 3};
  edges.target = {1, 2, 0};
  const std::vector<double> values{1, 10, 100};
  std::vector<double> out(3);
  sum_along_edges(edges, values, out);
  EXPECT_EQ(out, (std::vector<double>{110, 0, 1}));
  edges.weight = {2, 0.5, 3};
  sum_along_edges(edges, values, out);
  EXPECT_EQ(out, (std::vector<double>{70, 0, 3}));
}

}  // namespace
}  // namespace paracel::alg
