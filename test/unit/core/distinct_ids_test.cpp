// SPDX-License-Identifier: BSD-3-Clause
#include "core/distinct_ids.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace paracel {
namespace {

using ids = std::vector<std::uint64_t>;

TEST(DistinctIds, OneDuplicateAnywhereIsFound) {
  distinct_ids check;
  std::mt19937_64 random(5);
  for (const std::size_t n : {2U, 3U, 63U, 64U, 1000U, 10'000U}) {
    std::set<std::uint64_t> unique;
    while (unique.size() < n) unique.insert(random());
    ids list(unique.begin(), unique.end());
    std::ranges::shuffle(list, random);
    EXPECT_TRUE(check.are(list)) << n;
    for (int k = 0; k < 20; ++k) {
      auto twice = list;
      const auto at = random() % n;
      twice[at] = list[(at + 1 + random() % (n - 1)) % n];
      EXPECT_FALSE(check.are(twice)) << n;
    }
  }
}

TEST(DistinctIds, ManyDuplicatesAreRefusedAndRegularIdsAreNot) {
  distinct_ids check;
  EXPECT_TRUE(check.are({}));
  EXPECT_TRUE(check.are(ids{7}));
  EXPECT_FALSE(check.are(ids(1000, 7)));
  ids row(5000);
  std::iota(row.begin(), row.end(), 0U);
  EXPECT_TRUE(check.are(row));
  for (auto& id : row) id *= std::uint64_t{1} << 32;  // the owner in the upper half
  EXPECT_TRUE(check.are(row));
  row.insert(row.end(), row.begin(), row.end());
  EXPECT_FALSE(check.are(row));
}

}  // namespace
}  // namespace paracel
