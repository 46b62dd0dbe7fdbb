// SPDX-License-Identifier: BSD-3-Clause
//
// Graphs loaded by several workers are compared with a map of maps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/distributed_graph.hpp>
#include <paracel/error.hpp>

#include "test/support/cluster.hpp"
#include "test/support/entry_files.hpp"
#include "test/support/temporary_folder.hpp"

namespace paracel::test::entries {
namespace {

struct whole_graph {
  std::vector<std::string> ids;
  std::vector<std::tuple<std::uint64_t, std::uint64_t, double>> out, in;
  std::uint64_t edges_total = 0;
  std::vector<std::uint64_t> loads;  // stored entries, by worker
};

void check_adjacency(const distributed_graph& g, const adjacency& a) {
  ASSERT_EQ(a.begin.size(), g.own() + 1);
  ASSERT_EQ(a.begin.back(), a.target.size());
  for (std::size_t v = 0; v < g.own(); ++v) {
    const auto targets = a.of(v);
    for (std::size_t k = 0; k < targets.size(); ++k) {
      ASSERT_LT(targets[k], g.own() + g.ghosts.size());
      if (k > 0) {
        ASSERT_LE(g.number(targets[k - 1]), g.number(targets[k]));
      }
    }
  }
}

whole_graph gather_graph(std::size_t workers, const std::vector<std::string>& files, const graph_options& options) {
  cluster job({.workers = workers});
  std::mutex mutex;
  std::vector<whole_graph> parts(workers);
  job.run([&](Comm comm) {
    const auto g = load_graph(comm, files, options);
    const auto rank = comm.get_rank();
    const std::lock_guard lock(mutex);
    ASSERT_EQ(g.rank, rank);
    ASSERT_EQ(g.ids.size(), g.own());
    ASSERT_TRUE(std::ranges::is_sorted(g.ghosts));
    check_adjacency(g, g.out);
    std::set<std::uint32_t> used(g.out.target.begin(), g.out.target.end());
    if (options.incoming) {
      check_adjacency(g, g.in);
      used.insert(g.in.target.begin(), g.in.target.end());
    }
    for (std::size_t i = 0; i < g.ghosts.size(); ++i) {
      ASSERT_TRUE(used.contains(static_cast<std::uint32_t>(g.own() + i)));
      ASSERT_NE(g.owner(g.ghosts[i]), rank);
      ASSERT_LT(g.ghosts[i], g.vertices_total());
    }
    auto& p = parts[rank];
    for (std::size_t v = 0; v < g.own(); ++v) {
      p.ids.push_back(g.ids.text(v));
      ASSERT_EQ(g.owner(g.number(v)), rank);
      const auto all = [&](const adjacency& a, auto& to) {
        for (std::size_t k = 0; k < a.of(v).size(); ++k)
          to.emplace_back(g.number(v), g.number(a.of(v)[k]), a.weight_at(a.begin[v] + k));
      };
      all(g.out, p.out);
      if (options.incoming) all(g.in, p.in);
    }
    p.edges_total = g.edges_total;
    p.loads.push_back(g.out.target.size() + g.in.target.size());
  });
  whole_graph all;
  for (const auto& p : parts) {
    all.ids.insert(all.ids.end(), p.ids.begin(), p.ids.end());
    all.out.insert(all.out.end(), p.out.begin(), p.out.end());
    all.in.insert(all.in.end(), p.in.begin(), p.in.end());
    all.loads.insert(all.loads.end(), p.loads.begin(), p.loads.end());
    EXPECT_EQ(p.edges_total, parts[0].edges_total);
  }
  all.edges_total = parts[0].edges_total;
  return all;
}

void expect_graph(const whole_graph& got, const std::vector<entry>& edges, const std::vector<std::string>& also,
                  const graph_options& options, bool numeric) {
  std::set<std::string, id_less> vertices(id_less{numeric});
  for (const auto& e : edges) {
    vertices.insert(e.row);
    vertices.insert(e.column);
  }
  vertices.insert(also.begin(), also.end());
  ASSERT_EQ(got.ids, std::vector<std::string>(vertices.begin(), vertices.end()));
  std::map<std::string, std::uint64_t> number;
  for (const auto& v : vertices) number.emplace(v, number.size());
  std::map<std::pair<std::uint64_t, std::uint64_t>, double> out, in;
  const auto add = [&](auto& to, std::uint64_t a, std::uint64_t b, double w) {
    const auto [at, fresh] = to.try_emplace({a, b}, w);
    if (!fresh) at->second += w;
  };
  for (const auto& e : edges) {
    auto a = number[e.row];
    auto b = number[e.column];
    if (options.entries.transpose) std::swap(a, b);
    if (a == b && !options.self_loops) continue;
    add(out, a, b, e.value);
    add(in, b, a, e.value);
    if (options.undirected && a != b) {
      add(out, b, a, e.value);
      add(in, a, b, e.value);
    }
  }
  const auto as_list = [&](const auto& m) {
    std::vector<std::tuple<std::uint64_t, std::uint64_t, double>> list;
    for (const auto& [k, w] : m) list.emplace_back(k.first, k.second, options.weighted ? w : 1);
    return list;
  };
  ASSERT_EQ(got.out, as_list(out));
  if (options.incoming) {
    ASSERT_EQ(got.in, as_list(in));
  }
  std::uint64_t total = 0;
  for (const auto& [k, w] : out) total += !options.undirected || k.first <= k.second ? 1 : 0;
  ASSERT_EQ(got.edges_total, total);
}

TEST(LoadGraph, IsWhatAMapOfItsEdgesHas) {
  const temporary_folder here;
  std::vector<std::string> also_ids;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const bool numeric = seed % 3 != 2;
    const auto id = seed % 3 == 0 ? plain : seed % 3 == 1 ? scattered : named;
    auto edges = random_entries(seed, 2000, 150, 200, id);
    edges.push_back({id(3), id(3), 0.5});
    std::vector<std::string> also;
    std::string also_text;
    for (std::uint64_t i = 190; i < 260; i += 3) {
      also.push_back(id(i));
      also_text += id(i) + "\tsaid of it\n";
    }
    graph_options options;
    options.weighted = seed % 2 == 0;
    options.undirected = seed % 4 >= 2;
    options.incoming = seed % 5 < 3;
    options.self_loops = seed != 4;
    options.entries.transpose = seed == 1 || seed == 5;
    if (seed != 3) options.entries.rows_also = {here.write("nodes", also_text)};
    else also.clear();
    const auto file = here.write("edges", text_of(edges));
    for (const auto workers : worker_counts)
      expect_graph(gather_graph(workers, {file}, options), edges, also, options, numeric);
  }
}

TEST(LoadGraph, AnEdgeMayBeAtOneOfItsEndsOnly) {
  const temporary_folder here;
  for (const std::uint64_t seed : {1U, 2U}) {
    auto edges = random_entries(seed, 5000, 300, 300, seed == 1 ? scattered : named);
    edges.push_back({edges[0].column, edges[0].row, 0.5});
    edges.push_back({edges[1].row, edges[1].row, 0.25});
    const auto file = here.write("edges", text_of(edges));
    graph_options options;
    options.undirected = true;
    options.weighted = true;
    options.self_loops = seed == 1;
    for (const auto workers : worker_counts) {
      options.once = false;
      const auto both = gather_graph(workers, {file}, options);
      options.once = true;
      auto once = gather_graph(workers, {file}, options);
      EXPECT_EQ(once.ids, both.ids);
      EXPECT_EQ(once.edges_total, both.edges_total);
      std::map<std::pair<std::uint64_t, std::uint64_t>, double> want, got;
      for (const auto& [a, b, w] : both.out) want[std::minmax(a, b)] = w;
      for (const auto& [a, b, w] : once.out) EXPECT_TRUE(got.emplace(std::minmax(a, b), w).second) << a << " " << b;
      EXPECT_EQ(got, want);
      for (const auto load : once.loads)
        EXPECT_LT(static_cast<double>(load), 1.2 * 5000 / static_cast<double>(workers)) << workers;
      for (const bool fits : {true, false}) {
        auto limited = options;
        limited.once_limit = edges.size() - (fits ? 0 : 1);
        EXPECT_EQ(gather_graph(workers, {file}, limited).out, fits ? once.out : both.out) << workers;
      }
    }
  }
}

TEST(LoadGraph, EdgesAreSpreadEvenly) {
  const temporary_folder here;
  const auto edges = random_entries(1, 20'000, 4000, 3000, scattered);
  const auto file = here.write("edges", text_of(edges));
  for (const auto workers : worker_counts) {
    const auto got = gather_graph(workers, {file}, {});
    for (const auto load : got.loads)
      EXPECT_LT(static_cast<double>(load), 1.15 * 20'000 / static_cast<double>(workers)) << workers;
  }
}

TEST(LoadGraph, ManyEdgesAreSpreadEvenlyByASampleOfThem) {
  const temporary_folder here;
  constexpr std::uint64_t count = 700'000;
  std::string text;
  for (std::uint64_t k = 0; k < count / 2; ++k) {  // each edge in both directions, one after the other
    const auto a = std::to_string(mix64(k) % 1000 * (mix64(k + count) % 1000));
    const auto b = std::to_string(2'000'000 + k);
    text.append(a).append(" ").append(b).append("\n").append(b).append(" ").append(a).append("\n");
  }
  const auto file = here.write("edges", text);
  const auto got = gather_graph(2, {file}, {});
  EXPECT_EQ(got.edges_total, count);
  for (const auto load : got.loads) EXPECT_LT(static_cast<double>(load), 1.15 * count / 2);
}

TEST(LoadGraph, AStarHasOneBusyWorkerAndAllItsVertices) {
  const temporary_folder here;
  std::vector<entry> edges;
  for (int i = 1; i < 500; ++i) edges.push_back({"0", std::to_string(i), 1});
  const auto file = here.write("edges", text_of(edges));
  for (const auto workers : worker_counts) expect_graph(gather_graph(workers, {file}, {}), edges, {}, {}, true);
}

TEST(LoadGraph, MoreWorkersThanLinesOrNoLineAtAll) {
  const temporary_folder here;
  const auto one = here.write("one", "5 7 2\n");
  const auto none = here.write("none", "");
  const auto nodes = here.write("nodes", "9\n3\n");
  for (const auto workers : worker_counts) {
    expect_graph(gather_graph(workers, {one}, {}), {{"5", "7", 2}}, {}, {}, true);
    expect_graph(gather_graph(workers, {none}, {}), {}, {}, {}, true);
    graph_options options;
    options.entries.rows_also = {nodes};
    expect_graph(gather_graph(workers, {none}, options), {}, {"3", "9"}, options, true);
  }
}

TEST(LoadGraph, WrongLinesOfTheVertexListAreNamed) {
  const temporary_folder here;
  graph_options options;
  options.entries.ids = entry_options::id_kind::number;
  const auto nodes = here.write("nodes", "1\n2\nx y\n");
  options.entries.rows_also = {nodes};
  const auto edges = here.write("edges", "1 2\n");
  cluster job({.workers = 2});
  try {
    job.run([&](Comm comm) { load_graph(comm, {edges}, options); });
    FAIL();
  } catch (const data_error& e) {
    EXPECT_EQ(std::string(e.what()), nodes + ":3:1: found \"x\", want an id: a whole number from 0 to 2^64 - 1");
  }
}

TEST(Halo, PullBringsTheOwnersValueAndPushFoldsInTheOrderOfTheRanks) {
  const temporary_folder here;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const auto edges = random_entries(seed, 1500, 100, 300, scattered);
    const auto file = here.write("edges", text_of(edges));
    for (const auto workers : worker_counts) {
      cluster job({.workers = workers});
      job.run([&](Comm comm) {
        const auto g = load_graph(comm, {file}, {});
        halo shared(comm, g);
        std::vector<double> own(g.own());
        for (std::size_t v = 0; v < own.size(); ++v) own[v] = static_cast<double>(g.number(v)) * 1.5;
        std::vector<double> ghost(g.ghosts.size());
        for (int round = 0; round < 3; ++round) {
          shared.pull<double>(own, ghost);
          for (std::size_t i = 0; i < ghost.size(); ++i) ASSERT_EQ(ghost[i], static_cast<double>(g.ghosts[i]) * 1.5);
        }
        // Every worker sends its rank to each of its ghosts; owners record what they receive.
        std::vector<std::uint64_t> mine(g.ghosts.size(), comm.get_rank() + 1);
        std::vector<std::uint64_t> heard(g.own());
        shared.push<std::uint64_t>(mine, heard, [](std::uint64_t& all, std::uint64_t one) { all = all * 10 + one; });
        const auto everyone = comm.allgather(g.ghosts);
        for (std::size_t v = 0; v < g.own(); ++v) {
          std::uint64_t want = 0;
          for (std::size_t w = 0; w < workers; ++w) {
            if (std::ranges::binary_search(everyone[w], g.number(v))) want = want * 10 + w + 1;
          }
          ASSERT_EQ(heard[v], want);
        }
      });
    }
  }
}

TEST(LoadGraph, DebianDependenciesHaveAllTheirVertices) {
  const auto edges = shared_data("debian-deps/edges.txt");
  if (!std::filesystem::exists(edges)) GTEST_SKIP() << edges << " is not there";
  for (const std::size_t workers : {1, 2}) {
    cluster job({.workers = workers});
    job.run([&](Comm comm) {
      EXPECT_EQ(load_graph(comm, {edges}).vertices_total(), 59'052U);
      graph_options options;
      options.entries.rows_also = {shared_data("debian-deps/nodes.txt")};
      const auto g = load_graph(comm, {edges}, options);
      EXPECT_EQ(g.vertices_total(), 63'436U);
      EXPECT_TRUE(g.ids.numeric());
    });
  }
}

}  // namespace
}  // namespace paracel::test::entries
