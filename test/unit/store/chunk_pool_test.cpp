// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/chunk_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace paracel::srv {
namespace {

constexpr auto chunk_bytes = chunk_pool::chunk_bytes;
constexpr std::size_t page_chunks = 4;

std::span<std::byte> bytes_of(void* chunk) { return {static_cast<std::byte*>(chunk), chunk_bytes}; }
bool is_filled(void* chunk, std::byte with) {
  return std::ranges::all_of(bytes_of(chunk), [&](std::byte b) { return b == with; });
}

/// All chunks of a region but the one in its front, in the order of their addresses, filled with ones.
std::vector<void*> taken_from(chunk_pool& pool, std::size_t count) {
  std::vector<void*> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(pool.allocate());
  std::ranges::sort(all);
  for (auto* chunk : all) std::memset(chunk, 1, chunk_bytes);
  return all;
}

TEST(ChunkPool, ReturnsOnlyPagesOfWhichAllChunksAreFree) {
  chunk_pool pool(page_chunks * chunk_bytes);
  const auto all = taken_from(pool, 127);
  const auto at = [&](std::size_t number) { return all[number - 1]; };  // in the region; number 0 is the front
  // One that shares its page with the front, a whole page, and one of another page.
  for (const std::size_t number : {1U, 8U, 9U, 10U, 11U, 13U}) pool.free(at(number));
  while (pool.release_some()) {
  }
  EXPECT_EQ(pool.idle_bytes(), 0U);
  for (std::size_t number = 1; number <= 127; ++number) {
    const bool is_returned = number >= 8 && number <= 11;
    EXPECT_TRUE(is_filled(at(number), is_returned ? std::byte{0} : std::byte{1})) << number;
  }
  // The rest of that page is freed later: what was kept for it goes, too.
  for (const std::size_t number : {12U, 14U, 15U}) pool.free(at(number));
  while (pool.release_some()) {
  }
  for (const std::size_t number : {12U, 13U, 14U, 15U}) EXPECT_TRUE(is_filled(at(number), std::byte{0})) << number;
  EXPECT_TRUE(is_filled(at(16), std::byte{1}));
  for (std::size_t number = 2; number <= 127; ++number) {
    if (number < 8 || number > 15) pool.free(at(number));
  }
}

TEST(ChunkPool, ReturnsEachFreeChunkWherePagesAreSmall) {
  chunk_pool pool;
  const auto all = taken_from(pool, 127);
  for (const std::size_t i : {3U, 4U, 90U}) pool.free(all[i]);
  EXPECT_EQ(pool.idle_bytes(), 3 * chunk_bytes);
  while (pool.release_some()) {
  }
  EXPECT_EQ(pool.idle_bytes(), 0U);
  if (static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) <= chunk_bytes) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool is_returned = i == 3 || i == 4 || i == 90;
      EXPECT_TRUE(is_filled(all[i], is_returned ? std::byte{0} : std::byte{1})) << i;
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i != 3 && i != 4 && i != 90) pool.free(all[i]);
  }
}

}  // namespace
}  // namespace paracel::srv
