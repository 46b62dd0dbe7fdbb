// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/graph.hpp>
#include <paracel/graph_traversal.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>
#include <cstdio>
#include <fstream>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <paracel/codec.hpp>

#include "core/number_parsing.hpp"

namespace paracel {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

template <class T>
T name(std::uint64_t i) {
  if constexpr (std::is_same_v<T, std::string>) return "v" + std::to_string(i);
  else return i * 0x9e3779b97f4a7c15U;  // spread over all 64 bits
}

/// A straightforward graph.
template <class T>
struct naive {
  std::map<T, std::map<T, double>> out;
  std::set<T> vertices;

  void add(const T& a, const T& b, double w) {
    out[a][b] = w;
    vertices.insert(a);
    vertices.insert(b);
  }
  [[nodiscard]] std::size_t edges() const {
    std::size_t n = 0;
    for (const auto& [a, row] : out) n += row.size();
    return n;
  }
  [[nodiscard]] std::size_t indegree(const T& v) const {
    std::size_t n = 0;
    for (const auto& [a, row] : out) n += row.count(v);
    return n;
  }
  [[nodiscard]] std::map<T, double> row(const T& v) const {
    const auto r = out.find(v);
    return r == out.end() ? std::map<T, double>() : r->second;
  }
  [[nodiscard]] std::map<T, int> distances(const T& from) const {
    std::map<T, int> d{{from, 0}};
    std::queue<T> q;
    for (q.push(from); !q.empty(); q.pop()) {
      for (const auto& [w, weight] : row(q.front()))
        if (d.emplace(w, d[q.front()] + 1).second) q.push(w);
    }
    return d;
  }
};

template <class K, class V>
std::map<K, V> sorted(const dict_type<K, V>& d) {
  return {d.begin(), d.end()};
}

struct random_edges {
  explicit random_edges(unsigned seed) : engine(seed), vertices(1 + engine() % 40), count(engine() % 200) {}
  template <class T>
  std::tuple<T, T, double> next() {
    const auto a = name<T>(engine() % vertices);
    const auto b = name<T>(engine() % vertices);
    return {a, b, engine() % 3 == 0 ? 1.0 : static_cast<double>(engine() % 7) / 3};
  }
  std::mt19937 engine;
  std::size_t vertices, count;
};

template <class T>
class EveryId : public testing::Test {};
using id_types = testing::Types<std::uint64_t, std::string>;
TYPED_TEST_SUITE(EveryId, id_types);

template <class G, class T>
void expect_rows(G& g, const naive<T>& n) {
  EXPECT_EQ(g.v(), n.vertices.size());
  EXPECT_EQ(g.vertex_bag(), std::vector<T>(n.vertices.begin(), n.vertices.end()));
  EXPECT_EQ(g.vertex_set().size(), n.vertices.size());
  std::vector<std::tuple<T, T, double>> got, want;
  g.traverse([&](const T& a, const T& b, double w) { got.emplace_back(a, b, w); });
  for (const auto& [a, row] : n.out)
    for (const auto& [b, w] : row) want.emplace_back(a, b, w);
  EXPECT_EQ(got, want);
  for (const auto& v : n.vertices) {
    EXPECT_EQ(sorted(g.adjacent(v)), n.row(v));
    std::map<T, double> row;
    g.traverse(v, [&](T a, T b, double w) {
      EXPECT_EQ(a, v);
      row[b] = w;
    });
    EXPECT_EQ(row, n.row(v));
  }
  const auto data = g.get_data();
  EXPECT_EQ(data.size(), n.vertices.size());
  for (const auto& [v, row] : data) EXPECT_EQ(sorted(row), n.row(v));
}

TYPED_TEST(EveryId, ADigraphIsThePlainestOne) {
  using T = TypeParam;
  for (unsigned seed = 0; seed < 12; ++seed) {
    random_edges source(seed);
    digraph<T> g;
    naive<T> n;
    for (std::size_t k = 0; k < source.count; ++k) {
      const auto [a, b, w] = source.template next<T>();
      g.add_edge(a, b, w);
      n.add(a, b, w);
      if (k % 37 == 5) {
        EXPECT_EQ(g.e(), n.edges());
      }  // accessed in between
    }
    for (const bool turned : {false, true, false}) {
      expect_rows(g, n);
      EXPECT_EQ(g.e(), n.edges());
      std::size_t loops = 0;
      naive<T> back;
      for (const auto& [a, row] : n.out) {
        for (const auto& [b, w] : row) {
          loops += a == b ? 1 : 0;
          back.add(b, a, w);
        }
      }
      EXPECT_EQ(g.selfloops(), loops);
      for (const auto& v : n.vertices) {
        EXPECT_EQ(g.indegree(v), n.indegree(v));
        EXPECT_EQ(g.outdegree(v), n.row(v).size());
        EXPECT_EQ(g.degree(v), n.indegree(v) + n.row(v).size());
        EXPECT_EQ(sorted(g.reverse_adjacent(v)), back.row(v));
      }
      EXPECT_DOUBLE_EQ(g.avg_degree() * static_cast<double>(n.vertices.size()), static_cast<double>(n.edges()));
      EXPECT_EQ(g.outdegree(name<T>(1000)) + g.indegree(name<T>(1000)), 0U);
      EXPECT_THAT(g.adjacent(name<T>(1000)), IsEmpty());
      list_type<std::tuple<T, T, double>> triples;
      dict_type<T, dict_type<T, double>> dict;
      g.dump2triples(triples);
      g.dump2dict(dict);
      EXPECT_EQ(digraph<T>(triples).get_data(), digraph<T>(dict).get_data());
      EXPECT_EQ(dict.size(), n.out.size());
      const encoded<digraph<T>> value(g);
      EXPECT_EQ(decode<digraph<T>>(value.view()).get_data(), g.get_data());
      if (!turned) {
        g.reverse();
        back.vertices = n.vertices;
        n = back;
      }
    }
  }
}

TYPED_TEST(EveryId, AnUndirectedGraphIsThePlainestOne) {
  using T = TypeParam;
  for (unsigned seed = 0; seed < 12; ++seed) {
    random_edges source(seed);
    undirected_graph<T> g;
    naive<T> n;
    std::set<std::pair<T, T>> pairs;
    std::size_t most = 0, loops = 0;
    for (std::size_t k = 0; k < source.count; ++k) {
      const auto [a, b, w] = source.template next<T>();
      g.add_edge(a, b, w);
      n.add(a, b, w);
      n.add(b, a, w);
      pairs.insert(std::minmax(a, b));
      if (k % 37 == 5) {
        EXPECT_EQ(g.e(), pairs.size());
      }
    }
    expect_rows(g, n);
    for (const auto& v : n.vertices) {
      EXPECT_EQ(g.degree(v), n.row(v).size());
      most = std::max(most, n.row(v).size());
      loops += n.row(v).count(v);
    }
    EXPECT_EQ(g.e(), pairs.size());
    EXPECT_EQ(g.max_degree(), most);
    EXPECT_EQ(g.selfloops(), loops);
    const encoded<undirected_graph<T>> value(g);
    EXPECT_EQ(decode<undirected_graph<T>>(value.view()).get_data(), g.get_data());
  }
}

TYPED_TEST(EveryId, ABigraphIsThePlainestOne) {
  using T = TypeParam;
  for (unsigned seed = 0; seed < 12; ++seed) {
    random_edges source(seed);
    bigraph<T> g;
    naive<T> n;
    for (std::size_t k = 0; k < source.count; ++k) {
      const auto [a, b, w] = source.template next<T>();
      g.add_edge(a, b, w);
      n.add(a, b, w);
      if (k % 37 == 5) {
        EXPECT_EQ(g.get_wgt(a, b), w);
      }
    }
    EXPECT_EQ(g.v(), n.out.size());
    EXPECT_EQ(g.e(), n.edges());
    std::vector<T> left;
    for (const auto& [v, row] : n.out) {
      left.push_back(v);
      EXPECT_EQ(sorted(g.adjacent(v)), row);
      EXPECT_EQ(g.outdegree(v), row.size());
    }
    EXPECT_EQ(g.left_vertex_bag(), left);
    EXPECT_EQ(g.left_vertex_set().size(), left.size());
    for (const auto& a : n.vertices) {
      EXPECT_EQ(g.indegree(a), n.indegree(a));
      for (const auto& b : n.vertices) {
        EXPECT_EQ(g.is_connected(a, b), n.row(a).count(b) == 1);
        EXPECT_EQ(g.get_wgt(a, b), n.row(a).count(b) == 1 ? n.row(a)[b] : 0.0);
      }
    }
    const encoded<bigraph<T>> value(g);
    EXPECT_EQ(decode<bigraph<T>>(value.view()).get_data(), g.get_data());
    g.clear();
    EXPECT_EQ(g.v() + g.e(), 0U);
  }
}

TYPED_TEST(EveryId, SearchesGoWhereThePlainestOnesGo) {
  using T = TypeParam;
  for (unsigned seed = 0; seed < 12; ++seed) {
    random_edges source(seed);
    digraph<T> g;
    naive<T> n, both;
    for (std::size_t k = 0; k < std::min<std::size_t>(source.count, 60); ++k) {
      const auto [a, b, w] = source.template next<T>();
      g.add_edge(a, b, w);
      n.add(a, b, w);
      both.add(a, b, w);
      both.add(b, a, w);
    }
    std::map<T, int> component;
    int components = 0;
    for (const auto& v : n.vertices) {
      const auto want = n.distances(v);
      std::vector<T> met;
      auto note = [&](const T& at) { met.push_back(at); };
      BFS<digraph<T>, T, decltype(note)> bfs(g, v, note);
      EXPECT_EQ(met.size(), want.size());
      int before = 0;
      for (const auto& at : met) {
        EXPECT_GE(bfs.dist(at), before);  // nearest first
        before = bfs.dist(at);
        if (at == v) continue;
        EXPECT_EQ(n.row(bfs.edgeTo(at)).count(at), 1U);
        EXPECT_EQ(bfs.dist(bfs.edgeTo(at)), bfs.dist(at) - 1);
      }
      met.clear();
      DFS<digraph<T>, T, decltype(note)> dfs(g, v, note);
      EXPECT_EQ(met.size(), want.size());
      for (std::size_t i = 0; i < met.size(); ++i) EXPECT_EQ(dfs.pre(met[i]), static_cast<std::int64_t>(i));
      for (const auto& w : n.vertices) {
        EXPECT_EQ(bfs.visited(w), want.count(w) == 1);
        EXPECT_EQ(dfs.visited(w), want.count(w) == 1);
        EXPECT_EQ(bfs.dist(w), want.count(w) == 1 ? want.at(w) : -1);
        EXPECT_EQ(dfs.post(w) >= 0, want.count(w) == 1);
      }
      EXPECT_EQ(dfs.post(v), static_cast<std::int64_t>(want.size()) - 1);
      if (component.count(v) == 0) {
        for (const auto& [w, d] : both.distances(v)) component[w] = components;
        ++components;
      }
    }
    connected_components<digraph<T>, T> cc(g);
    EXPECT_EQ(cc.cnt(), components);
    for (const auto& [v, c] : component) EXPECT_EQ(cc.id(v), c);
    std::map<T, int> got;
    cc.handleCC([&](const T& v, int c) { got[v] = c; });
    EXPECT_EQ(got, component);
    EXPECT_EQ(cc.id(name<T>(1000)), -1);

    // Cyclic if and only if a vertex can reach itself over at least one edge.
    bool cyclic = false;
    for (const auto& v : n.vertices)
      for (const auto& [w, weight] : n.row(v)) cyclic = cyclic || n.distances(w).count(v) == 1;
    const auto cycle = find_cycle(g);
    const auto order = topological_order(g);
    EXPECT_EQ(!cycle.empty(), cyclic);
    EXPECT_EQ(!order.has_value(), cyclic);
    for (std::size_t i = 0; i < cycle.size(); ++i) EXPECT_EQ(n.row(cycle[i]).count(cycle[(i + 1) % cycle.size()]), 1U);
    EXPECT_EQ(std::set<T>(cycle.begin(), cycle.end()).size(), cycle.size());
  }
}

TEST(GraphSearch, TopologicalOrderOfRandomGraphsWithoutCycles) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    std::mt19937 engine(seed);
    std::vector<std::uint64_t> hidden(50);
    for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] = i * 1000003 % 977;
    std::shuffle(hidden.begin(), hidden.end(), engine);
    digraph<> g;
    for (int k = 0; k < 150; ++k) {
      auto a = engine() % 50;
      auto b = engine() % 50;
      if (a != b) g.add_edge(hidden[std::min(a, b)], hidden[std::max(a, b)]);
    }
    EXPECT_THAT(find_cycle(g), IsEmpty());
    const auto order = topological_order(g);
    ASSERT_TRUE(order.has_value());
    std::map<std::uint64_t, std::size_t> place;
    for (std::size_t i = 0; i < order->size(); ++i) place[(*order)[i]] = i;
    EXPECT_EQ(place.size(), g.v());
    g.traverse([&](std::uint64_t a, std::uint64_t b, double) { EXPECT_LT(place[a], place[b]); });
  }
}

