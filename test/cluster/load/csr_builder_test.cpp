// SPDX-License-Identifier: BSD-3-Clause
//
// Sparse rows that several workers build from each other's entries.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <paracel/comm.hpp>

#include "load/csr_builder.hpp"
#include "test/support/cluster.hpp"
#include "test/support/entry_files.hpp"

namespace paracel::test::entries {
namespace {

TEST(BuildRows, ColumnsOfMoreThan32BitsAreKeptWhole) {
  for (const auto workers : worker_counts) {
    cluster job({.workers = workers});
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

}  // namespace
}  // namespace paracel::test::entries
