// SPDX-License-Identifier: BSD-3-Clause
#include "server/request/dedup_window.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

namespace paracel::srv {
namespace {

using verdict = dedup_window::verdict;
using bytes = std::vector<std::byte>;

bytes filled(std::size_t n, int with) { return bytes(n, static_cast<std::byte>(with)); }

TEST(DedupWindow, WhatWasAppliedIsAnsweredAgainByPartition) {
  dedup_window w;
  dedup_window::answer a;
  EXPECT_EQ(w.find(1, 5, 7, a), verdict::fresh);
  const auto small = filled(16, 3);
  const auto large = filled(400, 4);
  w.add(1, 1, 5, 7, {0, small});
  w.add(1, 1, 5, 9, {4, large});
  ASSERT_EQ(w.find(1, 5, 7, a), verdict::applied);
  EXPECT_EQ(bytes(a.items.begin(), a.items.end()), small);
  EXPECT_EQ(a.flags, 0);
  ASSERT_EQ(w.find(1, 5, 9, a), verdict::applied);
  EXPECT_EQ(bytes(a.items.begin(), a.items.end()), large);
  EXPECT_EQ(a.flags, 4);
  EXPECT_EQ(w.find(1, 5, 8, a), verdict::fresh);
  EXPECT_EQ(w.find(2, 5, 7, a), verdict::fresh);
  EXPECT_TRUE(w.knows(1, 5));
  EXPECT_FALSE(w.knows(1, 6));
}

TEST(DedupWindow, BelowTheWatermarkNobodyKnowsAndNothingIsKept) {
  dedup_window w;
  for (std::uint64_t s = 1; s <= 100; ++s) w.add(1, s, s, 0, {});
  EXPECT_EQ(w.size(), 1U);
  dedup_window::answer a;
  EXPECT_EQ(w.find(1, 99, 0, a), verdict::expired);
  EXPECT_EQ(w.find(1, 100, 0, a), verdict::applied);
  EXPECT_EQ(w.find(1, 101, 0, a), verdict::fresh);
}

TEST(DedupWindow, OnlySoManyRequestsOfAClientAreKeptHoweverManyPartsTheyHave) {
  dedup_window w;
  constexpr auto most = dedup_window::most_requests;
  for (std::uint64_t s = 1; s <= most + 10; ++s) {
    for (std::uint16_t p = 0; p < 3; ++p) w.add(1, 1, s, p, {});
  }
  EXPECT_EQ(w.size(), most * 3);
  dedup_window::answer a;
  EXPECT_EQ(w.find(1, 10, 0, a), verdict::expired);
  EXPECT_EQ(w.find(1, 11, 2, a), verdict::applied);
}

TEST(DedupWindow, AgreesWithAMapWhateverTheOrder) {
  dedup_window w;
  std::map<std::tuple<std::uint64_t, std::uint64_t, std::uint16_t>, bytes> all;
  std::mt19937_64 random(4);
  for (int i = 0; i < 6000; ++i) {
    const auto client = random() % 3;
    const auto sequence = 1 + random() % 500;
    const auto partition = static_cast<std::uint16_t>(random() % 20);
    const auto items = filled(random() % 40, i);
    w.add(client, 0, sequence, partition, {0, items});
    all[{client, sequence, partition}] = items;
    if (i % 2000 == 1999) {
      const auto gone = static_cast<std::uint16_t>(random() % 20);
      w.drop_if([&](std::uint16_t p) { return p == gone; });
      std::erase_if(all, [&](const auto& e) { return std::get<2>(e.first) == gone; });
    }
  }
  ASSERT_EQ(w.size(), all.size());
  dedup_window::answer a;
  for (const auto& [key, items] : all) {
    const auto& [client, sequence, partition] = key;
    ASSERT_EQ(w.find(client, sequence, partition, a), verdict::applied);
    ASSERT_EQ(bytes(a.items.begin(), a.items.end()), items);
  }
  std::size_t met = 0;
  for (std::uint16_t p = 0; p < 20; ++p) {
    std::pair<std::uint64_t, std::uint64_t> last{0, 0};
    w.each(p, [&](const dedup_window::part& part) {
      EXPECT_LT(last, std::pair(part.client, part.sequence));
      last = {part.client, part.sequence};
      EXPECT_TRUE(all.contains({part.client, part.sequence, p}));
      ++met;
    });
  }
  EXPECT_EQ(met, all.size());
}

TEST(DedupWindow, AReservedPlaceIsFilledWhereverItIsAndItsMemoryIsCounted) {
  dedup_window w;
  dedup_window::answer a;
  const auto held = [&w] { return w.budget().held() - dedup_window::client_bytes; };
  for (const std::uint16_t p : {4, 9, 2}) w.await(1, 5, p);
  w.await(1, 6, 4);
  const auto places = held();
  EXPECT_EQ(w.find(1, 5, 4, a), verdict::fresh) << "it is not answered yet";
  const auto small = filled(16, 3);
  const auto large = filled(400, 4);
  for (const std::uint16_t p : {2, 4, 9}) w.add(1, 1, 5, p, {0, small});
  w.add(1, 1, 6, 4, {4, small});
  EXPECT_EQ(w.size(), 4U);
  EXPECT_EQ(held(), places) << "small answers are in their places";
  w.add(1, 1, 5, 4, {0, large});
  w.add(1, 1, 6, 4, {0, large});
  EXPECT_EQ(held(), places + 2 * large.size());
  ASSERT_EQ(w.find(1, 6, 4, a), verdict::applied);
  EXPECT_EQ(bytes(a.items.begin(), a.items.end()), large);
  w.add(1, 1, 6, 4, {2, small});
  EXPECT_EQ(held(), places + large.size());
  ASSERT_EQ(w.find(1, 6, 4, a), verdict::applied);
  EXPECT_EQ(bytes(a.items.begin(), a.items.end()), small);
  EXPECT_EQ(a.flags, 2);
  w.add(1, 7, 6, 4, {3, small});  // the client has received the replies below 7
  EXPECT_EQ(held(), 0U);
}

/// Parts that another server has applied arrive in its order, by partition, between the requests that are applied here.
TEST(DedupWindow, PartsOfOtherServersMixWithOwnRequestsInAnyOrder) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    dedup_window w;
    std::map<std::pair<std::uint64_t, std::uint16_t>, bytes> all;  // by sequence and partition
    std::mt19937_64 random(seed);
    dedup_window::answer a;
    std::uint64_t low = 1;
    for (int turn = 0; turn < 150; ++turn) {
      const auto sequence = [&] { return low + random() % 300; };
      const auto partition = [&] { return static_cast<std::uint16_t>(random() % 50); };
      for (auto n = random() % 200; n != 0; --n) {
        const std::pair at{sequence(), partition()};
        const auto items = filled(random() % 40, turn);
        w.add_copy(1, low, at.first, at.second, {0, items});
        all[at] = items;
      }
      const auto own = sequence();
      std::set<std::uint16_t> parts;
      for (auto n = random() % 60; n != 0; --n) parts.insert(partition());
      for (const auto p : parts) w.await(1, own, p);
      if (random() % 3 == 0) {
        w.release_places(1, own);
      } else {
        for (const auto p : parts) w.add(1, low, own, p, {0, all[{own, p}] = filled(random() % 40, turn)});
      }
      if (random() % 4 == 0) {
        low += random() % 100;
        w.add_copy(1, low, low, 0, {0, all[{low, 0}] = filled(3, turn)});
        std::erase_if(all, [&](const auto& e) { return e.first.first < low; });
      }
      const std::pair some{sequence(), partition()};
      ASSERT_EQ(w.find(1, some.first, some.second, a), all.contains(some) ? verdict::applied : verdict::fresh);
      ASSERT_EQ(w.find(1, low - 1, some.second, a), verdict::expired);
      const auto first = all.lower_bound({some.first, 0});
      ASSERT_EQ(w.knows(1, some.first), first != all.end() && first->first.first == some.first);
    }
    ASSERT_EQ(w.size(), all.size());
    dedup_window in_order;
    for (const auto& [at, items] : all) {
      ASSERT_EQ(w.find(1, at.first, at.second, a), verdict::applied);
      ASSERT_EQ(bytes(a.items.begin(), a.items.end()), items);
      in_order.add(1, low, at.first, at.second, {0, items});
    }
    EXPECT_EQ(w.budget().held(), in_order.budget().held());
  }
}

TEST(DedupWindow, OfPartsOfOtherServersOnlySoManyRequestsAreKept) {
  dedup_window w;
  constexpr auto most = dedup_window::most_requests;
  for (std::uint64_t s = most + 10; s != 0; --s) {
    for (std::uint16_t p = 0; p < 3; ++p) w.add_copy(1, 1, s, p, {});
  }
  EXPECT_EQ(w.size(), most * 3);
  dedup_window::answer a;
  EXPECT_EQ(w.find(1, 10, 0, a), verdict::expired);
  EXPECT_EQ(w.find(1, 11, 2, a), verdict::applied);
}

}  // namespace
}  // namespace paracel::srv
