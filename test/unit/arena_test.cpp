// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/arena.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

namespace paracel::srv {
namespace {

/// The header that an owner writes into a block: its size, and a mark other than the arena's.
struct front {
  std::uint64_t bytes;
  std::uint8_t unused[7];
  std::uint8_t mark;
};

void* take(arena& a, std::size_t bytes) {
  auto* f = static_cast<front*>(a.allocate(bytes));
  std::memset(static_cast<void*>(f), 0x5a, bytes);
  f->bytes = bytes;
  f->mark = 1;
  return f;
}

std::map<const void*, std::size_t> walked(arena& a) {
  std::map<const void*, std::size_t> seen;
  a.for_each([&](const void* block) {
    const std::size_t bytes = static_cast<const front*>(block)->bytes;
    EXPECT_TRUE(seen.emplace(block, bytes).second) << "met twice";
    return bytes;
  });
  return seen;
}

TEST(Arena, AWalkMeetsExactlyTheBlocksThatAreHandedOut) {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    arena a;
    std::mt19937 random(seed);
    std::map<const void*, std::size_t> live;
    for (int step = 0; step < 20'000; ++step) {
      // In waves, so that the arena is sometimes empty; includes sizes that are passed on to malloc.
      const bool growing = step / 2000 % 2 == 0;
      if (live.empty() || (random() % 4 != 0) == growing) {
        const auto bytes = arena::smallest + arena::step * (random() % (random() % 20 == 0 ? 400 : 12));
        live[take(a, bytes)] = bytes;
      } else {
        const auto step_to = random() % std::min(live.size(), std::size_t{50});
        const auto at = std::next(live.begin(), static_cast<std::ptrdiff_t>(step_to));
        a.free(const_cast<void*>(at->first), at->second);
        live.erase(at);
      }
      if (step % 500 == 0) {
        ASSERT_EQ(walked(a), live);
      }
      ASSERT_EQ(a.blocks(), live.size());
    }
    for (const auto& [block, bytes] : live) a.free(const_cast<void*>(block), bytes);
    EXPECT_TRUE(walked(a).empty());
    EXPECT_EQ(a.used(), 0U);
    EXPECT_LE(a.extent(), arena::chunk_bytes);
  }
}

TEST(Arena, WhatGoesInOneSizeMayComeBackInAnother) {
  arena a;
  for (std::size_t bytes = 16; bytes <= 1024; bytes += 56) {
    std::vector<void*> blocks;
    for (int i = 0; i < 1000; ++i) blocks.push_back(take(a, bytes));
    EXPECT_EQ(a.used(), 1000 * bytes);
    for (auto* b : blocks) a.free(b, bytes);
    EXPECT_LE(a.extent(), arena::chunk_bytes) << "nothing of this size is kept for later";
  }
}

}  // namespace
}  // namespace paracel::srv
