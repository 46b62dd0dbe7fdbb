// SPDX-License-Identifier: BSD-3-Clause
//
// Sparse rows that several workers build from each other's entries.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
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

/// What a worker shall build of the entries of all workers, in the order of their ranks.
template <class Column>
struct expected_rows {
  numbered_rows<Column> rows;
  std::vector<std::uint64_t> bits;  // of the values
};

struct placed_entry {
  std::uint32_t row, column;
  double value;
};

template <class Column>
expected_rows<Column> rows_of_all(const std::vector<placed_entry>& all, const build_options& how, std::uint64_t low,
                                  std::uint64_t high, bool valued) {
  std::vector<placed_entry> stored;
  for (const auto& e : all) {
    if (e.row == e.column && !how.self_loops) continue;
    auto [a, c, value] = e;
    // An edge is stored at its smaller end if the sum of both is even, otherwise at the greater one.
    if (how.once && (a < c) != ((a + c) % 2 == 0)) std::swap(a, c);
    stored.push_back({a, c, value});
    if (how.both_ways && a != c) stored.push_back({c, a, value});
  }
  std::ranges::stable_sort(stored, {}, [](const placed_entry& e) { return std::pair(e.row, e.column); });
  const auto less = [](double x, double y) { return x < y || (x == y && std::signbit(x) && !std::signbit(y)); };
  expected_rows<Column> wanted;
  auto& rows = wanted.rows;
  std::vector<double> values;
  std::uint64_t last_row = high;
  for (const auto& e : stored) {
    if (e.row < low || e.row >= high) continue;
    while (rows.begin.size() <= e.row - low) rows.begin.push_back(rows.column.size());
    if (how.duplicates == duplicate_rule::keep || last_row != e.row || rows.column.back() != e.column) {
      rows.column.push_back(e.column);
      values.push_back(e.value);
    } else {
      using enum duplicate_rule;
      auto& v = values.back();
      if (how.duplicates == sum) v += e.value;
      else if (how.duplicates == last || (how.duplicates == min ? less(e.value, v) : less(v, e.value))) v = e.value;
    }
    last_row = e.row;
  }
  while (rows.begin.size() <= high - low) rows.begin.push_back(rows.column.size());
  for (const auto v : values)
    if (valued) wanted.bits.push_back(std::bit_cast<std::uint64_t>(v));
  return wanted;
}

/// Each worker has some of the entries of every row.
template <class Column>
void expect_rows_of_all(Comm comm, const build_options& how, bool valued, std::size_t most, std::uint64_t seed) {
  constexpr std::uint64_t rows_of_each = 40;
  const auto workers = comm.get_size();
  const auto rows = static_cast<std::uint32_t>(rows_of_each * workers);
  std::vector<std::uint64_t> first;
  for (std::size_t w = 0; w <= workers; ++w) first.push_back(w * rows_of_each);
  std::mt19937_64 random(seed);
  std::vector<placed_entry> all;
  chunked_vector entries(valued, 1000);
  for (std::size_t w = 0; w < workers; ++w) {
    // Those of rank 0 have many duplicates; those of the last one are few, and need fewer rounds.
    const std::size_t n = w == 0 ? most : w + 1 == workers ? 30 : 2000;
    for (std::size_t k = 0; k < n; ++k) {
      // Zeros of both signs, and values whose sum shows their order.
      const double value =
          random() % 4 == 0 ? (random() % 2 == 0 ? 0.0 : -0.0) : static_cast<double>(random() % 1000) / 7;
      const auto row = static_cast<std::uint32_t>(random() % rows);
      all.push_back({row, static_cast<std::uint32_t>(random() % 5 == 0 ? row : random() % rows), value});
      if (w == comm.get_rank()) entries.push(row, all.back().column, value);
    }
  }
  index_numbers identity;
  index_numbers also;
  duplicate_entry twice;
  const auto built = build_rows<Column>(comm, first, entries, identity, also, how, twice);
  const auto low = first[comm.get_rank()];
  const auto wanted = rows_of_all<Column>(all, how, low, low + rows_of_each, valued);
  const auto what = std::to_string(workers) + " workers, rule " + std::to_string(static_cast<int>(how.duplicates)) +
                    (how.once        ? ", once"
                     : how.both_ways ? ", both ways"
                                     : "") +
                    (valued ? ", with values" : "");
  ASSERT_EQ(built.begin, wanted.rows.begin) << what;
  ASSERT_EQ(built.column, wanted.rows.column) << what;
  std::vector<std::uint64_t> bits;
  for (const auto v : built.value) bits.push_back(std::bit_cast<std::uint64_t>(v));
  ASSERT_EQ(bits, wanted.bits) << what;
}

TEST(BuildRows, AreTheSameForAnyNumberOfWorkers) {
  for (const auto workers : worker_counts) {
    cluster job({.workers = workers});
    job.run([&](Comm comm) {
      std::uint64_t seed = 5;
      using enum duplicate_rule;
      expect_rows_of_all<std::uint32_t>(comm, {.both_ways = true}, true, 90'000, ++seed);  // several rounds
      for (const auto rule : {sum, keep, last, min, max}) {
        for (const bool valued : {false, true}) {
          expect_rows_of_all<std::uint32_t>(comm, {.self_loops = false, .duplicates = rule}, valued, 6000, ++seed);
          expect_rows_of_all<std::uint64_t>(comm, {.both_ways = true, .duplicates = rule}, valued, 6000, ++seed);
          expect_rows_of_all<std::uint32_t>(comm, {.once = true, .self_loops = false, .duplicates = rule}, valued, 6000,
                                            ++seed);
        }
      }
    });
  }
}

}  // namespace
}  // namespace paracel::test::entries