TEST(GraphSearch, TimesNest) {
  digraph<std::string> g;
  for (const auto& [a, b] :
       std::vector<std::pair<std::string, std::string>>{{"a", "b"}, {"a", "c"}, {"b", "d"}, {"c", "d"}})
    g.add_edge(a, b);
  g.add_vertex("z");
  const depth_first_order<std::string> order(g);
  EXPECT_EQ(order.pre("a"), 0);
  EXPECT_EQ(order.pre("d"), 2);
  EXPECT_EQ(order.post("d"), 0);
  EXPECT_EQ(order.post("a"), 3);
  EXPECT_EQ(order.pre("z"), 4);
  EXPECT_EQ(order.pre("y"), -1);
  EXPECT_THAT(order.reverse_post(), ElementsAre("z", "a", "c", "b", "d"));
  const auto nothing = [](const std::string&) {};
  EXPECT_THROW((DFS<digraph<std::string>, std::string, decltype(nothing)>(g, "y", nothing)), key_error);
}

TEST(GraphSearch, AGraphOfTwoSidesIsSearchedFromTheLeft) {
  bigraph<std::string> g;
  g.add_edge("a", "x");
  g.add_edge("a", "y");
  std::vector<std::string> met;
  auto note = [&](const std::string& v) { met.push_back(v); };
  BFS<bigraph<std::string>, std::string, decltype(note)> bfs(g, "a", note);
  EXPECT_THAT(met, ElementsAre("a", "x", "y"));
  EXPECT_EQ(bfs.dist("y"), 1);
  EXPECT_EQ(bfs.dist("q"), -1);
}

