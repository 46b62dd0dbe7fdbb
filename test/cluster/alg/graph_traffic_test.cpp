// SPDX-License-Identifier: BSD-3-Clause
//
// The cost of a round as stated in the READMEs of the graph algorithms.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <vector>

#include <unistd.h>

#include "alg/bfs/bfs.hpp"
#include "alg/common/graph/move_edges.hpp"
#include "alg/k_core/k_core.hpp"
#include "alg/label_propagation/label_propagation.hpp"
#include "alg/max_vertex_value/mvv.hpp"
#include "alg/pagerank/pagerank.hpp"
#include "alg/scc/scc.hpp"
#include "alg/sssp/delta_stepping.hpp"
#include "alg/triangle_count/kept_edges.hpp"
#include "alg/triangle_count/triangle_count.hpp"
#include "test/support/cluster.hpp"
#include "test/support/counting_comm.hpp"
#include "test/support/graphs.hpp"

namespace paracel {
namespace {

using test::counting_workers;
using test::part_of;
using test::random_graph;
using test::traffic;

constexpr std::size_t workers = 3;

/// For a worker: the number of its ghosts, and how often its own vertices are ghosts on other workers.
struct border {
  std::size_t ghosts = 0;
  std::size_t shared = 0;
};
border border_of(Comm comm, const distributed_graph& part) {
  const halo h(comm, part);
  border b{part.ghosts.size(), 0};
  for (std::size_t w = 0; w < comm.get_size(); ++w) b.shared += h.shared_with(w).size();
  return b;
}

TEST(GraphTraffic, ARoundOfPageRankIsOneExchangeOf8BytesAGhostAndOneReduction) {
  const auto g = random_graph(2, 500, 4000, 2);
  counting_workers(workers).run([&](Comm comm, const traffic& count) {
    const auto part = part_of(g, comm.get_rank(), workers);
    const auto shared = border_of(comm, part).shared;
    traffic rounds[2];
    for (const int k : {0, 1}) {
      const auto before = count;
      alg::page_ranks(comm, part, {.rounds = k == 0 ? 5U : 15U});
      rounds[k] = {count.alltoalls - before.alltoalls, count.reductions - before.reductions, 0,
                   count.bytes - before.bytes};
    }
    EXPECT_EQ(rounds[1].alltoalls - rounds[0].alltoalls, 10U);
    EXPECT_EQ(rounds[1].reductions - rounds[0].reductions, 10U);
    EXPECT_EQ(rounds[1].bytes - rounds[0].bytes, 10 * 8 * shared);
  });
}

TEST(GraphTraffic, ARoundOfLabelPropagationIsOneExchangeOf8BytesAGhostAndOneReduction) {
  const auto g = random_graph(2, 500, 4000, 2);
  counting_workers(workers).run([&](Comm comm, const traffic& count) {
    const auto part = part_of(g, comm.get_rank(), workers, {.undirected = true});
    const auto shared = border_of(comm, part).shared;
    traffic rounds[2];
    for (const int k : {0, 1}) {
      const auto before = count;
      alg::propagate_labels(comm, part, k == 0 ? 0 : 1);
      rounds[k] = {count.alltoalls - before.alltoalls, count.reductions - before.reductions, 0,
                   count.bytes - before.bytes};
    }
    EXPECT_EQ(rounds[1].alltoalls - rounds[0].alltoalls, 1U);
    EXPECT_EQ(rounds[1].reductions - rounds[0].reductions, 1U);
    // At the end the sums of the modularity are sent to the owners of the labels, which change after a round.
    EXPECT_LE(rounds[1].bytes, 8 * shared + rounds[0].bytes + 16 * part.own());
  });
}

/// Shortest paths as a vertex program.
struct distance_program {
  using value_type = double;
  using message_type = double;
  static void combine(double& into, double more) { into = std::min(into, more); }
  template <class Vertex>
  void compute(Vertex& v, std::span<const double> messages) {
    v.vote_to_halt();
    const auto before = v.value();
    if (v.superstep() == 0 && v.number() == 0) v.value() = 0;
    for (const auto m : messages) v.value() = std::min(v.value(), m);
    if (v.value() == before) return;
    const auto targets = v.targets();
    for (std::size_t e = 0; e < targets.size(); ++e) v.send(targets[e], v.value() + v.weight(e));
  }
};

TEST(GraphTraffic, ASuperstepIsOneExchangeOf4BytesAndTheMessageForEachNeighbourThatWasWrittenTo) {
  const auto g = random_graph(2, 500, 2000, 1);
  counting_workers(workers).run([&](Comm comm, const traffic& count) {
    const auto part = part_of(g, comm.get_rank(), workers, {.weighted = true});
    const auto ghosts = border_of(comm, part).ghosts;
    const auto before_setup = count;
    pregel_run<distance_program> run(comm, part);
    const auto before = count;
    EXPECT_EQ(before.gathers - before_setup.gathers, 1U);
    std::ranges::fill(run.values(), std::numeric_limits<double>::infinity());
    const auto supersteps = run.run().supersteps;
    EXPECT_EQ(count.alltoalls - before.alltoalls, supersteps);
    EXPECT_EQ(count.reductions, before.reductions);
    constexpr std::size_t head = 9 * 8;
    EXPECT_LE(count.bytes - before.bytes, supersteps * (head * (workers - 1) + 12 * ghosts));
  });
}

TEST(GraphTraffic, ASearchTellsOfEachGhostOnceWith4BytesOrOneBit) {
  const auto g = random_graph(2, 500, 2000, 1);
  counting_workers(workers).run([&](Comm comm, const traffic& count) {
    const auto part = part_of(g, comm.get_rank(), workers);
    const auto border = border_of(comm, part);
    alg::level_search search(comm, part, 0);
    const auto before = count;
    while (!search.done()) search.step();
    EXPECT_EQ(count.alltoalls - before.alltoalls, search.superstep());
    EXPECT_EQ(count.reductions, before.reductions);  // there is no other direction
    constexpr std::size_t head = 6 * 8;
    EXPECT_LE(count.bytes - before.bytes, search.superstep() * head * (workers - 1) + 4 * border.ghosts);
  });
  counting_workers(workers).run([&](Comm comm, const traffic& count) {
    const auto part = part_of(g, comm.get_rank(), workers, {.undirected = true});
    const auto border = border_of(comm, part);
    alg::level_search search(comm, part, 0);
    const auto before = count;
    while (!search.done()) search.step();
    EXPECT_GT(search.bottom_up_steps(), 0U);
    EXPECT_EQ(count.alltoalls - before.alltoalls, search.superstep());
    EXPECT_LE(count.reductions - before.reductions, search.superstep());
    constexpr std::size_t head = 6 * 8;
    EXPECT_LE(count.bytes - before.bytes, search.superstep() * (head + 1) * (workers - 1) + 4 * border.ghosts +
                                              search.bottom_up_steps() * border.shared / 8);
  });
}

TEST(GraphTraffic, ASuperstepOfShortestPathsIsOneExchangeOf12BytesForEachGhostThatCameNearer) {
  const auto g = random_graph(2, 500, 2000, 1);
  counting_workers(workers).run([&](Comm comm, const traffic& count) {
    const auto part = part_of(g, comm.get_rank(), workers, {.weighted = true});
    const auto ghosts = border_of(comm, part).ghosts;
    alg::delta_stepping search(comm, part, 0);
    const auto before = count;
    while (!search.done()) search.step();
    EXPECT_EQ(count.alltoalls - before.alltoalls, search.superstep());
    EXPECT_EQ(count.reductions, before.reductions);
    constexpr std::size_t head = 5 * 8;
    EXPECT_LE(count.bytes - before.bytes, search.superstep() * (head * (workers - 1) + 12 * ghosts));
  });
}

TEST(GraphTraffic, RankZeroGathersTheEdgesOfTheOthersWith4BytesForEach) {
  const auto g = random_graph(2, 500, 3000, 2);
  counting_workers(workers).run([&](Comm comm, const traffic& count) {
    const auto part = part_of(g, comm.get_rank(), workers, {.undirected = true, .once = true});
    const auto before = count;
    const auto found = alg::core_numbers(comm, part);
    EXPECT_EQ(found.rounds, 1U);
    EXPECT_EQ(count.alltoalls - before.alltoalls, workers + 1);
    const auto bytes = comm.get_rank() > 0 ? 4 * part.out.target.size() + 8 * (part.own() + part.ghosts.size())
                                           : 4 * (part.vertices_total() - part.own());
    EXPECT_EQ(count.bytes - before.bytes, bytes + 2 * 8 * (workers - 1));
  });
}

TEST(GraphTraffic, ARoundOfCoreNumbersIsOneExchangeOf4BytesAGhostAndOneReduction) {
  const auto g = random_graph(2, 500, 3000, 2);
  counting_workers(workers).run([&](Comm comm, const traffic& count) {
    const auto part = part_of(g, comm.get_rank(), workers, {.undirected = true});
    const auto start = count;
    const auto shared = border_of(comm, part).shared;
    const auto before = count;
    const auto found = alg::core_numbers(comm, part);
    const auto halo_bytes = before.bytes - start.bytes;
    EXPECT_EQ(count.bytes - before.bytes, halo_bytes + found.rounds * 4 * shared);
    EXPECT_EQ(count.reductions - before.reductions, (before.reductions - start.reductions) + found.rounds + 2);
  });
}

TEST(GraphTraffic, TrianglesFetchAListOnceAtMost) {
  const auto g = random_graph(2, 500, 6000, 2);
  counting_workers(workers).run([&](Comm comm, const traffic&) {
    auto part = part_of(g, comm.get_rank(), workers, {.undirected = true, .once = true});
    const auto found = alg::count_triangles(comm, part, false);
    EXPECT_EQ(found.rounds, 1U);
    // At most the kept lists of all ghosts, with 12 bytes for elements of third workers.
    EXPECT_LE(found.fetched_bytes, 12 * 6000U + 8 * part.ghosts.size());
  });
}

TEST(GraphTraffic, AnEdgeIsKeptAtItsEndOfLowerDegreeWith8BytesIfItMoves) {
  const auto g = random_graph(2, 500, 6000, 2);
  const auto all = part_of(g, 0, 1, {.undirected = true});
  counting_workers(workers).run([&](Comm comm, const traffic& count) {
    auto part = part_of(g, comm.get_rank(), workers, {.undirected = true, .once = true});
    const auto start = count;
    const auto shared = border_of(comm, part).shared;
    const auto ghosts = part.ghosts.size();
    const auto before = count;
    const auto degree = alg::keep_at_lower_ends(comm, part, 1U << 20U);
    const auto low = part.first[part.rank];
    ASSERT_EQ(degree.size(), part.own());
    std::set<std::uint64_t> seen;
    for (std::size_t v = 0; v < part.own(); ++v) {
      EXPECT_EQ(degree[v], all.out.degree(low + v));
      std::vector<std::uint64_t> kept, want;
      for (const auto t : part.out.of(v)) kept.push_back(part.number(t));
      for (const auto t : all.out.of(low + v)) {
        const auto theirs = all.out.degree(t), mine = all.out.degree(low + v);
        if (theirs != mine ? theirs > mine : t < low + v) want.push_back(t);
      }
      std::sort(kept.begin(), kept.end());
      EXPECT_EQ(kept, want) << low + v;
      for (const auto n : kept)
        if (n < low || n >= low + part.own()) seen.insert(n);
    }
    EXPECT_EQ(part.ghosts, std::vector<std::uint64_t>(seen.begin(), seen.end()));
    // Building the halo, degrees there and back, and edges: a third of the 6000 and a header for each worker at most.
    const auto halo_bytes = before.bytes - start.bytes;
    EXPECT_LE(count.bytes - before.bytes, halo_bytes + 4 * (shared + ghosts) + 8 * 6000U / 3 + 16 * workers);
  });
}

TEST(GraphTraffic, EdgesThatAreKeptAndGivenAreAtBothEnds) {
  const auto g = random_graph(2, 500, 3000, 2);
  counting_workers(workers).run([&](Comm comm, const traffic&) {
    const auto both = part_of(g, comm.get_rank(), workers, {.undirected = true});
    auto part = part_of(g, comm.get_rank(), workers, {.undirected = true, .once = true});
    const auto always = [](std::uint32_t, std::uint32_t) { return true; };
    alg::move_edges(comm, part, 1000, always, always);
    EXPECT_EQ(part.ghosts, both.ghosts);
    for (std::size_t v = 0; v < both.own(); ++v)
      EXPECT_TRUE(std::ranges::is_permutation(part.out.of(v), both.out.of(v))) << v;
  });
}

TEST(GraphTraffic, TriangleListsOfManyWorkersAreFetchedInRounds) {
  const auto g = random_graph(3, 200, 2500, 2);
  auto alone = part_of(g, 0, 1, {.undirected = true, .once = true});
  std::uint64_t want = 0;
  counting_workers(1).run(
      [&](Comm comm, const traffic&) { want = alg::count_triangles(comm, alone, false).triangles; });
  counting_workers(workers).run([&](Comm comm, const traffic&) {
    auto part = part_of(g, comm.get_rank(), workers, {.undirected = true, .once = true});
    const auto found = alg::count_triangles(comm, part, false, 256);
    EXPECT_GT(found.rounds, 1U);
    EXPECT_EQ(found.triangles, want);
  });
}

TEST(GraphTraffic, ARoundOfMvvIsAnUpdateAndAReadAShard) {
  const auto folder = std::filesystem::temp_directory_path() / ("graph_traffic_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream edges(folder / "edges");
  for (int k = 0; k < 40; ++k) edges << 100 - k << ' ' << 99 - k << '\n';  // 41 vertices in a row, 41 rounds
  edges.close();
  const auto path = folder.string();
  const auto settings = parse_settings<alg::mvv_settings>(
      "test", R"({"input": ")" + path + R"(/edges", "output": ")" + path + R"(/out", "dump": false})");
  constexpr std::size_t servers = 2;
  test::cluster c({.workers = workers, .servers = servers});
  c.run([&](Comm comm) { alg::max_vertex_value(comm, "", settings).solve(); });
  // An update and a read by each worker for each server that has pieces, and the requests of the barriers.
  EXPECT_LE(c.requests_served(), (41 + 3) * workers * servers * 4);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace paracel
