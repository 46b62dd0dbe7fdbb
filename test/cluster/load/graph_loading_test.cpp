// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/graph_loading.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <Eigen/Sparse>

#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <paracel/graph.hpp>
#include <paracel/paralg.hpp>

#include "core/number_parsing.hpp"
#include "load/entry_exchange.hpp"
#include "load/process_grid.hpp"
#include "test/support/cluster.hpp"
#include "test/support/temporary_folder.hpp"

namespace paracel {
namespace {

using test::cluster;

template <class Id>
using entries = std::map<std::pair<Id, Id>, double>;
using loader = std::function<void(paralg&)>;
const std::vector<std::size_t> counts_of_workers{1, 2, 3, 5};
const std::vector<std::string> patterns{"linesplit", "fmap", "smap", "fsmap", "fvec", "fset"};

class GraphLoading : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const { return folder_.write(name, text); }
  /// Runs `work` on this number of workers.
  static void with(std::size_t workers, const loader& work) {
    cluster c({.workers = workers, .servers = 1});
    c.run([&](Comm comm) {
      paralg a("", std::move(comm));
      work(a);
    });
  }

  /// The edges of all workers; an edge on two workers, or on a worker that does not own it, is a failure.
  template <class Graph>
  static entries<typename Graph::id_type> load_all(std::size_t workers, const std::string& pattern,
                                                   const std::function<Graph(paralg&)>& load) {
    using id = typename Graph::id_type;
    entries<id> all;
    std::mutex mutex;
    const auto grid = process_grid::of(pattern, workers);
    with(workers, [&](paralg& a) {
      auto graph = load(a);
      int npx = 0, npy = 0;
      a.get_decomp_info(npx, npy);
      EXPECT_EQ(static_cast<std::size_t>(npx), grid.npx);
      EXPECT_EQ(static_cast<std::size_t>(npy), grid.npy);
      const std::lock_guard lock(mutex);
      graph.traverse([&](const id& v, const id& w, double weight) {
        EXPECT_TRUE(all.emplace(std::pair(v, w), weight).second);
        EXPECT_EQ(grid.owner(v, w), a.get_worker_id());
      });
    });
    return all;
  }