TEST(GraphSearch, ALongPathIsNotTooDeep) {
  constexpr std::uint64_t length = 500'000;
  interner<std::uint64_t> ids;
  edge_buffer edges;
  for (std::uint64_t i = 0; i < length; ++i) ids.intern(i);
  for (std::uint32_t i = 0; i + 1 < length; ++i) edges.add(i, i + 1, 1);
  digraph<> g;
  g.add_edges(std::move(ids), std::move(edges));
  std::uint64_t met = 0;
  auto count = [&](std::uint64_t) { ++met; };
  DFS<digraph<>, std::uint64_t, decltype(count)> dfs(g, 0, count);
  EXPECT_EQ(met, length);
  EXPECT_EQ(dfs.post(0), static_cast<std::int64_t>(length) - 1);
  EXPECT_EQ(topological_order(g)->back(), length - 1);
  g.add_edge(length - 1, 7);
  EXPECT_EQ(find_cycle(g).size(), length - 7);
}

TEST(Graph, WeightsKeepEveryBitAndMayBeChangedWhileTraversing) {
  bigraph<> g;
  g.add_edge(1, 2, 0.1);
  g.add_edge(1, 3, 1.0);
  g.add_edge(std::uint64_t{1} << 63U, ~std::uint64_t{0}, 4e-324);
  EXPECT_EQ(g.get_wgt(std::uint64_t{1} << 63U, ~std::uint64_t{0}), 4e-324);
  auto twice = [](std::uint64_t, std::uint64_t, double& w) { w *= 2; };
  g.traverse(twice);
  EXPECT_EQ(g.get_wgt(1, 3), 2.0);
  // The interface of Paracel 0.3: the vertex with a dictionary of its edges.
  auto halve = [](std::unordered_map<std::uint64_t, std::unordered_map<std::uint64_t, double>>::value_type& v) {
    for (auto& edge : v.second) edge.second /= 2;
  };
  g.traverse_by_left_vertex(halve);
  EXPECT_EQ(g.get_wgt(1, 2), 0.1);
  std::vector<std::uint64_t> left;
  g.traverse_by_left_vertex([&](std::uint64_t v) { left.push_back(v); });
  EXPECT_THAT(left, ElementsAre(1U, std::uint64_t{1} << 63U));

  digraph<> d;
  d.add_edge(1, 2);
  EXPECT_THAT(d.reverse_adjacent(2), UnorderedElementsAre(Pair(1, 1.0)));
  d.traverse(twice);
  EXPECT_THAT(d.reverse_adjacent(2), UnorderedElementsAre(Pair(1, 2.0)));
}

