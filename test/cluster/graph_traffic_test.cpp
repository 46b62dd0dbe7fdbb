// SPDX-License-Identifier: BSD-3-Clause
//
// The cost of a round as stated in the READMEs of the graph algorithms.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "alg/bfs/bfs.hpp"
#include "alg/k_core/k_core.hpp"
#include "alg/label_propagation/label_propagation.hpp"
#include "alg/max_vertex_value/mvv.hpp"
#include "alg/pagerank/pagerank.hpp"
#include "alg/scc/scc.hpp"
#include "alg/sssp/sssp.hpp"
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

TEST(GraphTraffic, ASuperstepIsOneExchangeOf4BytesAndTheMessageForEachNeighbourThatWasWrittenTo) {
  const auto g = random_graph(2, 500, 2000, 1);
  counting_workers(workers).run([&](Comm comm, const traffic& count) {
    const auto part = part_of(g, comm.get_rank(), workers, {.weighted = true});
    const auto ghosts = border_of(comm, part).ghosts;
    const auto before_setup = count;
    pregel_run<alg::sssp_program> run(comm, part, {0});
    const auto before = count;
    EXPECT_EQ(before.gathers - before_setup.gathers, 1U);
    std::ranges::fill(run.values(), std::numeric_limits<double>::infinity());
    const auto supersteps = run.run().supersteps;
    EXPECT_EQ(count.alltoalls - before.alltoalls, supersteps);
    EXPECT_EQ(count.reductions, before.reductions);
    constexpr std::size_t head = 9 * 8;
    EXPECT_LE(count.bytes - before.bytes, supersteps * (head * (workers - 1) + 12 * ghosts));

    // A search sends a message to a neighbour once or twice: one bit for each, or 5 bytes for those reached.
    const auto between = count;
    const auto found = alg::breadth_first_levels(comm, part, 0);
    const auto most = (found.depth + 2) * (head * (workers - 1) + ghosts / 8 + ghosts + 2) + 8 * ghosts;
    EXPECT_LE(count.bytes - between.bytes, most);
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
    const auto part = part_of(g, comm.get_rank(), workers, {.undirected = true});
    const auto found = alg::count_triangles(comm, part, false);
    EXPECT_EQ(found.rounds, 1U);
    // At most the kept lists of all ghosts, with 12 bytes for elements of third workers.
    EXPECT_LE(found.fetched_bytes, 12 * 6000U + 8 * part.ghosts.size());
  });
}

TEST(GraphTraffic, ARoundOfMvvIsAnUpdateAndAReadAShard) {
  const auto folder = std::filesystem::temp_directory_path() / ("graph_traffic_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream edges(folder / "edges");
  for (int k = 0; k < 40; ++k) edges << 100 - k << ' ' << 99 - k << '\n';  // 41 vertices in a row, 41 rounds
  edges.close();
  const auto path = folder.string();
  const auto config = alg::mvv_schema().check_text(
      "test", R"({"input": ")" + path + R"(/edges", "output": ")" + path + R"(/out", "dump": false})");
  constexpr std::size_t servers = 2;
  test::cluster c({.workers = workers, .servers = servers});
  c.run([&](Comm comm) { alg::max_vertex_value(comm, "", alg::mvv_settings(config)).solve(); });
  // An update and a read by each worker for each server that has pieces, and the requests of the barriers.
  EXPECT_LE(c.requests_served(), (41 + 3) * workers * servers * 4);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace paracel
