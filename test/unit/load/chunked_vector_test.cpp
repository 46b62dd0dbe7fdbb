// SPDX-License-Identifier: BSD-3-Clause
//
// Packed blocks of entries against the entries themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "load/chunked_vector.hpp"

namespace paracel::test::chunked {
namespace {

template <class Column>
struct entry_lists {
  std::vector<std::uint32_t> row;
  std::vector<Column> column;
  std::vector<double> value;
  bool operator==(const entry_lists&) const = default;
};

/// A store and what was pushed to it: rows and columns below 2^bits, the last of which occurs.
template <class Column>
struct filled {
  filled(unsigned row_bits, unsigned column_bits, std::size_t n, bool valued) : store(valued, block_entries) {
    std::mt19937_64 random(row_bits * 64 + column_bits);
    const auto below = [&](unsigned bits) { return bits == 0 ? 0 : random() >> (64 - bits); };
    for (std::size_t k = 0; k < n; ++k) {
      const bool last = k % block_entries == 7;
      all.row.push_back(static_cast<std::uint32_t>(last ? (std::uint64_t{1} << row_bits) - 1 : below(row_bits)));
      all.column.push_back(
          static_cast<Column>(last && column_bits < 64 ? (std::uint64_t{1} << column_bits) - 1 : below(column_bits)));
      if (valued) all.value.push_back(static_cast<double>(random()));
    }
    // One by one, then several at once: fewer than a block has, and more.
    std::size_t k = 0;
    for (; k < n / 3; ++k) store.push(all.row[k], all.column[k], valued ? all.value[k] : 1);
    while (k < n) {
      const auto some = std::min<std::size_t>(1 + random() % (3 * block_entries), n - k);
      store.append(all.row.data() + k, all.column.data() + k, valued ? all.value.data() + k : nullptr, some);
      k += some;
    }
  }
  static constexpr std::size_t block_entries = 50;
  basic_entry_store<Column> store;
  entry_lists<Column> all;
};

template <class View, class Column>
void append(const View& b, entry_lists<Column>& to) {
  to.row.insert(to.row.end(), b.row, b.row + b.size);
  to.column.insert(to.column.end(), b.column, b.column + b.size);
  if (b.value != nullptr) to.value.insert(to.value.end(), b.value, b.value + b.size);
}

template <class Column>
void expect_all_ways(unsigned row_bits, unsigned column_bits, std::size_t n, bool valued) {
  SCOPED_TRACE(std::to_string(row_bits) + " and " + std::to_string(column_bits) + " bits, " + std::to_string(n) +
               (valued ? " with values" : " without values"));
  using made = filled<Column>;
  made one(row_bits, column_bits, n, valued);
  ASSERT_EQ(one.store.size(), n);
  ASSERT_EQ(one.store.blocks(), (n + made::block_entries - 1) / made::block_entries);
  entry_lists<Column> got;
  one.store.each_block([&](const auto& b) { append(b, got); });
  EXPECT_EQ(got, one.all);
  // Changed so that other numbers of bits are needed.
  one.store.change_blocks([](const auto& b) {
    for (std::size_t k = 0; k < b.size; ++k) {
      b.row[k] /= 300;
      b.column[k] = static_cast<Column>(b.column[k] * 5);
    }
  });
  for (auto& r : one.all.row) r /= 300;
  for (auto& c : one.all.column) c = static_cast<Column>(c * 5);
  got = {};
  typename basic_entry_store<Column>::room room;
  for (auto i = one.store.blocks(); i-- > 0;) append(one.store.block(i, room), got);
  EXPECT_EQ(got.row.size(), n);
  got = {};
  auto moved = std::move(one.store);
  moved.drain_blocks([&](const auto& b) { append(b, got); });
  EXPECT_EQ(got, one.all);
  EXPECT_EQ(moved.size(), 0U);

  made other(row_bits, column_bits, n, valued);
  got.row.assign(n, 0);
  got.column.assign(n, 0);
  got.value.assign(valued ? n : 0, 0);
  other.store.drain_to(got.row.data(), got.column.data(), got.value.data());
  EXPECT_EQ(got, other.all);
  EXPECT_EQ(other.store.size(), 0U);
}

TEST(ChunkedVector, GivesBackWhatWasPushed) {
  for (const unsigned row_bits : {0U, 1U, 8U, 11U, 31U, 32U}) {
    for (const bool valued : {false, true}) {
      for (const unsigned column_bits : {0U, 1U, 8U, 24U, 25U, 32U})
        expect_all_ways<std::uint32_t>(row_bits, column_bits, 320, valued);
      for (const unsigned column_bits : {0U, 32U, 33U, 52U, 56U, 57U, 64U})
        expect_all_ways<std::uint64_t>(row_bits, column_bits, 320, valued);
    }
  }
  for (const std::size_t n : {0U, 1U, 49U, 50U, 51U, 100U}) {
    expect_all_ways<std::uint32_t>(20, 20, n, false);
    expect_all_ways<std::uint64_t>(20, 40, n, true);
  }
}

TEST(ChunkedVector, MayBeReadBetweenPushes) {
  // Whatever the last block contains when it is read.
  for (std::size_t read_at = 0; read_at <= 210; ++read_at) {
    basic_entry_store<std::uint32_t> store(false, 50);
    entry_lists<std::uint32_t> all;
    for (std::uint32_t k = 0; k < 210; ++k) {
      if (k == read_at) {
        EXPECT_EQ(store.size(), k);
        store.change_blocks([](const auto& b) {
          for (std::size_t i = 0; i < b.size; ++i) b.column[i] += 1000;
        });
        for (auto& c : all.column) c += 1000;
      }
      all.row.push_back(k);
      all.column.push_back(2 * k);
      store.push(k, 2 * k, 1);
    }
    entry_lists<std::uint32_t> got;
    store.each_block([&](const auto& b) { append(b, got); });
    ASSERT_EQ(got, all) << read_at;
  }
}

}  // namespace
}  // namespace paracel::test::chunked
