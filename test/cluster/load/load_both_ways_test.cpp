// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>

#include <paracel/random.hpp>
#include <paracel/sparse.hpp>

#include "test/support/cluster.hpp"
#include "test/support/temporary_folder.hpp"

namespace {

using namespace paracel;

class LoadBothWays : public ::testing::Test {
 protected:
  /// Entries, some of them repeated; some columns are frequent. `name`: prefix of each number.
  std::string write(std::uint64_t seed, const std::string& name) const {
    const auto path = folder_ / (name + std::to_string(seed));
    std::ofstream out(path);
    counter_random r(seed);
    for (int i = 0; i < 3000; ++i) {
      const auto row = r.below(150) * 7;
      const auto column = r.below(4) == 0 ? r.below(3) : r.below(90);
      out << name << row << ',' << name << column << ',' << static_cast<double>(r.below(1000)) / 8 << '\n';
    }
    return path.string();
  }

  static void expect_equal(const sparse_rows& a, const sparse_rows& b) {
    EXPECT_EQ(a.row_first, b.row_first);
    EXPECT_EQ(a.row_ids, b.row_ids);
    EXPECT_EQ(a.column_ids, b.column_ids);
    EXPECT_EQ(a.column_number, b.column_number);
    EXPECT_EQ(a.columns_total, b.columns_total);
    EXPECT_EQ(a.entries_total, b.entries_total);
    EXPECT_EQ(a.begin, b.begin);
    EXPECT_EQ(a.column, b.column);
    EXPECT_EQ(a.value, b.value);
  }

  const paracel::test::temporary_folder folder_{"paracel_both_"};
};

TEST_F(LoadBothWays, IsWhatTwoLoadsAreForEveryRuleOfDuplicates) {
  for (const std::string name : {"", "v"}) {
    const auto file = write(name.size() + 1, name);
    for (const auto rule : {duplicate_rule::sum, duplicate_rule::keep, duplicate_rule::last}) {
      for (const bool transpose : {false, true}) {
        for (const std::size_t workers : {1, 2, 3, 5}) {
          SCOPED_TRACE(name + std::to_string(workers) + (transpose ? " transposed" : ""));
          entry_options options;
          options.duplicates = rule;
          options.transpose = transpose;
          if (rule == duplicate_rule::last) options.values = entry_options::value_rule::ignore;
          test::cluster job({.workers = workers});
          job.run([&](Comm comm) {
            const auto both = load_sparse_both_ways(comm, {file}, options);
            auto turned = options;
            turned.transpose = !transpose;
            expect_equal(both.rows, load_sparse(comm, {file}, options));
            expect_equal(both.columns, load_sparse(comm, {file}, turned));
            EXPECT_EQ(all_column_ids(comm, both.rows), all_row_ids(comm, both.columns));
            EXPECT_EQ(all_row_ids(comm, both.rows), all_column_ids(comm, both.columns));
          });
        }
      }
    }
  }
}

TEST_F(LoadBothWays, AnEntryThatIsThereTwiceIsRefusedWithItsPlace) {
  const auto file = (folder_ / "twice").string();
  std::ofstream(file) << "1,2,3\n2,2,3\n1,1,1\n2,2,4\n";
  entry_options options;
  options.duplicates = duplicate_rule::refuse;
  for (const std::size_t workers : {1, 3}) {
    test::cluster job({.workers = workers});
    job.run([&](Comm comm) {
      try {
        (void)load_sparse_both_ways(comm, {file}, options);
        ADD_FAILURE();
      } catch (const data_error& e) {
        EXPECT_NE(std::string(e.what()).find(R"(twice:4:1: found an entry of row "2" and column "2")"),
                  std::string::npos)
            << e.what();
      }
    });
  }
}

}  // namespace
