// SPDX-License-Identifier: BSD-3-Clause
//
// Matrices loaded by several workers are compared with a map of maps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/error.hpp>
#include <paracel/sparse.hpp>

#include "test/support/cluster.hpp"
#include "test/support/entry_files.hpp"
#include "test/support/temporary_folder.hpp"

namespace paracel::test::entries {
namespace {

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
  cluster job({.workers = workers});
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

TEST(LoadSparse, IsTheSumOfItsEntriesWhateverTheNumberOfWorkers) {
  const temporary_folder here;
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
  const temporary_folder here;
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
  const temporary_folder here;
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
  const temporary_folder here;
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
  const temporary_folder here;
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
    options.duplicates = duplicate_rule::min;
    EXPECT_EQ(std::get<2>(gather(workers, {file}, options).entries[0]), 0.25);
    options.duplicates = duplicate_rule::max;
    EXPECT_EQ(std::get<2>(gather(workers, {file}, options).entries[0]), 999.25);
    options.duplicates = duplicate_rule::keep;
    const auto all = gather(workers, {file}, options);
    ASSERT_EQ(all.entries_total, 2000U);
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(std::get<2>(all.entries[static_cast<std::size_t>(i)]), i + 0.25);
  }
}

TEST(LoadSparse, AFormIsReadAsItSays) {
  const temporary_folder here;
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

// Of several small files and many workers, most parts begin in the middle of a file, or after its header.
TEST(LoadSparse, HeadersAndCommentsAreSkippedWhereverThePartsBegin) {
  const temporary_folder here;
  const std::string movies = "userId,movieId,rating,timestamp";
  const std::vector<std::string> files{
      here.write("a", "\xef\xbb\xbf% said\r\n\r\n" + movies + "\r\n1,2,3,9\r\n# no\r\n4,5,6,9\r\n"),
      here.write("b", movies + "\n"), here.write("c", "7,8,9,9\n"), here.write("d", "# " + movies + "\n1,8,2,9\n"),
      here.write("e", movies + "\n//\n4,2,1,9")};
  std::vector<std::tuple<std::uint64_t, std::uint64_t, double>> want{
      {0, 0, 3}, {0, 2, 2}, {1, 0, 1}, {1, 1, 6}, {2, 2, 9}};
  for (const std::size_t workers : {1U, 2U, 3U, 5U, 8U, 13U}) {
    const auto got = gather(workers, files);
    EXPECT_EQ(got.rows, (std::vector<std::string>{"1", "4", "7"}));
    EXPECT_EQ(got.columns, (std::vector<std::string>{"2", "5", "8"}));
    EXPECT_EQ(got.entries, want) << workers;
  }
}

TEST(LoadSparse, ColumnsAreFoundByNameInEachFile) {
  const temporary_folder here;
  entry_options options;
  options.columns = {"user", "item", "stars"};
  const std::vector<std::string> files{here.write("a", "item,user,\"stars\"\n7,\"ann, the first\",3\n8,bob,4\n"),
                                       here.write("b", "when,stars,user,item\n2001,5,cy,7\n")};
  for (const std::size_t workers : {1U, 3U}) {
    const auto got = gather(workers, files, options);
    EXPECT_EQ(got.rows, (std::vector<std::string>{"ann, the first", "bob", "cy"}));
    EXPECT_EQ(got.columns, (std::vector<std::string>{"7", "8"}));
    EXPECT_EQ(got.entries_total, 3U);
  }
  entry_options numbers;
  numbers.columns = {"3", "0"};
  const auto got = gather(2, {here.write("c", "1::x::y::9\n2::x::y::9\n")}, numbers);
  EXPECT_EQ(got.rows, std::vector<std::string>{"9"});
  EXPECT_EQ(got.columns, (std::vector<std::string>{"1", "2"}));
}

TEST(LoadSparse, ValuesBelowZeroAreRefusedOnlyWhereTheyAreReadAndMinusZeroIsNone) {
  const temporary_folder here;
  const auto file = here.write("e", "1,2,-0\n1,3,0\n");
  const auto minus = here.write("m", "1,2,-1\na,b:-1\n");
  cluster job({.workers = 2});
  job.run([&](Comm comm) {
    entry_options options;
    options.non_negative = true;
    EXPECT_EQ(load_sparse(comm, {file}, options).entries_total, 2U);
    options.values = entry_options::value_rule::ignore;
    EXPECT_EQ(load_sparse(comm, {minus}, options).entries_total, 2U);
  });
}

TEST(LoadSparse, AllRowsOfALargeMatrixWithFewEntriesExist) {
  const temporary_folder here;
  const auto file =
      here.write("m", "%%MatrixMarket matrix coordinate real general\n1500000 2000000 1\n1400000 7 2.5\n");
  for (const std::size_t workers : {1U, 3U}) {
    cluster c({.workers = workers});
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
  const temporary_folder here;
  const std::vector<std::string> files{here.write("a", ""), here.write("b", "1 2 3"), here.write("c", "\n"),
                                       here.write("d", "4 5 6\n1 9 1")};
  for (const auto workers : worker_counts) EXPECT_EQ(gather(workers, files).entries_total, 3U);
}

TEST(LoadSparse, WrongInputIsTheSameErrorOnAllWorkers) {
  const temporary_folder here;
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
  expect("user,item,rating\n" + good + "4,x,y\n", ":42:5: found \"y\", want a number");
  entry_options columns;
  columns.columns = {"0", "2", "4"};
  expect("1,2,3,4,5\n1,2,3,4\n", ":2:8: found 4 fields, want 5", columns);
  expect("1,2,3,4,5\n1,2,3,4,x\n", ":2:9: found \"x\", want a number", columns);
  entry_options once;
  once.duplicates = duplicate_rule::refuse;
  expect(good + good, ":41:1: found an entry of row \"0\" and column \"2\" for the second time, want each at most once",
         once);
  expect(good + "a,b\n" + good + "7,2,1\n",
         ":42:1: found an entry of row \"0\" and column \"2\" for the second time, want each at most once", once);
  expect(market + "% said\n2 2 2\n1 2 1\n1 2 3\n",
         ":5:1: found an entry of row \"1\" and column \"2\" for the second time, want each at most once", once);
  for (const auto workers : worker_counts) {
    cluster job({.workers = workers});
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

TEST(LoadSparse, MovielensHasItsRatings) {
  const auto ratings = shared_data("movielens-small/ratings.csv");
  if (!std::filesystem::exists(ratings)) GTEST_SKIP() << ratings << " is not there";
  for (const std::size_t workers : {1, 2}) {
    cluster job({.workers = workers});
    job.run([&](Comm comm) {
      const auto part = load_sparse(comm, {ratings});
      EXPECT_EQ(part.rows_total(), 671U);
      EXPECT_EQ(part.columns_total, 9'066U);
      EXPECT_EQ(part.entries_total, 100'004U);
    });
  }
}

}  // namespace
}  // namespace paracel::test::entries
