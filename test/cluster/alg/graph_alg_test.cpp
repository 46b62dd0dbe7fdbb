// SPDX-License-Identifier: BSD-3-Clause
//
// The graph algorithms on seeded random graphs, for 1, 2, 3 and 5 workers, compared with straightforward oracles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>

#include "alg/bfs/bfs.hpp"
#include "alg/common/graph/contracted_graph.hpp"
#include "alg/connected_components/wcc.hpp"
#include "alg/k_core/k_core.hpp"
#include "alg/label_propagation/label_propagation.hpp"
#include "alg/max_vertex_value/mvv.hpp"
#include "alg/pagerank/pagerank.hpp"
#include "alg/scc/scc.hpp"
#include "alg/sssp/delta_stepping.hpp"
#include "alg/sssp/sssp.hpp"
#include "alg/triangle_count/triangle_count.hpp"
#include "test/support/cluster.hpp"
#include "test/support/graphs.hpp"

namespace paracel {
namespace {

using test::cluster;
using test::part_of;
using test::part_options;
using test::random_graph;
using test::test_graph;

const std::size_t worker_counts[] = {1, 2, 3, 5};

struct named_graph {
  const char* name;
  test_graph graph;
};

/// A variety of graphs: dense and sparse, skewed, with self-loops, paths, without edges, empty.
std::vector<named_graph> graphs() {
  std::vector<named_graph> all;
  all.push_back({"sparse", random_graph(1, 400, 380)});
  all.push_back({"middle", random_graph(2, 300, 600, 1, true)});
  all.push_back({"dense", random_graph(3, 120, 3000, 1, true)});
  all.push_back({"skewed", random_graph(4, 300, 2500, 3, true)});
  test_graph path;
  path.vertices = 60;
  for (std::uint64_t v = 0; v + 1 < 60; ++v) path.edges.push_back({v * 37 % 60, (v + 1) * 37 % 60, 1});
  all.push_back({"path", path});
  test_graph rings;  // rings of 2, 3, ... vertices over all workers, joined in one direction
  rings.vertices = 90;
  for (std::uint64_t first = 0, length = 2; first + length <= 90; first += length, ++length) {
    for (std::uint64_t k = 0; k < length; ++k)
      rings.edges.push_back({(first + k) * 47 % 90, (first + (k + 1) % length) * 47 % 90, 1});
    if (first > 0) rings.edges.push_back({(first - 1) * 47 % 90, first * 47 % 90, 2});
  }
  all.push_back({"rings", rings});
  all.push_back({"lonely", {.vertices = 7, .edges = {}}});
  all.push_back({"one", {.vertices = 1, .edges = {{0, 0, 1}}}});
  all.push_back({"empty", {}});
  return all;
}

std::vector<std::set<std::uint64_t>> neighbours_of(const test_graph& g) {
  std::vector<std::set<std::uint64_t>> n(g.vertices);
  for (const auto& e : g.edges) {
    if (e.from == e.to) continue;
    n[e.from].insert(e.to);
    n[e.to].insert(e.from);
  }
  return n;
}

/// reach[u][v]: whether a path leads from u to v.
std::vector<std::vector<char>> reach_of(const test_graph& g, bool both_ways) {
  std::vector<std::vector<std::uint64_t>> out(g.vertices);
  for (const auto& e : g.edges) {
    out[e.from].push_back(e.to);
    if (both_ways) out[e.to].push_back(e.from);
  }
  std::vector<std::vector<char>> reach(g.vertices, std::vector<char>(g.vertices, 0));
  for (std::uint64_t s = 0; s < g.vertices; ++s) {
    std::vector<std::uint64_t> stack{s};
    reach[s][s] = 1;
    while (!stack.empty()) {
      const auto v = stack.back();
      stack.pop_back();
      for (const auto t : out[v])
        if (reach[s][t] == 0) {
          reach[s][t] = 1;
          stack.push_back(t);
        }
    }
  }
  return reach;
}

test_graph without_loops(test_graph g) {
  std::erase_if(g.edges, [](const auto& e) { return e.from == e.to; });
  return g;
}
test_graph reversed(test_graph g) {
  for (auto& e : g.edges) std::swap(e.from, e.to);
  return g;
}

using put = std::function<void(std::uint64_t number, double value)>;

/// Runs on every graph and number of workers; `work(comm, part, put)` gives each own vertex a value.
void check(const part_options& options, bool loops, const std::function<std::vector<double>(const test_graph&)>& oracle,
           const std::function<void(Comm, const distributed_graph&, const put&)>& work, double tolerance = 0) {
  struct one {
    const char* name;
    test_graph graph;
    std::vector<double> want, got;
  };
  std::vector<one> all;
  for (const auto& [name, graph] : graphs()) {
    all.push_back({name, loops ? graph : without_loops(graph), {}, {}});
    all.back().want = oracle(all.back().graph);
  }
  for (const auto workers : worker_counts) {
    cluster c({.workers = workers, .servers = 1});
    std::mutex mutex;
    for (auto& g : all) g.got.assign(g.graph.vertices, -7);
    c.run([&](Comm comm) {
      for (auto& g : all) {
        const auto part = part_of(g.graph, comm.get_rank(), workers, options);
        work(comm, part, [&](std::uint64_t number, double value) {
          const std::lock_guard lock(mutex);
          g.got.at(number) = value;
        });
      }
    });
    for (const auto& g : all) {
      if (tolerance == 0) {
        EXPECT_EQ(g.got, g.want) << g.name << " " << workers;
      } else {
        for (std::size_t v = 0; v < g.want.size(); ++v)
          EXPECT_NEAR(g.got[v], g.want[v], tolerance) << g.name << " " << workers;
      }
    }
  }
}

template <class List>
void put_all(const distributed_graph& part, const List& values, const put& to) {
  for (std::size_t v = 0; v < part.own(); ++v) to(part.number(v), static_cast<double>(values[v]));
}

std::vector<double> least_of_component(const test_graph& g, bool both_ways) {
  const auto reach = reach_of(g, both_ways);
  std::vector<double> label(g.vertices);
  for (std::uint64_t v = 0; v < g.vertices; ++v) {
    std::uint64_t u = 0;
    while (reach[v][u] == 0 || reach[u][v] == 0) ++u;
    label[v] = static_cast<double>(u);
  }
  return label;
}

TEST(GraphAlgorithms, WeakComponentsAreTheLeastVertexOfEach) {
  check(
      {}, false, [](const auto& g) { return least_of_component(g, true); },
      [](Comm comm, const distributed_graph& part, const put& to) {
        put_all(part, alg::weak_components(comm, part).labels, to);
      });
}

TEST(GraphAlgorithms, APathThatGoesToAndFroBetweenTheWorkersIsFinishedByTheFirst) {
  test_graph g;
  g.vertices = 600;
  for (std::uint64_t k = 0; k + 1 < g.vertices; ++k) {  // two paths: 0, 300, 1, 301, ... up to 449, and the rest
    const auto at = [](std::uint64_t i) { return i / 2 + i % 2 * 300; };
    if (k != 299) g.edges.push_back({at(k), at(k + 1), 1});
  }
  cluster c({.workers = 2, .servers = 1});
  c.run([&](Comm comm) {
    const auto part = part_of(g, comm.get_rank(), 2);
    const auto found = alg::weak_components(comm, part);
    EXPECT_TRUE(found.gathered);
    EXPECT_EQ(found.supersteps, alg::most_supersteps);
    for (std::size_t v = 0; v < part.own(); ++v) {
      const auto n = part.number(v);
      EXPECT_EQ(found.labels[v], n % 300 < 150 ? 0U : 150U) << n;
    }
  });
}

TEST(GraphAlgorithms, StrongComponentsAreTheSameWhetherTheCoreIsGatheredOrNot) {
  for (const std::uint64_t limit : {std::uint64_t{1} << 20U, std::uint64_t{0}}) {
    check(
        {}, false, [](const auto& g) { return least_of_component(g, false); },
        [limit](Comm comm, const distributed_graph& part, const put& to) {
          put_all(part, alg::strong_components(comm, part, limit).labels, to);
        });
  }
}

std::vector<double> levels_of(const test_graph& g) {
  std::vector<double> d(g.vertices, std::numeric_limits<double>::infinity());
  if (!d.empty()) d[0] = 0;
  for (bool change = true; change;) {
    change = false;
    for (const auto& e : g.edges)
      if (d[e.from] + 1 < d[e.to]) {
        d[e.to] = d[e.from] + 1;
        change = true;
      }
  }
  return d;
}

void put_levels(const distributed_graph& part, const std::vector<std::uint32_t>& levels, const put& to) {
  for (std::size_t v = 0; v < part.own(); ++v) {
    const bool reached = levels[v] != alg::level_search::unreached;
    to(part.number(v), reached ? levels[v] : std::numeric_limits<double>::infinity());
  }
}

test_graph both_ways(test_graph g) {
  const auto n = g.edges.size();
  for (std::size_t k = 0; k < n; ++k) g.edges.push_back({g.edges[k].to, g.edges[k].from, g.edges[k].weight});
  return g;
}

TEST(GraphAlgorithms, BreadthFirstLevelsAreTheFewestEdges) {
  for (const part_options options : {part_options{}, {.undirected = true}, {.incoming = true}}) {
    std::uint32_t bottom_up = 0;
    check(
        options, false, [&](const test_graph& g) { return levels_of(options.undirected ? both_ways(g) : g); },
        [&](Comm comm, const distributed_graph& part, const put& to) {
          const auto found = alg::breadth_first_levels(comm, part, 0);
          put_levels(part, found.levels, to);
          EXPECT_LE(found.reached, part.vertices_total());
          EXPECT_GE(found.sum_of_levels, found.depth);
          if (comm.get_rank() == 0) bottom_up += found.bottom_up_steps;
        });
    EXPECT_EQ(bottom_up > 0, options.undirected || options.incoming);
  }
}

/// Resumes from the state saved after each superstep; the results must be the same.
template <class Search, class... More>
void resume_everywhere(Comm comm, const distributed_graph& part, Search& search, const More&... more) {
  std::vector<byte_vector> states;
  while (!search.done()) {
    states.emplace_back();
    search.save(states.back());
    search.step();
  }
  for (const auto& state : states) {
    Search again(comm, part, 0, more...);
    byte_reader in(state);
    again.restore(in);
    while (!again.done()) again.step();
    EXPECT_EQ(again.superstep(), search.superstep());
    EXPECT_EQ(again.values(), search.values());
  }
}

TEST(GraphAlgorithms, SearchesResumeAfterAnySuperstep) {
  check(
      {.undirected = true}, false, [](const auto& g) { return levels_of(both_ways(g)); },
      [](Comm comm, const distributed_graph& part, const put& to) {
        alg::level_search search(comm, part, 0);
        resume_everywhere(comm, part, search);
        put_levels(part, search.values(), to);
      });
  check({.weighted = true}, false, test::distances_of, [](Comm comm, const distributed_graph& part, const put& to) {
    alg::delta_stepping search(comm, part, 0, 40);
    resume_everywhere(comm, part, search, 40.0);
    put_all(part, search.values(), to);
  });
}

TEST(GraphAlgorithms, ShortestPathsAreTheLeastSumsOfWeightsForAnyWidthOfTheBuckets) {
  for (const double delta : {0.0, 0.01, 9.0, 1e9}) {  // 0.01: there are more buckets than in the window
    check({.weighted = true}, false, test::distances_of,
          [delta](Comm comm, const distributed_graph& part, const put& to) {
            put_all(part, alg::shortest_paths(comm, part, 0, {}, delta).distances, to);
          });
  }
}

TEST(GraphAlgorithms, BucketsAreNarrowerWhereFewVerticesHaveMostOfTheEdges) {
  cluster({.workers = 3, .servers = 1}).run([&](Comm comm) {
    const auto expect_width = [&](std::uint64_t vertices, std::uint64_t hubs, std::uint64_t degree, double width) {
      test_graph g{vertices, {}};  // all edges begin at the first vertices
      for (std::uint64_t e = 0; e < hubs * degree; ++e)
        g.edges.push_back({e / degree, (e / degree + e % degree + 1) % vertices, 3});
      EXPECT_DOUBLE_EQ(alg::delta_stepping(comm, part_of(g, comm.get_rank(), 3, {.weighted = true}), 0).delta(), width);
    };
    expect_width(100, 100, 8, 2 * 3 / 8.0);
    expect_width(100, 25, 40, 2 * 3 / 20.0);           // the root of the mean square is 20
    expect_width(1000, 1, 999, 2 * 3 / (16 * 0.999));  // a star
  });
}

TEST(GraphAlgorithms, TheGreatestIdThatReachesAVertex) {
  const auto oracle = [](const test_graph& g) {
    const auto reach = reach_of(g, false);
    std::vector<double> best(g.vertices);
    for (std::uint64_t v = 0; v < g.vertices; ++v)
      for (std::uint64_t u = 0; u < g.vertices; ++u)
        if (reach[u][v] != 0) best[v] = std::max(best[v], static_cast<double>(test_graph::id(u)));
    return best;
  };
  check({}, true, oracle, [](Comm comm, const distributed_graph& part, const put& to) {
    pregel_run<alg::mvv_program> run(comm, part);
    run.values() = alg::values_of_ids(comm, part, "edges");
    run.run();
    put_all(part, run.values(), to);
  });
}

TEST(GraphAlgorithms, AnIdThatIsNoNumberIsNamed) {
  cluster c({.workers = 2, .servers = 1});
  const auto g = random_graph(5, 20, 40);
  c.run([&](Comm comm) {
    const auto part = part_of(g, comm.get_rank(), 2, {.names = true});
    try {
      (void)alg::values_of_ids(comm, part, "edges");
      FAIL() << "no error";
    } catch (const data_error& e) {
      EXPECT_NE(std::string(e.what()).find("edges: found the id \"n000005\""), std::string::npos) << e.what();
    }
  });
}

TEST(GraphAlgorithms, CoreNumbersAreWhatPeelingOneByOneGives) {
  const auto oracle = [](const test_graph& g) {
    auto n = neighbours_of(g);
    std::vector<double> core(g.vertices);
    std::vector<char> gone(g.vertices);
    double k = 0;
    for (std::uint64_t left = g.vertices; left > 0; --left) {
      std::uint64_t v = g.vertices;
      for (std::uint64_t u = 0; u < g.vertices; ++u)
        if (gone[u] == 0 && (v == g.vertices || n[u].size() < n[v].size())) v = u;
      k = std::max(k, static_cast<double>(n[v].size()));
      core[v] = k;
      gone[v] = 1;
      for (const auto u : n[v]) n[u].erase(v);
    }
    return core;
  };
  const auto cores = [](Comm comm, const distributed_graph& part, const put& to) {
    put_all(part, alg::core_numbers(comm, part).cores, to);
  };
  for (const bool once : {true, false}) check({.undirected = true, .once = once}, false, oracle, cores);
}

struct spread_labels {
  std::vector<double> labels;
  std::uint64_t rounds = 0;
  double modularity = 0;
};

spread_labels labels_of(const test_graph& g, std::uint64_t rounds) {
  const auto n = neighbours_of(g);
  std::vector<std::uint64_t> now(g.vertices), before;
  std::iota(now.begin(), now.end(), std::uint64_t{0});
  spread_labels result;
  while (result.rounds < rounds) {
    auto next = now;
    for (std::uint64_t v = 0; v < g.vertices; ++v) {
      std::map<std::uint64_t, int> count;
      for (const auto u : n[v]) ++count[now[u]];
      int most = 0;
      for (const auto& [label, times] : count)
        if (times > most) {
          most = times;
          next[v] = label;
        }
    }
    ++result.rounds;
    const bool ends = next == now || next == before;
    before = now;
    now = next;
    if (ends) break;
  }
  double ends = 0, inside = 0;
  std::map<std::uint64_t, double> degrees;
  for (std::uint64_t v = 0; v < g.vertices; ++v)
    for (const auto u : n[v]) {
      ++ends;
      ++degrees[now[v]];
      if (now[u] == now[v]) ++inside;
    }
  if (ends > 0) {
    result.modularity = inside / ends;
    for (const auto& [label, d] : degrees) result.modularity -= d / ends * d / ends;
  }
  result.labels.assign(now.begin(), now.end());
  return result;
}

TEST(GraphAlgorithms, LabelsSpreadAsOnOneMachine) {
  for (const std::uint64_t rounds : {0U, 3U, 100U}) {
    check(
        {.undirected = true}, false, [rounds](const auto& g) { return labels_of(g, rounds).labels; },
        [rounds](Comm comm, const distributed_graph& part, const put& to) {
          put_all(part, alg::propagate_labels(comm, part, rounds).labels, to);
        });
  }
}

TEST(GraphAlgorithms, ModularityAndTheEndAreThoseOfOneMachine) {
  using ending = alg::label_propagation_result::ending;
  cluster three({.workers = 3, .servers = 1});
  three.run([&](Comm comm) {
    for (const auto& [name, graph] : graphs()) {
      const auto g = without_loops(graph);
      const auto want = labels_of(g, 100);
      const auto found = alg::propagate_labels(comm, part_of(g, comm.get_rank(), 3, {.undirected = true}), 100);
      EXPECT_EQ(found.rounds, want.rounds) << name;
      EXPECT_NEAR(found.modularity, want.modularity, 1e-12) << name;
      EXPECT_NE(found.ended, ending::rounds) << name;
    }
  });
  // Two vertices swap their labels forever.
  test_graph pair;
  pair.vertices = 2;
  pair.edges = {{0, 1, 1}};
  cluster c({.workers = 2, .servers = 1});
  c.run([&](Comm comm) {
    const auto found = alg::propagate_labels(comm, part_of(pair, comm.get_rank(), 2, {.undirected = true}), 100);
    EXPECT_EQ(found.ended, ending::cycle);
    EXPECT_EQ(found.rounds, 2U);
  });
}

TEST(GraphAlgorithms, TrianglesOfEachVertexAreCountedOnce) {
  const auto oracle = [](const test_graph& g) {
    const auto n = neighbours_of(g);
    std::vector<double> count(g.vertices);
    for (std::uint64_t a = 0; a < g.vertices; ++a)
      for (const auto b : n[a])
        for (const auto c : n[a])
          if (b < c && n[b].contains(c)) ++count[a];
    return count;
  };
  for (const std::size_t round_bytes : {std::size_t{64}, std::size_t{1} << 20U}) {
    check({.undirected = true, .once = true}, false, oracle, [=](Comm comm, const auto& part, const put& to) {
      auto edges = part, again = part;
      const auto found = alg::count_triangles(comm, edges, true, round_bytes);
      put_all(part, found.of_vertices, to);
      EXPECT_EQ(alg::count_triangles(comm, again, false, round_bytes).triangles, found.triangles);
      std::int64_t sum = std::accumulate(found.of_vertices.begin(), found.of_vertices.end(), std::int64_t{0});
      comm.allreduce(sum);
      EXPECT_EQ(static_cast<std::uint64_t>(sum), 3 * found.triangles);
    });
  }
}

std::vector<double> ranks_of(const test_graph& g, bool weighted, bool paracel, std::uint64_t rounds,
                             const std::vector<double>& personal = {}) {
  const auto n = static_cast<double>(g.vertices);
  std::vector<double> x(g.vertices, 1 / n), leaves(g.vertices);
  if (!personal.empty()) x = personal;
  for (const auto& e : g.edges) leaves[e.from] += weighted ? e.weight : 1;
  for (std::uint64_t r = 0; r < rounds; ++r) {
    std::vector<double> next(g.vertices);
    double lost = 0;
    for (std::uint64_t v = 0; v < g.vertices; ++v)
      if (leaves[v] == 0) lost += x[v];
    for (const auto& e : g.edges)
      if (leaves[e.from] > 0) next[e.to] += 0.85 * x[e.from] * (weighted ? e.weight : 1) / leaves[e.from];
    for (std::uint64_t v = 0; v < g.vertices; ++v)
      next[v] += paracel ? 0.15 : (0.15 + 0.85 * lost) * (personal.empty() ? 1 / n : personal[v]);
    x = next;
  }
  return x;
}

TEST(GraphAlgorithms, PageRankIsTheFormulaWithAndWithoutWeights) {
  for (const bool weighted : {false, true}) {
    for (const bool paracel : {false, true}) {
      check(
          {.weighted = weighted}, true, [&](const auto& g) { return ranks_of(reversed(g), weighted, paracel, 25); },
          [&](Comm comm, const distributed_graph& part, const put& to) {
            const auto found = alg::page_ranks(comm, part, {.rounds = 25, .paracel = paracel});
            put_all(part, found.scores, to);
            if (!paracel && part.vertices_total() > 0) {
              EXPECT_NEAR(found.sum, 1, 1e-12);
            }
          },
          1e-12);
    }
  }
}

TEST(GraphAlgorithms, PageRankGoesBackToThePersonalisationVector) {
  const auto t = [](std::uint64_t v, std::uint64_t n) {  // sums to 1
    return 2.0 * static_cast<double>(v + 1) / static_cast<double>(n * (n + 1));
  };
  const auto oracle = [&](const test_graph& g) {
    std::vector<double> personal(g.vertices);
    for (std::uint64_t v = 0; v < g.vertices; ++v) personal[v] = t(v, g.vertices);
    return ranks_of(reversed(g), false, false, 30, personal);
  };
  check(
      {}, true, oracle,
      [&](Comm comm, const distributed_graph& part, const put& to) {
        std::vector<double> personal(part.own());
        for (std::size_t v = 0; v < part.own(); ++v) personal[v] = t(part.number(v), part.vertices_total());
        put_all(part, alg::page_ranks(comm, part, {.rounds = 30, .personalization = personal}).scores, to);
      },
      1e-12);
}

TEST(GraphAlgorithms, PageRankStopsAtTheTolerance) {
  const auto g = random_graph(4, 300, 2500, 3);
  cluster c({.workers = 2, .servers = 1});
  c.run([&](Comm comm) {
    const auto part = part_of(g, comm.get_rank(), 2);
    const auto found = alg::page_ranks(comm, part, {.rounds = 1000, .tolerance = 1e-10});
    EXPECT_LE(found.step, 1e-10);
    EXPECT_LT(found.rounds, 200U);
    const auto more = alg::page_ranks(comm, part, {.rounds = 1000, .tolerance = 1e-13});
    std::vector<double> distance{0};
    for (std::size_t v = 0; v < part.own(); ++v) distance[0] += std::abs(found.scores[v] - more.scores[v]);
    comm.allreduce(distance);
    EXPECT_LT(distance[0], 1e-9);
  });
}

TEST(GraphLinks, ParallelLinksBecomeOneAndAreSeenFromBothEnds) {
  cluster c({.workers = 3, .servers = 1});
  c.run([](Comm comm) {
    const auto rank = static_cast<std::uint64_t>(comm.get_rank());
    const auto first = alg::number_groups(comm, rank + 1);  // 1, 2 and 3 groups
    EXPECT_EQ(first, (std::vector<std::uint64_t>{0, 1, 3, 6}));
    std::vector<alg::contracted_edge> links;
    if (rank == 2) links = {{0, 0}, {0, 0}, {1, 0}, {1, 2}, {1, 0}, {1, 3}};  // 3-0, 4-0, 4-2, 4-3
    const auto one = alg::contracted_graph(comm, first, links, alg::edge_rule::out_only);
    EXPECT_EQ(one.edges_total, 4U);
    const auto both = alg::contracted_graph(comm, first, links, alg::edge_rule::both_ways);
    const auto same = alg::contracted_graph(comm, first, links, alg::edge_rule::symmetric);
    EXPECT_EQ(both.edges_total, 4U);
    EXPECT_EQ(same.edges_total, 8U);
    const auto numbers = [](const distributed_graph& g, std::span<const std::uint32_t> list) {
      std::set<std::uint64_t> set;
      for (const auto t : list) set.insert(g.number(t));
      EXPECT_EQ(set.size(), list.size());
      return set;
    };
    using set = std::set<std::uint64_t>;
    if (rank == 0) {
      EXPECT_EQ(numbers(both, both.in.of(0)), (set{3, 4}));
      EXPECT_EQ(numbers(same, same.out.of(0)), (set{3, 4}));
    }
    if (rank == 1) {
      EXPECT_EQ(numbers(both, both.in.of(1)), (set{4}));
    }
    if (rank == 2) {
      EXPECT_EQ(numbers(both, both.out.of(1)), (set{0, 2, 3}));
      EXPECT_EQ(numbers(both, both.in.of(0)), (set{4}));
      EXPECT_EQ(numbers(same, same.out.of(0)), (set{0, 4}));
    }
  });
}

TEST(GraphJob, IdsOfAnyVertexAndTotalsOfLabels) {
  for (const bool names : {false, true}) {
    cluster c({.workers = 3, .servers = 1});
    const auto g = random_graph(9, 31, 60);
    c.run([&](Comm comm) {
      const auto part = part_of(g, comm.get_rank(), 3, {.names = names});
      const std::vector<std::uint64_t> numbers{30, 0, 12, 12, comm.get_rank()};
      const auto ids = alg::ids_of_numbers(comm, part, numbers);
      ASSERT_EQ(ids.size(), numbers.size());
      for (std::size_t k = 0; k < numbers.size(); ++k) {
        const auto digits = std::to_string(test_graph::id(numbers[k]));
        EXPECT_EQ(ids.text(k), names ? "n" + std::string(6 - digits.size(), '0') + digits : digits);
      }
      EXPECT_EQ(alg::find_vertex(comm, part, names ? "n000008" : "8", "here"), 1U);
      EXPECT_THROW((void)alg::find_vertex(comm, part, "9", "here"), config_error);
      std::vector<std::uint64_t> labels(part.own());
      for (std::size_t v = 0; v < labels.size(); ++v) labels[v] = part.number(v) % 4 * 10;
      const auto totals = alg::label_totals(comm, part, labels);
      for (std::size_t v = 0; v < totals.size(); ++v) {
        const auto n = part.number(v);
        EXPECT_EQ(totals[v], n % 10 == 0 ? (n == 30 ? 7U : 8U) : 0U);
      }
      const auto summary = alg::summary_of_labels(comm, part, labels);
      EXPECT_EQ(summary.groups, 4U);
      EXPECT_EQ(summary.largest, 8U);
    });
  }
}

}  // namespace
}  // namespace paracel
