// SPDX-License-Identifier: BSD-3-Clause
#include "server/shard/hot_keys.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace {

using paracel::srv::hot_keys;

TEST(HotKeys, TheFrequentOnesAreFirstWithAboutTheirCounts) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    std::mt19937 random(seed);
    hot_keys hot;
    std::vector<double> truth(3);
    constexpr int requests = 2000000;
    for (int i = 0; i < requests; ++i) {
      const auto r = random() % 100;
      std::string key = "rare" + std::to_string(random() % 100000);
      for (std::size_t k = 0; k < 3; ++k) {
        if (r >= 20 * k && r < 20 * k + (20 - 5 * k)) {
          key = "hot" + std::to_string(k);
          ++truth[k];
        }
      }
      if (hot.is_due()) hot.count(key, 1);
    }
    const auto list = hot.list();
    ASSERT_EQ(list.size(), hot_keys::most);
    for (std::size_t k = 0; k < 3; ++k) {
      EXPECT_EQ(list[k].key, "hot" + std::to_string(k));
      const double counted = static_cast<double>(list[k].requests);
      EXPECT_LT(std::abs(counted - truth[k]), 6 * std::sqrt(truth[k] * hot_keys::one_of) + 0.02 * requests / 32);
    }
  }
}

TEST(HotKeys, EveryHundredAndTwentyEighthRequestIsDueOnAverage) {
  hot_keys hot;
  int due = 0;
  for (int i = 0; i < 1280000; ++i) due += hot.is_due() ? 1 : 0;
  EXPECT_NEAR(due, 10000, 400);
}

TEST(HotKeys, LongKeysAreCutAndListsWeighMore) {
  hot_keys hot;
  EXPECT_TRUE(hot.list().empty());
  const std::string key(1000, 'k');
  hot.count(key, 50);
  hot.count("b", 1);
  const auto list = hot.list();
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].key, key.substr(0, hot_keys::most_key_bytes));
  EXPECT_EQ(list[0].requests, 50U * hot_keys::one_of);
  EXPECT_EQ(list[1].requests, hot_keys::one_of);
}

}  // namespace
