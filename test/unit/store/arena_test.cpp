// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/arena.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
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
    chunk_pool pool;
    arena a{pool};
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
  chunk_pool pool;
  arena a{pool};
  for (std::size_t bytes = 16; bytes <= 1024; bytes += 56) {
    std::vector<void*> blocks;
    for (int i = 0; i < 1000; ++i) blocks.push_back(take(a, bytes));
    EXPECT_EQ(a.used(), 1000 * bytes);
    for (auto* b : blocks) a.free(b, bytes);
    EXPECT_LE(a.extent(), arena::chunk_bytes) << "nothing of this size is kept for later";
  }
}

/// Bytes of `addresses` pages that have memory now.
std::size_t resident(const void* begin, std::size_t bytes) {
  std::vector<unsigned char> pages(bytes / 4096);
  EXPECT_EQ(::mincore(const_cast<void*>(begin), bytes, pages.data()), 0);
  return static_cast<std::size_t>(std::ranges::count_if(pages, [](unsigned char p) { return (p & 1U) != 0; })) * 4096;
}

TEST(Arena, BlocksThatAreMovedTogetherKeepTheirBytesWhateverComesAndGoesMeanwhile) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    chunk_pool pool;
    arena a{pool};
    std::mt19937 random(seed);
    std::map<const void*, std::size_t> live;
    const auto add = [&] {
      const auto bytes = arena::smallest + arena::step * (random() % 20);
      live[take(a, bytes)] = bytes;
    };
    const auto drop = [&](std::map<const void*, std::size_t>::iterator at) {
      a.free(const_cast<void*>(at->first), at->second);
      return live.erase(at);
    };
    for (int i = 0; i < 20'000; ++i) add();
    for (auto at = live.begin(); at != live.end();) at = random() % 3 != 0 ? drop(at) : std::next(at);
    const auto before = a.extent();
    a.begin_moving();
    std::vector<const void*> old;
    for (const auto& [block, bytes] : live) old.push_back(block);
    for (const auto* block : old) {
      if (random() % 8 == 0) add();
      if (random() % 8 == 0 && live.size() > 1)
        drop(std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % 2)));
      const auto at = live.find(block);
      if (at == live.end() || !a.is_moving(block)) continue;
      const auto bytes = at->second;
      live[take(a, bytes)] = bytes;
      drop(live.find(block));
      if (random() % 500 == 0) {
        ASSERT_EQ(walked(a), live);
      }
    }
    a.end_moving();
    ASSERT_EQ(walked(a), live);
#ifndef PARACEL_ARENA_PASSES_THROUGH
    EXPECT_LT(a.extent(), before / 2);
    EXPECT_LT(a.waste(), a.extent() / 8);
#endif
    while (!live.empty()) drop(live.begin());
    a.release_last_chunk();
    EXPECT_EQ(a.extent(), 0U);
    while (pool.release_some()) {
    }
    EXPECT_EQ(pool.idle_bytes(), 0U);
  }
}

TEST(ChunkPool, FreeChunksGiveTheirMemoryBackWhereverTheyLie) {
  chunk_pool pool;
  std::vector<std::byte*> chunks;
  for (int i = 0; i < 500; ++i) {
    chunks.push_back(static_cast<std::byte*>(pool.allocate()));
    std::memset(chunks.back(), i, chunk_pool::chunk_bytes);
  }
  for (std::size_t i = 0; i < chunks.size(); i += 2) pool.free(chunks[i]);
  EXPECT_EQ(pool.idle_bytes(), 250 * chunk_pool::chunk_bytes);
  int steps = 1;
  while (pool.release_some()) ++steps;
  EXPECT_GE(steps, 4) << "a region at a time";
  EXPECT_EQ(pool.idle_bytes(), 0U);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    EXPECT_EQ(resident(chunks[i], chunk_pool::chunk_bytes), i % 2 == 0 ? 0 : chunk_pool::chunk_bytes) << i;
    if (i % 2 == 1) {
      EXPECT_EQ(chunks[i][chunk_pool::chunk_bytes - 1], static_cast<std::byte>(i));
    }
  }
  // They are used again.
  for (std::size_t i = 0; i < chunks.size(); i += 2) {
    chunks[i] = static_cast<std::byte*>(pool.allocate());
    std::memset(chunks[i], 1, chunk_pool::chunk_bytes);
  }
  EXPECT_EQ(std::set<std::byte*>(chunks.begin(), chunks.end()).size(), chunks.size());
  for (auto* c : chunks) pool.free(c);
}

}  // namespace
}  // namespace paracel::srv
