// SPDX-License-Identifier: BSD-3-Clause
//
// Matrices and graphs loaded by several workers are compared with a map of maps.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <paracel/distributed_graph.hpp>
#include <paracel/random.hpp>
#include <paracel/sparse.hpp>

#include "load/csr_builder.hpp"
#include "test/support/cluster.hpp"
#include "test/support/paths.hpp"

namespace {

using namespace paracel;

constexpr std::size_t worker_counts[] = {1, 2, 3, 5};

/// A folder that is removed after the test.
class folder {
 public:
  folder() {
    std::string name = (std::filesystem::temp_directory_path() / "paracel_entries_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~folder() { std::filesystem::remove_all(path_); }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;

  std::string write(const std::string& name, const std::string& text) const {
    const auto path = path_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }

 private:
  std::filesystem::path path_;
};

struct entry {
  std::string row, column;
  double value = 1;
};

std::string text_of(const std::vector<entry>& entries, const std::string& separator = "\t") {
  std::string text;
  for (const auto& e : entries) {
    char value[40];
    std::snprintf(value, sizeof value, "%.17g", e.value);
    text += e.row + separator + e.column + separator + value + "\n";
  }
  return text;
}

/// The order of ids: numbers by value, names by bytes.
struct id_less {
  bool numeric = true;
  bool operator()(const std::string& a, const std::string& b) const {
    if (!numeric) return a < b;
    return std::stoull(a) < std::stoull(b);
  }
};
using matrix = std::map<std::string, std::map<std::string, double, id_less>, id_less>;

matrix sum_of(const std::vector<entry>& entries, bool numeric) {
  const id_less less{numeric};
  matrix m(less);
  for (const auto& e : entries) {
    auto& row = m.try_emplace(e.row, less).first->second;
    const auto [at, fresh] = row.try_emplace(e.column, e.value);
    if (!fresh) at->second += e.value;
  }
  return m;
}

/// The entries of all workers, and checks of the invariants on each of them.
struct whole {
  std::vector<std::string> rows, columns;
  std::vector<std::tuple<std::uint64_t, std::uint64_t, double>> entries;  // by number
  std::uint64_t entries_total = 0;
};

whole gather(std::size_t workers, const std::vector<std::string>& files, const entry_options& options = {}) {
  test::cluster job({.workers = workers});
  whole all;
  std::vector<std::vector<std::tuple<std::uint64_t, std::uint64_t, double>>> by_rank(workers);
  std::mutex mutex;
  job.run([&](Comm comm) {
    const auto part = load_sparse(comm, files, options);
    const auto rows = all_row_ids(comm, part);
    const auto columns = all_column_ids(comm, part);
    const auto rank = comm.get_rank();
    const std::lock_guard lock(mutex);
    ASSERT_EQ(part.row_first.size(), workers + 1);
    ASSERT_EQ(part.rows(), part.row_first[rank + 1] - part.row_first[rank]);
    ASSERT_EQ(part.row_ids.size(), part.rows());
    ASSERT_EQ(part.column_ids.size(), part.column_number.size());
    ASSERT_EQ(part.column.size(), part.value.size());
    ASSERT_EQ(part.begin.back(), part.column.size());
    std::set<std::uint32_t> used(part.column.begin(), part.column.end());
    ASSERT_EQ(used.size(), part.column_ids.size());
    for (std::size_t i = 0; i < part.rows(); ++i) {
      for (std::size_t k = 0; k < part.columns_of(i).size(); ++k) {
        by_rank[rank].emplace_back(part.row_first[rank] + i, part.column_number.at(part.columns_of(i)[k]),
                                   part.values_of(i)[k]);
      }
    }
    all.entries_total = part.entries_total;
    ASSERT_EQ(rows.size(), part.rows_total());
    ASSERT_EQ(columns.size(), part.columns_total);
    for (std::size_t i = 0; i < part.rows(); ++i)
      ASSERT_EQ(rows.text(part.row_first[comm.get_rank()] + i), part.row_ids.text(i));
    for (std::size_t i = 0; i < part.column_ids.size(); ++i)
      ASSERT_EQ(columns.text(part.column_number[i]), part.column_ids.text(i));
    if (rank != 0) return;
    for (std::size_t i = 0; i < rows.size(); ++i) all.rows.push_back(rows.text(i));
    for (std::size_t i = 0; i < columns.size(); ++i) all.columns.push_back(columns.text(i));
  });
  for (const auto& part : by_rank) all.entries.insert(all.entries.end(), part.begin(), part.end());
  return all;
}

void expect_matrix(const whole& got, const matrix& want, bool numeric) {
  std::set<std::string, id_less> column_set(id_less{numeric});
  std::vector<std::string> rows;
  for (const auto& [row, columns] : want) {
    rows.push_back(row);
    for (const auto& [c, v] : columns) column_set.insert(c);
  }
  const std::vector<std::string> columns(column_set.begin(), column_set.end());
  ASSERT_EQ(got.rows, rows);
  ASSERT_EQ(got.columns, columns);
  std::map<std::string, std::uint64_t> column_number;
  for (std::size_t i = 0; i < columns.size(); ++i) column_number[columns[i]] = i;
  std::vector<std::tuple<std::uint64_t, std::uint64_t, double>> entries;
  std::uint64_t r = 0;
  for (const auto& [row, of_row] : want) {
    for (const auto& [c, v] : of_row) entries.emplace_back(r, column_number[c], v);
    ++r;
  }
  ASSERT_EQ(got.entries, entries);
  ASSERT_EQ(got.entries_total, entries.size());
}

std::vector<entry> random_entries(std::uint64_t seed, std::size_t n, std::uint64_t rows, std::uint64_t columns,
                                  const std::function<std::string(std::uint64_t)>& id) {
  counter_random r(seed);
  std::vector<entry> out;
  for (std::size_t k = 0; k < n; ++k) {
    // Skewed: low numbers more often.
    const auto a = static_cast<std::uint64_t>(r.uniform() * r.uniform() * static_cast<double>(rows));
    const auto b = r.below(columns);
    out.push_back({id(a), id(b), r.normal()});
  }
  return out;
}

std::string scattered(std::uint64_t n) { return std::to_string(mix64(n + 17)); }
std::string plain(std::uint64_t n) { return std::to_string(n); }
std::string named(std::uint64_t n) {
  return "n" + std::to_string(n % 7) + std::string(n % 23, 'x') + std::to_string(n);
}

TEST(LoadSparse, IsTheSumOfItsEntriesWhateverTheNumberOfWorkers) {
  const folder here;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    for (const auto id : {plain, scattered, named}) {
      const bool numeric = id != named;
      const auto entries = random_entries(seed, 3000, 120, 60, id);
      const auto want = sum_of(entries, numeric);
      const auto file = here.write("entries", text_of(entries, seed == 0 ? "," : seed == 1 ? "\t" : " "));
      for (const auto workers : worker_counts) expect_matrix(gather(workers, {file}), want, numeric);
    }
  }
}

TEST(LoadSparse, ValuesKeepEveryBit) {
  const folder here;
  const auto file = here.write("v", "1,1,0.1\n1,2,5e-324\n1,3,1.7976931348623157e308\n2,1,-0.30000000000000004\n");
  for (const auto workers : worker_counts) {
    const auto got = gather(workers, {file});
    ASSERT_EQ(got.entries.size(), 4U);
    EXPECT_EQ(std::get<2>(got.entries[0]), 0.1);
    EXPECT_EQ(std::get<2>(got.entries[1]), 5e-324);
    EXPECT_EQ(std::get<2>(got.entries[2]), 1.7976931348623157e308);
    EXPECT_EQ(std::get<2>(got.entries[3]), -0.30000000000000004);
  }
}

TEST(LoadSparse, IdsOf2To63AndAboveStayWhatTheyAre) {
  const folder here;
  const auto file = here.write("e",
                               "9223372036854775808 18446744073709551615 1\n9223372036854775807 0 2\n"
                               "18446744073709551615 9223372036854775809 3\n");
  for (const auto workers : worker_counts) {
    const auto got = gather(workers, {file});
    EXPECT_EQ(got.rows,
              (std::vector<std::string>{"9223372036854775807", "9223372036854775808", "18446744073709551615"}));
    EXPECT_EQ(got.columns, (std::vector<std::string>{"0", "9223372036854775809", "18446744073709551615"}));
  }
}

TEST(LoadSparse, OneNameMakesNamesOfAllIdsOfAllWorkers) {
  const folder here;
  std::string text;
  for (int i = 0; i < 100; ++i) text += std::to_string(i) + "," + std::to_string(i % 10) + "\n";
  const auto numbers = here.write("numbers", text);
  for (const std::string odd : {"x", "007", "-1", "18446744073709551616", "1.5"}) {
    const auto file = here.write("odd", text + odd + ",3\n");
    for (const auto workers : worker_counts) {
      const auto got = gather(workers, {file});
      std::set<std::string> want{odd};
      for (int i = 0; i < 100; ++i) want.insert(std::to_string(i));
      ASSERT_EQ(got.rows, std::vector<std::string>(want.begin(), want.end()));
    }
  }
  EXPECT_EQ(gather(2, {numbers}).rows[10], "10");
  entry_options names;
  names.ids = entry_options::id_kind::name;
  EXPECT_EQ(gather(2, {numbers}, names).rows[2], "10");
}

TEST(LoadSparse, DuplicatesFollowTheirRuleInTheOrderOfTheInput) {
  const folder here;
  std::string text;
  double sum = 0;
  for (int i = 0; i < 1000; ++i) {
    text += "7,3," + std::to_string(i) + ".25\n" + std::to_string(i % 50 + 100) + "," + std::to_string(i) + "\n";
    sum += i + 0.25;
  }
  const auto file = here.write("e", text);
  for (const auto workers : worker_counts) {
    entry_options options;
    EXPECT_EQ(std::get<2>(gather(workers, {file}, options).entries[0]), sum);
    options.duplicates = duplicate_rule::last;
    EXPECT_EQ(std::get<2>(gather(workers, {file}, options).entries[0]), 999.25);
    options.duplicates = duplicate_rule::keep;
    const auto all = gather(workers, {file}, options);
    ASSERT_EQ(all.entries_total, 2000U);
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(std::get<2>(all.entries[static_cast<std::size_t>(i)]), i + 0.25);
  }
}

TEST(LoadSparse, AFormIsReadAsItSays) {
  const folder here;
  const auto expect = [&](const std::string& text, const std::vector<std::string>& rows,
                          const std::vector<std::string>& columns, const std::vector<double>& values,
                          const entry_options& options = {}) {
    for (const auto workers : worker_counts) {
      const auto got = gather(workers, {here.write("e", text)}, options);
      EXPECT_EQ(got.rows, rows) << text;
      EXPECT_EQ(got.columns, columns) << text;
      std::vector<double> got_values;
      for (const auto& e : got.entries) got_values.push_back(std::get<2>(e));
      EXPECT_EQ(got_values, values) << text;
    }
  };
  expect("1,2\n3,4,5\n6,7:8\n9,10|11\n", {"1", "3", "6", "9"}, {"2", "4", "7", "10"}, {1, 5, 8, 11});
  expect("a b:2\n\n  \r\nc d 3\r\n", {"a", "c"}, {"b", "d"}, {2, 3});
  expect("a;b;4;more;still more\n", {"a"}, {"b"}, {4});
  expect("1|2|0.5\n", {"1"}, {"2"}, {0.5});
  expect("a\tlib c:any\t2\nb\tx:y\n", {"a", "b"}, {"lib c:any", "x:y"}, {2, 1});
  expect("\"a,1\",\"b \"\"c\"\"\",2\n", {"a,1"}, {"b \"c\""}, {2});
  expect("# a comment\n1 2\n#\n3 4\n", {"1", "3"}, {"2", "4"}, {1, 1});
  expect(
      "\xef\xbb\xbf"
      "1,2,3",
      {"1"}, {"2"}, {3});
  entry_options header;
  header.header = entry_options::header_rule::yes;
  expect("user,item,rating\n1,2,3\n", {"1"}, {"2"}, {3}, header);
  entry_options transpose;
  transpose.transpose = true;
  expect("1,5,3\n2,4,2\n", {"4", "5"}, {"1", "2"}, {2, 3}, transpose);
  entry_options libsvm;
  libsvm.format = entry_format::libsvm;
  expect("doc2 3:1.5 10:2\ndoc1 10:7\nempty\n", {"doc1", "doc2", "empty"}, {"3", "10"}, {7, 1.5, 2}, libsvm);
  expect("5 3:1 10:2\n4 10:7\n", {"4", "5"}, {"3", "10"}, {7, 1, 2});
  expect("%%MatrixMarket matrix coordinate real general\n% said\n3 4 2\n1 2 0.5\n3 1 7\n", {"1", "2", "3"},
         {"1", "2", "3", "4"}, {0.5, 7});
  expect("%%MatrixMarket matrix coordinate integer symmetric\n2 2 2\n1 1 3\n2 1 4\n", {"1", "2"}, {"1", "2"},
         {3, 4, 4});
  expect("%%MatrixMarket matrix coordinate pattern general\n1 2 1\n1 2\n", {"1"}, {"1", "2"}, {1});
  expect("", {}, {}, {});
  expect("\n\n", {}, {}, {});
}

TEST(LoadSparse, ValuesBelowZeroAreRefusedOnlyWhereTheyAreReadAndMinusZeroIsNone) {
  const folder here;
  const auto file = here.write("e", "1,2,-0\n1,3,0\n");
  const auto minus = here.write("m", "1,2,-1\na,b:-1\n");
  test::cluster job({.workers = 2});
  job.run([&](Comm comm) {
    entry_options options;
    options.non_negative = true;
    EXPECT_EQ(load_sparse(comm, {file}, options).entries_total, 2U);
    options.values = entry_options::value_rule::ignore;
    EXPECT_EQ(load_sparse(comm, {minus}, options).entries_total, 2U);
  });
}

TEST(LoadSparse, AllRowsOfALargeMatrixWithFewEntriesExist) {
  const folder here;
  const auto file =
      here.write("m", "%%MatrixMarket matrix coordinate real general\n1500000 2000000 1\n1400000 7 2.5\n");
  for (const std::size_t workers : {1U, 3U}) {
    test::cluster c({.workers = workers});
    std::atomic<std::uint64_t> at{0};
    c.run([&](Comm comm) {
      const auto got = load_sparse(comm, {file});
      EXPECT_EQ(got.rows_total(), 1500000U);
      EXPECT_EQ(got.columns_total, 2000000U);
      EXPECT_EQ(got.entries_total, 1U);
      for (std::size_t i = 0; i < got.rows(); ++i) {
        if (got.columns_of(i).empty()) continue;
        EXPECT_EQ(got.column_ids.text(got.columns_of(i)[0]), "7");
        EXPECT_EQ(got.values_of(i)[0], 2.5);
        at = got.row_ids.number(i);
      }
    });
    EXPECT_EQ(at, 1400000U);
  }
}

TEST(LoadSparse, SeveralFilesAreOneInput) {
  const folder here;
  const std::vector<std::string> files{here.write("a", ""), here.write("b", "1 2 3"), here.write("c", "\n"),
                                       here.write("d", "4 5 6\n1 9 1")};
  for (const auto workers : worker_counts) EXPECT_EQ(gather(workers, files).entries_total, 3U);
}

TEST(LoadSparse, WrongInputIsTheSameErrorOnAllWorkers) {
  const folder here;
  struct trial {
    std::string file, want;
    entry_options options;
  };
  std::vector<trial> trials;
  const auto expect = [&](const std::string& text, const std::string& want, const entry_options& options = {}) {
    const auto file = here.write("e" + std::to_string(trials.size()), text);
    trials.push_back({file, file + want, options});
  };
  entry_options numbers;
  numbers.ids = entry_options::id_kind::number;
  entry_options values;
  values.values = entry_options::value_rule::need;
  std::string good;
  for (int i = 0; i < 40; ++i) good += std::to_string(i) + ",2,3\n";
  expect(good + "4,5,x\n" + good + "a\n", ":41:5: found \"x\", want a number");
  expect(good + "4,5,nan\n", ":41:5: found \"nan\", want a finite number");
  expect(good + "4,5,1e999\n", ":41:5: found \"1e999\", want a finite number");
  expect(good + "4,5,\n", ":41:5: found \"\", want a number");
  expect(good + "4\n", ":41:1: found one field, want two or three");
  expect(good + "4,,1\n", ":41:3: found an empty field, want an id");
  expect(good + ",4,1\n", ":41:1: found an empty field, want an id");
  expect(good + "4,5:x\n", ":41:5: found \"x\", want a number");
  expect(good + "4,\"5,1\n", ":41:3: found a quote that is not closed in its line");
  expect(good + "4,b,1\n", ":41:3: found \"b\", want an id: a whole number from 0 to 2^64 - 1", numbers);
  expect(good + "4,18446744073709551616,1\n",
         ":41:3: found \"18446744073709551616\", want an id: a whole number from 0 to 2^64 - 1", numbers);
  expect(good + "4,5\n", ":41:4: found two fields, want a value after them", values);
  entry_options ignore;
  ignore.values = entry_options::value_rule::ignore;
  for (const auto& options : {entry_options{}, ignore}) {
    expect("1 2:3\n4 5:0.5 6:1\n",
           ":2:3: found \"5:0.5\" with a field after it, want id:value alone, or the format libsvm", options);
    expect("a\tb:1\tc\n", ":1:3: found \"b:1\" with a field after it, want id:value alone, or the format libsvm",
           options);
  }
  entry_options positive;
  positive.non_negative = true;
  // Through the fast path for lines and the general one, including sums that would not be negative.
  expect(good + "0,2,-3\n", ":41:5: found \"-3\", want a number of at least 0", positive);
  expect(good + "4,5:-.50\n", ":41:5: found \"-.50\", want a number of at least 0", positive);
  expect(good + "b,\"c\",-1e-300\n", ":41:7: found \"-1e-300\", want a number of at least 0", positive);
  expect(good + "b,c:-2\n", ":41:5: found \"-2\", want a number of at least 0", positive);
  expect(good + "4,5,nan\n", ":41:5: found \"nan\", want a finite number", positive);
  expect("4 5:1 6:-2\n", ":1:9: found \"-2\", want a number of at least 0", positive);
  expect("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 -7\n",
         ":3:5: found \"-7\", want a number of at least 0", positive);
  const std::string banner = "%%MatrixMarket matrix coordinate real general\n";
  expect(banner + "4294967295 1 0\n", ":2:1: found \"4294967295\", want at most 4294967294 rows");
  expect(banner + "1 10000000000000000000 0\n",
         ":2:3: found \"10000000000000000000\", want at most 4294967294 columns");
  const std::string market = "%%MatrixMarket matrix coordinate real general\n";
  expect(market + "2 2 2\n1 1 1\n", ":2:1: found 1 entries, want 2 as this line says");
  expect(market + "2 2 1\n1 3 1\n", ":3:3: found \"3\", want a column from 1 to 2");
  expect(market + "2 2 1\n0 1 1\n", ":3:1: found \"0\", want a row from 1 to 2");
  expect(market + "2 2 1\n1 1\n", ":3:4: found \"\", want a number");
  expect(market + "2 2\n", ":2:4: found \"\", want rows, columns and entries");
  expect("%%MatrixMarket matrix array real general\n1 1\n1\n", ":1:23: found \"array\", want coordinate");
  expect(market, ":2:1: found the end of the file, want rows, columns and entries");
  entry_options once;
  once.duplicates = duplicate_rule::refuse;
  expect(good + good, ":41:1: found an entry of row \"0\" and column \"2\" that is there before, want each one once",
         once);
  expect(good + "a,b\n" + good + "7,2,1\n",
         ":42:1: found an entry of row \"0\" and column \"2\" that is there before, want each one once", once);
  expect(market + "% said\n2 2 2\n1 2 1\n1 2 3\n",
         ":5:1: found an entry of row \"1\" and column \"2\" that is there before, want each one once", once);
  for (const auto workers : worker_counts) {
    test::cluster job({.workers = workers});
    job.run([&](Comm comm) {
      for (const auto& t : trials) {
        std::string found;
        try {
          load_sparse(comm, {t.file}, t.options);
        } catch (const data_error& e) {
          EXPECT_EQ(e.status(), exit_status::data);
          found = e.what();
        }
        EXPECT_EQ(found, t.want);
      }
    });
  }
}

// ---- graphs

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
  test::cluster job({.workers = workers});
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
          to.emplace_back(g.number(v), g.number(a.of(v)[k]), options.weighted ? a.weights_of(v)[k] : 1);
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
  const folder here;
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

TEST(LoadGraph, EdgesAreSpreadEvenly) {
  const folder here;
  const auto edges = random_entries(1, 20'000, 4000, 3000, scattered);
  const auto file = here.write("edges", text_of(edges));
  for (const auto workers : worker_counts) {
    const auto got = gather_graph(workers, {file}, {});
    for (const auto load : got.loads)
      EXPECT_LT(static_cast<double>(load), 1.15 * 20'000 / static_cast<double>(workers)) << workers;
  }
}

TEST(LoadGraph, AStarHasOneBusyWorkerAndAllItsVertices) {
  const folder here;
  std::vector<entry> edges;
  for (int i = 1; i < 500; ++i) edges.push_back({"0", std::to_string(i), 1});
  const auto file = here.write("edges", text_of(edges));
  for (const auto workers : worker_counts) expect_graph(gather_graph(workers, {file}, {}), edges, {}, {}, true);
}

TEST(LoadGraph, MoreWorkersThanLinesOrNoLineAtAll) {
  const folder here;
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
  const folder here;
  graph_options options;
  options.entries.ids = entry_options::id_kind::number;
  const auto nodes = here.write("nodes", "1\n2\nx y\n");
  options.entries.rows_also = {nodes};
  const auto edges = here.write("edges", "1 2\n");
  test::cluster job({.workers = 2});
  try {
    job.run([&](Comm comm) { load_graph(comm, {edges}, options); });
    FAIL();
  } catch (const data_error& e) {
    EXPECT_EQ(std::string(e.what()), nodes + ":3:1: found \"x\", want an id: a whole number from 0 to 2^64 - 1");
  }
}

TEST(Halo, PullBringsTheOwnersValueAndPushFoldsInTheOrderOfTheRanks) {
  const folder here;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const auto edges = random_entries(seed, 1500, 100, 300, scattered);
    const auto file = here.write("edges", text_of(edges));
    for (const auto workers : worker_counts) {
      test::cluster job({.workers = workers});
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

// ---- numbers of more than 32 bits

TEST(BuildRows, ColumnsOfMoreThan32BitsAreKeptWhole) {
  for (const auto workers : worker_counts) {
    test::cluster job({.workers = workers});
    job.run([&](Comm comm) {
      // Each worker owns ten rows, and has an entry for each row of all; column numbers begin at 2^33.
      std::vector<std::uint64_t> first;
      for (std::size_t w = 0; w <= workers; ++w) first.push_back(w * 10);
      constexpr std::uint64_t large = std::uint64_t{1} << 33U;
      chunked_vector entries(true);
      global_ids numbers;
      numbers.first = {0, large, large + 3};
      numbers.cut = {0, 0, 10 * workers};
      for (std::uint32_t r = 0; r < 10 * workers; ++r) {
        entries.push(r, r, static_cast<double>(comm.get_rank()) + 0.5);
        numbers.place.push_back((r * 7) % 3);
      }
      index_numbers rows;
      index_numbers columns({}, numbers);
      ASSERT_TRUE(columns.is_wide);
      duplicate_entry twice;
      const auto built = build_rows<std::uint64_t>(comm, first, entries, rows, columns, {}, twice);
      ASSERT_EQ(built.begin.size(), 11U);
      for (std::size_t i = 0; i < 10; ++i) {
        ASSERT_EQ(built.begin[i + 1], i + 1);
        const auto r = comm.get_rank() * 10 + i;
        EXPECT_EQ(built.column[i], large + (r * 7) % 3);
        EXPECT_EQ(built.value[i],
                  static_cast<double>(workers * (workers - 1)) / 2 + 0.5 * static_cast<double>(workers));
      }
    });
  }
}

// ---- shared data

std::string shared_data(const std::string& name) {
  const char* where = std::getenv("PARACEL_SHARED_DATA");
  const std::string folder = where != nullptr ? where : test::source_folder() + "/../shared/data";
  return folder + "/" + name;
}

TEST(LoadGraph, DebianDependenciesHaveAllTheirVertices) {
  const auto edges = shared_data("debian-deps/edges.txt");
  if (!std::filesystem::exists(edges)) GTEST_SKIP() << edges << " is not there";
  for (const std::size_t workers : {1, 2}) {
    test::cluster job({.workers = workers});
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

TEST(LoadSparse, MovielensHasItsRatings) {
  const auto ratings = shared_data("movielens-small/ratings.csv");
  if (!std::filesystem::exists(ratings)) GTEST_SKIP() << ratings << " is not there";
  for (const std::size_t workers : {1, 2}) {
    test::cluster job({.workers = workers});
    job.run([&](Comm comm) {
      const auto part = load_sparse(comm, {ratings});
      EXPECT_EQ(part.rows_total(), 671U);
      EXPECT_EQ(part.columns_total, 9'066U);
      EXPECT_EQ(part.entries_total, 100'004U);
    });
  }
}

}  // namespace