TEST(Graph, ABigraphContinuousIsABag) {
  bigraph_continuous g;
  g.add_edge(0, 5, 3.0);
  g.add_edge(2, 6);
  g.add_edge(0, 1, 4.0);
  g.add_edge(0, 5, 1.5);
  EXPECT_EQ(g.v(), 3U);
  EXPECT_EQ(g.e(), 4U);
  EXPECT_EQ(g.outdegree(0), 3U);
  EXPECT_EQ(g.outdegree(1), 0U);
  EXPECT_EQ(g.indegree(5), 2U);
  EXPECT_EQ(g.indegree(77), 0U);
  EXPECT_THAT(g.adjacent(0).get_vec(), ElementsAre(Pair(5, 3.0), Pair(1, 4.0), Pair(5, 1.5)));
  EXPECT_THAT(g.adjacent(9).get_vec(), IsEmpty());
  double sum = 0;
  g.traverse([&](std::uint64_t, std::uint64_t, double w) { sum += w; });
  g.traverse(0, [&](std::uint64_t, std::uint64_t, double& w) { w = 2; });
  EXPECT_EQ(sum, 9.5);
  const encoded<bigraph_continuous> value(g);
  EXPECT_EQ(decode<bigraph_continuous>(value.view()).adjacent(0).get_vec(), g.adjacent(0).get_vec());
  g.resize(2);
  EXPECT_EQ(g.v(), 2U);
  EXPECT_EQ(g.e(), 3U);
  g.resize(10);
  EXPECT_EQ(g.v(), 10U);
  EXPECT_EQ(g.indegree(5), 2U);
  g.resize(0);
  EXPECT_EQ(g.indegree(5), 0U);
  EXPECT_EQ(bigraph_continuous(4).v(), 4U);
  EXPECT_THROW(g.add_edge(1, 0xffffffffU), error);
}

