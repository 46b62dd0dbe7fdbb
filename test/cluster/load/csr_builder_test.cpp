// SPDX-License-Identifier: BSD-3-Clause
//
// Sparse rows that several workers build from each other's entries.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <utility>
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

/// Entries of few rows with random columns below `columns`, many of them twice or more often, against a stable sort.
template <class Column>
void expect_sorted_rows(Comm comm, std::uint64_t columns, std::size_t n, bool valued, bool in_order) {
  constexpr std::uint32_t rows = 90;
  const std::vector<std::uint64_t> first{0, rows};
  std::mt19937_64 random(columns + n);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (std::size_t k = 0; k < n; ++k) {
    // Most of them in one row.
    const auto row = static_cast<std::uint32_t>(random() % 8 != 0 ? 7 : random() % rows);
    pairs.emplace_back(row, static_cast<std::uint32_t>(random() % 3 == 0 ? random() % 20 : random() % columns));
  }
  if (in_order) std::ranges::sort(pairs);
  std::vector<double> values(n, 1);
  // The last digits of a sum show the order of its terms.
  for (std::size_t k = 1; valued && k < n; ++k) values[k] = values[k - 1] * -1.0000001;
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, {}, [&](std::size_t k) { return pairs[k]; });
  using enum duplicate_rule;
  for (const auto rule : {sum, keep, last, min, max}) {
    if (n > 1'000'000 && rule != sum) break;  // for the time it takes
    chunked_vector entries(valued, 1000);
    for (std::size_t k = 0; k < n; ++k) entries.push(pairs[k].first, pairs[k].second, values[k]);
    index_numbers identity;
    index_numbers also;
    duplicate_entry twice;
    const auto built = build_rows<Column>(comm, first, entries, identity, also, {.duplicates = rule}, twice);
    numbered_rows<Column> wanted;
    for (std::size_t i = 0; i < n; ++i) {
      const auto [row, column] = pairs[order[i]];
      const auto value = values[order[i]];
      while (wanted.begin.size() <= row) wanted.begin.push_back(wanted.column.size());
      if (rule == keep || i == 0 || pairs[order[i - 1]] != pairs[order[i]]) {
        wanted.column.push_back(column);
        if (valued) wanted.value.push_back(value);
      } else if (valued) {
        auto& v = wanted.value.back();
        v = rule == sum ? v + value : rule == min ? std::min(v, value) : rule == max ? std::max(v, value) : value;
      }
    }
    while (wanted.begin.size() <= rows) wanted.begin.push_back(wanted.column.size());
    const auto what = std::to_string(columns) + " columns, " + std::to_string(n) + " entries, rule " +
                      std::to_string(static_cast<int>(rule)) + (valued ? ", with values" : "") +
                      (in_order ? ", in order" : "");
    ASSERT_EQ(built.begin, wanted.begin) << what;
    ASSERT_EQ(built.column, wanted.column) << what;
    ASSERT_EQ(built.value, wanted.value) << what;
  }
}

TEST(BuildRows, AreSortedAndDuplicatesStayInInputOrder) {
  cluster job({.workers = 1});
  job.run([&](Comm comm) {
    // One pass to three; too few entries for that, and too many; one column.
    for (const std::uint64_t columns : {1U, 2U, 2000U, 2048U, 2049U, 1U << 20U, 1U << 22U, 1U << 23U, 1U << 31U}) {
      for (const bool valued : {false, true}) {
        expect_sorted_rows<std::uint32_t>(comm, columns, 9000, valued, false);
        expect_sorted_rows<std::uint64_t>(comm, columns, 9000, valued, false);
      }
    }
    for (const std::size_t n : {1U, 100U, 8191U, 8192U, 1300000U}) {
      expect_sorted_rows<std::uint32_t>(comm, 50000, n, true, false);
      expect_sorted_rows<std::uint32_t>(comm, 50000, n, false, n > 100);
    }
  });
}

}  // namespace
}  // namespace paracel::test::entries
