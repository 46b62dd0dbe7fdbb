// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/slot_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <random>
#include <vector>

#include "server/store/row_table.hpp"

namespace paracel::srv {
namespace {

TEST(SlotPool, ServesPowersOfTwoOnly) {
  for (const std::size_t bytes : {512U, 4096U, 65536U}) EXPECT_TRUE(slot_pool::serves(bytes)) << bytes;
  for (const std::size_t bytes : {0U, 64U, 256U, 513U, 768U, 131072U}) EXPECT_FALSE(slot_pool::serves(bytes)) << bytes;
}

TEST(SlotPool, BlocksKeepTheirBytesAndDoNotOverlapAndRegionsAreReleased) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    slot_pool pool;
    std::mt19937 random(seed);
    struct block {
      std::byte* at;
      std::size_t bytes;
      unsigned char mark;
    };
    std::vector<block> live;
    std::size_t most = 0;
    std::map<std::uintptr_t, std::size_t> taken;  // begin, bytes
    const auto check = [](const block& b) {
      return b.at[0] == std::byte{b.mark} && b.at[b.bytes / 2] == std::byte{b.mark} &&
             b.at[b.bytes - 1] == std::byte{b.mark};
    };
    const auto drop = [&](std::size_t i) {
      ASSERT_TRUE(check(live[i]));
      taken.erase(reinterpret_cast<std::uintptr_t>(live[i].at));
      pool.free(live[i].at, live[i].bytes);
      live[i] = live.back();
      live.pop_back();
    };
    for (int i = 0; i < 20'000; ++i) {
      // More of them in the first half, fewer in the second.
      if (!live.empty() && random() % 100 < (i < 10'000 ? 35U : 70U)) {
        drop(random() % live.size());
        continue;
      }
      const auto bytes = slot_pool::smallest << random() % 8;
      auto* at = static_cast<std::byte*>(pool.allocate(bytes));
      const auto begin = reinterpret_cast<std::uintptr_t>(at);
      ASSERT_EQ(begin % bytes, 0U);
      const auto after = taken.lower_bound(begin);
      ASSERT_TRUE(after == taken.end() || begin + bytes <= after->first);
      ASSERT_TRUE(after == taken.begin() || std::prev(after)->first + std::prev(after)->second <= begin);
      taken.emplace(begin, bytes);
      const auto mark = static_cast<unsigned char>(random());
      std::memset(at, mark, bytes);
      live.push_back({at, bytes, mark});
      most = std::max(most, pool.regions());
    }
    EXPECT_GT(most, 8U);  // more than one of a size
    while (!live.empty()) drop(live.size() - 1);
    EXPECT_EQ(pool.regions(), 0U);
  }
}

// Indexes of every size from the arena's to malloc's, and back.
TEST(SlotPool, ATableGrowsThroughAllSizesOfItsIndexes) {
  constexpr std::uint64_t rows = 40'000;
  row_table table({value_tag::f32, 1, 0, false}, 2, false);
  const auto before = table.memory_bytes();
  const auto hash = [](std::uint64_t id) { return id * 0x9e3779b97f4a7c15U; };
  for (std::uint64_t id = 0; id < rows; ++id) table.make(0, hash(id), id);
  EXPECT_GT(table.memory_bytes(), before + rows * (16 + sizeof(std::uint64_t)));
  for (std::uint64_t id = 0; id < rows; ++id) {
    const auto* row = table.find(0, hash(id), id);
    ASSERT_NE(row, nullptr) << id;
    ASSERT_EQ(row_table::id_of(row), id);
  }
  EXPECT_EQ(table.find(0, hash(rows), rows), nullptr);
  table.clear();
  EXPECT_EQ(table.memory_bytes(), before);
}

}  // namespace
}  // namespace paracel::srv