TEST(Graph, ABigraphContinuousIsReadFromAFile) {
  const auto path = testing::TempDir() + "bigraph_" + std::to_string(::getpid());
  const auto write = [&](const char* text) { std::ofstream(path) << text; };
  write("4\n0,1,0.1\n3,2\n\n0,1,2\n");
  const bigraph_continuous g(path);
  EXPECT_EQ(g.v(), 4U);
  EXPECT_THAT(g.adjacent(0).get_vec(), ElementsAre(Pair(1, 0.1), Pair(1, 2.0)));
  for (const auto* bad : {"x\n", "2\n0;1\n", "2\n0,1,\n", "2\n0,-1,3\n", "2\n0,4294967295,1\n"}) {
    write(bad);
    EXPECT_THROW(bigraph_continuous{path}, data_error) << bad;
  }
  std::remove(path.c_str());
}

TEST(Graph, ADamagedValueIsRefused) {
  const auto bytes = [](const auto& parts) { return encoded<std::remove_cvref_t<decltype(parts)>>(parts); };
  using parts = std::tuple<std::vector<std::uint64_t>, std::vector<std::uint64_t>, std::vector<std::uint32_t>,
                           std::vector<double>>;
  const std::vector<std::uint64_t> two{1, 2};
  EXPECT_EQ(decode<digraph<>>(bytes(parts{two, {0, 1, 1}, {1}, {}}).view()).e(), 1U);
  for (const auto& bad : {parts{two, {0, 1, 1}, {2}, {}}, parts{two, {0, 2, 1}, {1}, {}}, parts{two, {0, 1}, {1}, {}},
                          parts{two, {0, 1, 1}, {1}, {1, 2}}, parts{{2, 2}, {0, 1, 1}, {1}, {}}, parts{two, {}, {}, {}},
                          parts{{2, 1}, {0, 1, 1}, {1}, {}}}) {
    EXPECT_THROW((void)decode<digraph<>>(bytes(bad).view()), error);
  }
}

}  // namespace
}  // namespace paracel
