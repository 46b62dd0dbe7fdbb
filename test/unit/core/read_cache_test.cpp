// SPDX-License-Identifier: BSD-3-Clause
#include "core/read_cache.hpp"

#include <cstring>
#include <map>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "core/ssp_clock.hpp"

namespace paracel {
namespace {

value_view view_of(const double& d) { return {value_tag::f64, std::as_bytes(std::span(&d, 1))}; }

double number(const read_cache::entry& e) {
  double d = 0;
  EXPECT_EQ(e.bytes.size(), sizeof d);
  std::memcpy(&d, e.bytes.data(), sizeof d);
  return d;
}

TEST(ReadCache, AnEntryAnswersReadsThatNeedNoMoreThanItContains) {
  read_cache cache;
  cache.put("w", view_of(1.5), 12, 4);
  ASSERT_NE(cache.find_fresh("w", 4), nullptr);
  EXPECT_NE(cache.find_fresh("w", 0), nullptr);
  EXPECT_EQ(cache.find_fresh("w", 5), nullptr);
  const auto* e = cache.find_fresh("w", 4);
  EXPECT_EQ(e->tag, value_tag::f64);
  EXPECT_EQ(number(*e), 1.5);
  EXPECT_EQ(e->version, 12U);
  EXPECT_EQ(e->minimum, 4U);
}

TEST(ReadCache, ANewerValueIsAsFreshAsTheOneItReplaces) {
  read_cache cache;
  cache.put("w", view_of(1.0), 5, 2);
  EXPECT_FALSE(cache.raise("w", 4, 9)) << "it is not that value";
  EXPECT_TRUE(cache.raise("w", 5, 7));
  EXPECT_FALSE(cache.raise("w", 5, 6));
  EXPECT_FALSE(cache.raise("other", 5, 7));
  cache.put("w", view_of(2.0), 5, 3);
  EXPECT_EQ(number(*cache.find_fresh("w", 7)), 1.0) << "overtaken";
  cache.put("w", view_of(3.0), 6, 3);
  ASSERT_NE(cache.find_fresh("w", 7), nullptr) << "it contains what version 5 did";
  EXPECT_EQ(number(*cache.find_fresh("w", 7)), 3.0);
}

TEST(ReadCache, WhatAReaderMadeOfTheBytesIsGoneWhenTheyChange) {
  read_cache cache;
  const char type = 0;
  const auto keep = [&] { cache.find_fresh("w", 0)->object_type = &type; };
  const auto kept = [&] { return cache.find_fresh("w", 0)->object_type == &type; };
  cache.put("w", view_of(1.0), 5, 2);
  keep();
  EXPECT_TRUE(kept());
  cache.put("w", view_of(2.0), 6, 2);
  EXPECT_FALSE(kept());
  keep();
  (void)cache.find("w");
  EXPECT_FALSE(kept()) << "who asks for it may change it";
}

TEST(ReadCache, FollowsTheStalenessRule) {
  read_cache cache;
  cache.put("w", view_of(1), 1, 2);
  EXPECT_NE(cache.find_fresh("w", needed_minimum(5, 3)), nullptr);
  EXPECT_EQ(cache.find_fresh("w", needed_minimum(6, 3)), nullptr);
  EXPECT_NE(cache.find_fresh("w", needed_minimum(1000, unbounded_staleness)), nullptr);
}

TEST(ReadCache, ANewReadReplacesTheOldValueOfAnyType) {
  read_cache cache;
  const std::vector<double> many(1000, 2.0);
  cache.put("w", {value_tag::f64_array, std::as_bytes(std::span(many))}, 1, 1);
  EXPECT_EQ(cache.find("w")->bytes.size(), 8000U);
  cache.put("w", view_of(3), 2, 1);
  EXPECT_EQ(cache.find("w")->tag, value_tag::f64);
  EXPECT_EQ(number(*cache.find("w")), 3);
  EXPECT_EQ(cache.find("w")->version, 2U);
  EXPECT_EQ(cache.size(), 1U);
}

TEST(ReadCache, AnAnswerThatWasOvertakenDoesNotReplaceAFresherOne) {
  read_cache cache;
  cache.put("w", view_of(2), 9, 5);
  cache.put("w", view_of(1), 8, 4);
  EXPECT_EQ(number(*cache.find("w")), 2);
  EXPECT_EQ(cache.find("w")->minimum, 5U);
}

TEST(ReadCache, AnOwnUpdateCanBeAppliedInPlace) {
  read_cache cache;
  cache.put("w", view_of(2), 9, 5);
  const double changed = 2.25;
  std::memcpy(cache.find("w")->bytes.data(), &changed, sizeof changed);
  EXPECT_EQ(number(*cache.find_fresh("w", 5)), 2.25);
}

TEST(ReadCache, ADroppedKeyIsGone) {
  read_cache cache;
  cache.put("a", view_of(1), 1, 1);
  cache.put("b", view_of(2), 1, 1);
  EXPECT_TRUE(cache.drop("a"));
  EXPECT_FALSE(cache.drop("a"));
  EXPECT_FALSE(cache.contains("a"));
  EXPECT_EQ(cache.find("a"), nullptr);
  EXPECT_EQ(cache.find_fresh("a", 0), nullptr);
  EXPECT_TRUE(cache.contains("b"));
  cache.put("a", view_of(7), 3, 0);  // older than the dropped entry, which leaves no trace
  EXPECT_EQ(number(*cache.find("a")), 7);
  cache.clear();
  EXPECT_EQ(cache.size(), 0U);
  EXPECT_FALSE(cache.contains("b"));
}

TEST(ReadCache, KeysAreBytesOfAnyKind) {
  read_cache cache;
  const std::string zero("a\0b", 3);
  cache.put(zero, view_of(1), 1, 1);
  cache.put("", view_of(2), 1, 1);
  EXPECT_FALSE(cache.contains("a"));
  EXPECT_TRUE(cache.contains(zero));
  EXPECT_EQ(number(*cache.find("")), 2);
}

TEST(ReadCache, AgreesWithAnOrdinaryMapUnderRandomUse) {
  std::mt19937 random(5);
  read_cache cache;
  std::map<std::string, std::pair<double, std::uint32_t>> model;
  for (int step = 0; step < 50000; ++step) {
    const auto key = "k" + std::to_string(random() % 500);
    const auto minimum = static_cast<std::uint32_t>(random() % 50);
    switch (random() % 4) {
      case 0: {
        cache.put(key, view_of(step), 0, minimum);
        auto& m = model[key];
        if (minimum >= m.second) m = {step, minimum};
        break;
      }
      case 1:
        ASSERT_EQ(cache.drop(key), model.erase(key) == 1);
        break;
      default: {
        const auto* e = cache.find_fresh(key, minimum);
        const auto m = model.find(key);
        ASSERT_EQ(e != nullptr, m != model.end() && m->second.second >= minimum);
        if (e != nullptr) {
          ASSERT_EQ(number(*e), m->second.first);
        }
      }
    }
    ASSERT_EQ(cache.size(), model.size());
  }
}

TEST(ReadCache, AVersionThatIsOnlyAnUpperBoundReplacesNothingFresher) {
  read_cache cache;
  cache.put("w", view_of(1.0), 5, 4);
  cache.put("w", view_of(2.0), 9, 3, false);
  EXPECT_EQ(number(*cache.find("w")), 1.0) << "its own version may be below 5";
  cache.put("w", view_of(3.0), 9, 4, false);
  EXPECT_EQ(number(*cache.find("w")), 3.0);
  cache.put("w", view_of(4.0), 8, 3);
  EXPECT_EQ(number(*cache.find("w")), 3.0) << "it was overtaken";
}

}  // namespace
}  // namespace paracel
