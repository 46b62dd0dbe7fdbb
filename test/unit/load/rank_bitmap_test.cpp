// SPDX-License-Identifier: BSD-3-Clause
//
// Ranks in sets of numbers, compared with std::set.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "load/ids/rank_bitmap.hpp"

namespace paracel::test::ranks {
namespace {

void expect_equal(rank_bitmap& bitmap, const std::set<std::uint64_t>& set, std::uint64_t bound) {
  bitmap.count();
  ASSERT_EQ(bitmap.size(), set.size());
  std::uint64_t rank = 0;
  auto next = set.begin();
  for (std::uint64_t n = 0; n < bound; ++n) {
    ASSERT_EQ(bitmap.rank(n), rank) << n;
    const bool member = next != set.end() && *next == n;
    ASSERT_EQ(bitmap.contains(n), member) << n;
    if (!member) continue;
    ++rank;
    ++next;
  }
  std::vector<std::uint64_t> members;
  bitmap.for_each([&](std::uint64_t n) { members.push_back(n); });
  ASSERT_EQ(members, std::vector(set.begin(), set.end()));
}

TEST(RankBitmap, CountsMembersBelow) {
  for (const std::uint64_t bound : {1U, 63U, 64U, 65U, 1000U, 4096U}) {
    std::mt19937_64 random(bound);
    for (const std::uint64_t rarity : {1U, 2U, 50U}) {
      rank_bitmap bitmap(bound);
      std::set<std::uint64_t> set;
      for (std::uint64_t n = 0; n < bound; ++n) {
        if (random() % rarity != 0) continue;
        bitmap.add(n);
        set.insert(n);
      }
      expect_equal(bitmap, set, bound);
      for (int i = 0; i < 20; ++i) {
        const auto begin = random() % (bound + 1);
        const auto end = begin + random() % (bound - begin + 1) / (i % 2 == 0 ? 1 : 8);
        bitmap.remove(begin, end);
        set.erase(set.lower_bound(begin), set.lower_bound(end));
        expect_equal(bitmap, set, bound);
        for (std::uint64_t n = 0; n < bound; n += 1 + random() % 3) {
          bitmap.add(n);
          set.insert(n);
        }
      }
      bitmap.remove(0, bound);
      expect_equal(bitmap, {}, bound);
    }
  }
}

TEST(RankBitmap, MayBeEmpty) {
  rank_bitmap bitmap(0);
  bitmap.remove(0, 0);
  expect_equal(bitmap, {}, 0);
}

}  // namespace
}  // namespace paracel::test::ranks