  const test::temporary_folder folder_{"graph_loading_"};
};

template <class Id>
Id id(std::uint64_t i) {
  if constexpr (std::is_same_v<Id, std::string>) return "id-" + std::to_string(i);
  else return i;
}
template <class Id>
std::string text_of(const Id& id) {
  if constexpr (std::is_same_v<Id, std::string>) return id;
  else return std::to_string(id);
}

/// A file with all forms of lines, blank ones included, and its contents.
template <class Id>
std::string random_lines(unsigned seed, bool mixed, entries<Id>& said) {
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<double> real(-1, 1);
  const auto any = [&] {
    return engine() % 8 == 0 ? id<Id>(~std::uint64_t{0} - engine() % 5 * (std::uint64_t{1} << 61U))
                             : id<Id>(engine() % 40);
  };
  std::string text;
  for (int line = 0; line < 200; ++line) {
    const auto a = any();
    if (engine() % 10 == 0) text += engine() % 2 == 0 ? "\n" : "  \t\r\n";
    text += text_of(a);
    const auto fields = mixed ? engine() % 5 : 1;
    for (std::size_t f = 0; f < fields; ++f) {
      const auto b = any();
      double w = real(engine);
      const auto form = engine() % (mixed ? 3 : 4);
      text += "," + text_of(b);
      if (form == 0) w = 1;
      else text += std::string(1, ":|,"[form - 1]) + number_text(w);
      said[{a, b}] = w;
    }
    if (!mixed || line + 1 < 200) text += engine() % 3 == 0 ? "\r\n" : "\n";
  }
  return text;
}

template <class Id>
class EveryId : public GraphLoading {};
using id_types = testing::Types<default_id_type, std::string>;
TYPED_TEST_SUITE(EveryId, id_types);

TYPED_TEST(EveryId, EveryPatternGivesEveryEdgeToItsOwnerForAnyNumberOfWorkers) {
  using Id = TypeParam;
  const parser_type parser = gen_parser([](const std::string& line) {
    std::vector<std::string> fields;
    std::istringstream in(line);
    for (std::string field; std::getline(in, field, ',');) fields.push_back(field);
    return fields;
  });
  unsigned seed = 0;
  for (const auto& pattern : patterns) {
    const bool mixed = pattern == "fset";
    entries<Id> said;
    const auto path = this->file("edges", random_lines(++seed, mixed, said));
    for (const auto workers : counts_of_workers) {
      SCOPED_TRACE(pattern + " of " + std::to_string(workers));
      EXPECT_EQ(this->template load_all<digraph<Id>>(workers, pattern,
                                                     [&](paralg& a) {
                                                       digraph<Id> g;
                                                       a.paracel_load_as_graph(g, path, parser, pattern);
                                                       return g;
                                                     }),
                said);
      EXPECT_EQ(this->template load_all<bigraph<Id>>(
                    workers, pattern, [&](paralg& a) { return a.paracel_load_as_graph<bigraph<Id>>(path, pattern); }),
                said);
    }
  }
}

TYPED_TEST(EveryId, AnUndirectedGraphHasEveryEdgeOnce) {
  using Id = TypeParam;
  entries<Id> said;
  const auto path = this->file("edges", random_lines(9, true, said));
  std::set<std::pair<Id, Id>> pairs;
  for (const auto& [ends, w] : said) pairs.insert(std::minmax(ends.first, ends.second));
  for (const auto workers : counts_of_workers) {
    std::set<std::pair<Id, Id>> got;
    std::mutex mutex;
    this->with(workers, [&](paralg& a) {
      undirected_graph<Id> g;
      a.paracel_load_as_graph(g, path, "fmap", true);
      const std::lock_guard lock(mutex);
      g.traverse([&](const Id& v, const Id& w, double) { got.insert(std::minmax(v, w)); });
    });
    EXPECT_EQ(got, pairs);
  }
}

TYPED_TEST(EveryId, BlocksOfASparseMatrixFitTogether) {
  using Id = TypeParam;
  for (const auto& pattern : patterns) {
    std::mt19937_64 engine(5);
    std::string text;
    entries<Id> said;  // repeated entries are summed, in file order
    for (int line = 0; line < 300; ++line) {
      const auto a = id<Id>(engine() % 17), b = id<Id>(engine() % 23 + (std::uint64_t{1} << 63U));
      const double w = static_cast<double>(engine() % 1000) / 7;
      text += text_of(a) + "," + text_of(b) + (pattern == "fset" ? ":" : ",") + number_text(w) + "\n";
      said[{a, b}] += w;
    }
    const auto path = this->file("ratings", text);
    for (const auto workers : counts_of_workers) {
      SCOPED_TRACE(pattern + " of " + std::to_string(workers));
      entries<Id> got;
      std::map<std::size_t, std::map<default_id_type, Id>> rows, columns;
      std::mutex mutex;
      const auto grid = process_grid::of(pattern, workers);
      this->with(workers, [&](paralg& a) {
        Eigen::SparseMatrix<double, Eigen::RowMajor> m;
        dict_type<default_id_type, Id> row_map{{99, Id()}}, col_map;
        a.paracel_load_as_matrix(m, row_map, col_map, path, pattern);
        ASSERT_EQ(static_cast<std::size_t>(m.rows()), row_map.size());
        ASSERT_EQ(static_cast<std::size_t>(m.cols()), col_map.size());
        ASSERT_TRUE(m.isCompressed());
        const std::lock_guard lock(mutex);
        const std::map<default_id_type, Id> r(row_map.begin(), row_map.end()), c(col_map.begin(), col_map.end());
        const auto x = a.get_worker_id() / grid.npy, y = a.get_worker_id() % grid.npy;
        EXPECT_EQ(rows.try_emplace(x, r).first->second, r);
        EXPECT_EQ(columns.try_emplace(y, c).first->second, c);
        for (std::size_t i = 1; i < r.size(); ++i) EXPECT_LT(r.at(i - 1), r.at(i));
        for (int k = 0; k < m.outerSize(); ++k) {
          for (Eigen::SparseMatrix<double, Eigen::RowMajor>::InnerIterator it(m, k); it; ++it) {
            const auto ends = std::pair(row_map.at(it.row()), col_map.at(it.col()));
            EXPECT_TRUE(got.emplace(ends, it.value()).second);
            EXPECT_EQ(grid.owner(ends.first, ends.second), a.get_worker_id());
          }
        }
      });
      EXPECT_EQ(got, said);
    }
  }
}

TYPED_TEST(EveryId, RowsOfADenseMatrixStayWithWhoReadsThem) {
  using Id = TypeParam;
  std::mt19937_64 engine(3);
  std::normal_distribution<double> normal;
  std::string text;
  std::map<Id, std::vector<double>> said;
  for (int line = 0; line < 40; ++line) {
    const auto a = id<Id>(~std::uint64_t{0} - static_cast<std::uint64_t>(line));
    text += "\n" + text_of(a) + "\t";
    for (int k = 0; k < 6; ++k) {
      said[a].push_back(normal(engine));
      text += (k == 0 ? "" : "|") + number_text(said[a].back());
    }
  }
  const auto path = this->file("factors", text);
  for (const auto workers : counts_of_workers) {
    std::map<Id, std::vector<double>> got;
    std::mutex mutex;
    this->with(workers, [&](paralg& a) {
      dict_type<default_id_type, Id> row_map;
      const auto m = a.paracel_load_as_matrix<Eigen::MatrixXd>(row_map, path);
      Eigen::MatrixXd again;
      auto parser = gen_parser(
          [](const std::string& line, char s1, char s2) {
            std::vector<std::string> fields;
            std::string field;
            for (const char c : line + s1) {
              if (c != s1 && c != s2) field += c;
              else fields.push_back(std::exchange(field, {}));
            }
            return fields;
          },
          '\t', '|');
      a.paracel_load_as_matrix(again, row_map, path, parser);
      EXPECT_EQ(again, m);
      EXPECT_EQ(m.cols(), 6);
      const std::lock_guard lock(mutex);
      for (int r = 0; r < m.rows(); ++r)
        for (int c = 0; c < m.cols(); ++c) got[row_map.at(r)].push_back(m(r, c));
    });
    EXPECT_EQ(got, said);
  }
}

TEST_F(GraphLoading, ABigraphContinuousIsNumberedAsAMatrix) {
  const auto path = file("edges", "9,7,1\n4,7,2\n9,7,3\n9,2\n");
  for (const auto workers : counts_of_workers) {
    std::multiset<std::tuple<std::uint64_t, std::uint64_t, double>> got;
    std::mutex mutex;
    with(workers, [&](paralg& a) {
      bigraph_continuous g;
      dict_type<default_id_type, default_id_type> rows, columns;
      a.paracel_load_as_graph(g, rows, columns, path, "fsmap");
      EXPECT_EQ(g.v(), rows.size());
      const std::lock_guard lock(mutex);
      g.traverse([&](std::uint64_t v, std::uint64_t w, double x) { got.emplace(rows.at(v), columns.at(w), x); });
    });
    EXPECT_EQ(got, (std::multiset<std::tuple<std::uint64_t, std::uint64_t, double>>{
                       {9, 7, 1}, {4, 7, 2}, {9, 7, 3}, {9, 2, 1}}));
  }
}

TEST_F(GraphLoading, TheLastWeightOfAnEdgeIsTheLastOfTheFilesForAnyNumberOfWorkers) {
  std::string text;
  for (int i = 1; i <= 1000; ++i) text += "1,2," + std::to_string(i) + "\n";
  const std::vector<std::string> files{file("a", text), file("b", "1,2,0.125\n")};
  for (const auto workers : counts_of_workers) {
    EXPECT_EQ(load_all<digraph<>>(workers, "fmap",
                                  [&](paralg& a) {
                                    digraph<> g;
                                    a.paracel_load_as_graph(g, files);
                                    return g;
                                  }),
              (entries<default_id_type>{{{1, 2}, 0.125}}));
  }
}

TEST_F(GraphLoading, FilesAreAddedToWhatIsThere) {
  const auto path = file("a", "1,2\n");
  with(1, [&](paralg& a) {
    digraph<> g;
    g.add_edge(3, 1, 5);
    a.paracel_load_as_graph(g, path);
    a.paracel_load_as_graph(g, file("b", "2,3|0.5\n"));
    EXPECT_EQ(g.e(), 3U);
    EXPECT_EQ(g.adjacent(2).at(3), 0.5);
  });
}

TEST_F(GraphLoading, ALineLongerThanABlockIsWhole) {
  std::string text = "0";
  for (int i = 1; i <= 100'000; ++i) text += "," + std::to_string(i) + ":0.5";
  const auto path = file("long", text + "\n7,8\n");
  for (const auto workers : counts_of_workers) {
    const auto all = load_all<digraph<>>(workers, "fset",
                                         [&](paralg& a) { return a.paracel_load_as_graph<digraph<>>(path, "fset"); });
    EXPECT_EQ(all.size(), 100'001U);
    EXPECT_EQ(all.at({0, 100'000}), 0.5);
  }
}

TEST_F(GraphLoading, AFileSmallerThanTheNumberOfWorkersAndAnEmptyOneLoad) {
  const auto tiny = file("tiny", "1 2");
  const auto empty = file("empty", "");
  with(5, [&](paralg& a) {
    auto edges = static_cast<std::int64_t>(a.paracel_load_as_graph<digraph<>>(tiny).e());
    a.get_comm().allreduce(edges);
    EXPECT_EQ(edges, 1);
    EXPECT_EQ(a.paracel_load_as_graph<bigraph<std::string>>(empty).e(), 0U);
    const auto m = a.paracel_load_as_matrix<Eigen::SparseMatrix<double, Eigen::RowMajor>>(empty, parser_type());
    EXPECT_EQ(m.rows() + m.cols(), 0);
    dict_type<default_id_type, default_id_type> rows;
    const auto d = a.paracel_load_as_matrix<Eigen::MatrixXd>(rows, tiny);
    EXPECT_EQ(d.cols(), 1);  // even without rows
  });
}

TEST_F(GraphLoading, WhatIsWrongIsSaidAlikeOnEveryWorker) {
  const std::string good = "1,2,0.5\n1,3\n";
  std::string lines;
  for (int i = 0; i < 50; ++i) lines += good;
  const auto says = [&](const std::string& bad, const std::string& want, const loader& load) {
    const auto path = file("bad", lines + bad + "\n" + lines + "x,y,z,zz\n");
    for (const auto workers : counts_of_workers) {
      with(workers, [&](paralg& a) {
        try {
          load(a);
          ADD_FAILURE() << "no error: " << bad;
        } catch (const data_error& e) {
          EXPECT_EQ(std::string(e.what()), path + ":101:" + want);
        }
        a.paracel_sync();  // no worker exits early
      });
    }
  };
  const auto path = (folder_ / "bad").string();
  const loader plain = [&](paralg& a) { (void)a.paracel_load_as_graph<digraph<>>(path); };
  says("1", "1: found 1 field, want 2 or 3 (or mix_flag)", plain);
  says("1,2,3,4", "1: found 4 fields, want 2 or 3 (or mix_flag)", plain);
  says("1,-2", "3: found \"-2\", want an id from 0 to 18446744073709551615", plain);
  says("18446744073709551616,2", "1: found \"18446744073709551616\", want an id from 0 to 18446744073709551615", plain);
  says("1,2,0.5x", "5: found \"0.5x\", want a number", plain);
  says("1,2:nan", "5: found \"nan\", want a number", plain);
  says("1,:2", "3: found nothing, want an id", plain);
  const parser_type fussy = [](const std::string& line) -> std::vector<std::string> {
    if (line == "?") throw std::out_of_range("no field 1");
    return line == "!" ? std::vector<std::string>{"1", "2", "x"} : std::vector<std::string>{"1", "2"};
  };
  const loader parsed = [&](paralg& a) { (void)a.paracel_load_as_graph<bigraph<std::string>>(path, fussy); };
  says("?", "1: the parser threw: no field 1", parsed);
  says("!", "1: found \"x\", want a number", parsed);
  with(2, [&](paralg& a) {
    EXPECT_THROW(a.paracel_load_as_graph<digraph<>>((folder_ / "none").string()), data_error);
    EXPECT_THROW(a.paracel_load_as_graph<digraph<>>(path, "rows"), usage_error);
    EXPECT_THROW(a.set_decomp_info("rows"), usage_error);
  });
}

TEST_F(GraphLoading, RowsOfDifferentWidthsAreRefusedOnEveryWorker) {
  std::string lines;
  for (int i = 0; i < 30; ++i) lines += std::to_string(i) + ",1,2\n";
  const auto path = file("rows", lines + "7,1,2,3\n");
  for (const auto workers : counts_of_workers) {
    with(workers, [&](paralg& a) {
      dict_type<default_id_type, default_id_type> rows;
      try {
        (void)a.paracel_load_as_matrix<Eigen::MatrixXd>(rows, path);
        ADD_FAILURE() << "of " << workers << " workers";
      } catch (const data_error& e) {
        EXPECT_NE(std::string(e.what()).find(path + ":31:1: found 3 numbers, want 2"), std::string::npos) << e.what();
      }
    });
  }
}

TEST(ProcessGrid, IsAsSquareAsDivisorsAllow) {
  const auto of = [](const char* pattern, std::size_t n) {
    const auto g = process_grid::of(pattern, n);
    return std::pair(g.npx, g.npy);
  };
  EXPECT_EQ(of("fsmap", 1), std::pair(std::size_t{1}, std::size_t{1}));
  EXPECT_EQ(of("fsmap", 4), std::pair(std::size_t{2}, std::size_t{2}));
  EXPECT_EQ(of("fsmap", 12), std::pair(std::size_t{3}, std::size_t{4}));
  EXPECT_EQ(of("fsmap", 7), std::pair(std::size_t{7}, std::size_t{1}));
  EXPECT_EQ(of("smap", 3), std::pair(std::size_t{1}, std::size_t{3}));
  EXPECT_EQ(of("fvec", 3), std::pair(std::size_t{3}, std::size_t{1}));
  EXPECT_THROW((void)of("", 3), usage_error);
}

/// Rounds of a few bytes, workers with very different numbers of entries.
TEST(EntryExchange, ManySmallRoundsKeepTheOrder) {
  for (const auto workers : counts_of_workers) {
    cluster c({.workers = workers, .servers = 1});
    c.run([&](Comm comm) {
      interner<std::string> ids;
      const auto grid = process_grid::of("fmap", workers);
      entry_exchange<std::string> exchange(comm, grid, ids, ids, 100);
      const auto mine = comm.get_rank() * 60;
      for (std::size_t k = 0; k < mine; ++k)
        exchange.put("row" + std::to_string(k % 7), "from" + std::to_string(comm.get_rank()), static_cast<double>(k));
      const auto got = exchange.finish();
      std::map<std::string, std::vector<std::pair<std::string, double>>> rows;
      for (std::size_t k = 0; k < got.size(); ++k) {
        EXPECT_EQ(grid.owner(ids[got.from[k]], ids[got.to[k]]), comm.get_rank());
        rows[ids[got.from[k]]].emplace_back(ids[got.to[k]], got.weight_at(k));
      }
      for (const auto& [row, entries] : rows) {
        std::vector<std::pair<std::string, double>> want;
        for (std::size_t r = 0; r < workers; ++r)
          for (std::size_t k = 0; k < r * 60; ++k)
            if (row == "row" + std::to_string(k % 7)) want.emplace_back("from" + std::to_string(r), k);
        EXPECT_EQ(entries, want);
      }
      auto total = static_cast<std::int64_t>(got.size());
      comm.allreduce(total);
      EXPECT_EQ(total, static_cast<std::int64_t>(60 * workers * (workers - 1) / 2));

      std::vector<std::uint64_t> own;
      for (std::uint64_t i = 0; i < 50 * comm.get_rank(); ++i) own.push_back(i * i);
      const auto parity = comm.get_rank() % 2;
      const auto all = union_of_ids(
          comm, own, [&](std::size_t r) { return r % 2 == parity; }, 64);
      const auto greatest = workers - 1 - ((workers - 1) % 2 == parity ? 0 : 1);
      EXPECT_EQ(all.size(), 50 * greatest);
      EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
    });
  }
}

TEST(EntryExchange, ABlockThatIsCutOffIsRefused) {
  byte_vector bytes;
  append_id(bytes, std::string_view("abc"));
  bytes.pop_back();
  byte_reader in(bytes);
  std::string_view id;
  EXPECT_THROW(read_id(in, id), protocol_error);
}

}  // namespace
}  // namespace paracel
