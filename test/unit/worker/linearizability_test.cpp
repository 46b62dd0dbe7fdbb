// SPDX-License-Identifier: BSD-3-Clause
//
// The checker used by the cluster tests: it must accept histories that a sequential order explains, and reject all
// others.
#include "test/support/linearizability.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace paracel::test {
namespace {

struct operation {
  bool writes;
  int value;  // written, or read
};
using history = std::vector<std::vector<timed<operation>>>;

timed<operation> write(int value, std::int64_t sent, std::int64_t answered) { return {{true, value}, sent, answered}; }
timed<operation> read(int value, std::int64_t sent, std::int64_t answered) { return {{false, value}, sent, answered}; }

bool holds(const history& h) {
  return is_linearizable(h, 0, [](int& state, const operation& o) {
    if (o.writes) state = o.value;
    return state == o.value;
  });
}

TEST(Linearizability, OneClientSeesItsOwnWrites) {
  EXPECT_TRUE(holds({}));
  EXPECT_TRUE(holds({{read(0, 0, 1), write(1, 2, 3), read(1, 4, 5)}}));
  EXPECT_FALSE(holds({{write(1, 0, 1), read(0, 2, 3)}}));
}

TEST(Linearizability, OverlappingOperationsMayComeInEitherOrder) {
  EXPECT_TRUE(holds({{write(1, 0, 10)}, {read(0, 2, 3)}}));
  EXPECT_TRUE(holds({{write(1, 0, 10)}, {read(1, 2, 3)}}));
  EXPECT_TRUE(holds({{write(1, 0, 10)}, {write(2, 0, 10)}, {read(2, 2, 3), read(1, 4, 5)}}));
}

TEST(Linearizability, AStaleReadIsRefused) { EXPECT_FALSE(holds({{write(1, 0, 1)}, {read(0, 2, 3)}})); }

TEST(Linearizability, WhatOneHasSeenAnotherMaySeeNoMoreGoBack) {
  EXPECT_FALSE(holds({{write(1, 0, 10)}, {read(1, 1, 2)}, {read(0, 3, 4)}}));
  EXPECT_FALSE(holds({{write(1, 0, 10)}, {write(2, 0, 10)}, {read(1, 1, 2), read(2, 3, 4), read(1, 5, 6)}}));
}

TEST(Linearizability, TwoReadersMustAgreeOnTheOrderOfTwoWrites) {
  EXPECT_FALSE(
      holds({{write(1, 0, 10)}, {write(2, 0, 10)}, {read(1, 1, 2), read(2, 3, 4)}, {read(2, 1, 2), read(1, 3, 4)}}));
}

TEST(Linearizability, ALostUpdateIsRefused) {
  const auto counts = [](const history& h) {
    return is_linearizable(h, 0, [](int& state, const operation& o) {
      if (o.writes) ++state;
      return state == o.value;
    });
  };
  EXPECT_TRUE(counts({{write(1, 0, 10)}, {write(2, 0, 10)}}));
  EXPECT_FALSE(counts({{write(1, 0, 10)}, {write(1, 0, 10)}}));
}

TEST(Linearizability, AnUpdateThatCountsTwiceIsRefused) {
  const auto adds = [](const history& h) {  // a write adds its value, and a read returns the sum
    return is_linearizable(h, 0, [](int& state, const operation& o) {
      if (o.writes) state += o.value;
      return o.writes || state == o.value;
    });
  };
  EXPECT_TRUE(adds({{write(1, 0, 1), write(10, 2, 3)}, {read(11, 4, 5)}}));
  EXPECT_FALSE(adds({{write(1, 0, 1), write(10, 2, 3)}, {read(21, 4, 5)}}));
  EXPECT_FALSE(adds({{write(1, 0, 1), write(10, 2, never)}, {read(21, 4, 5)}}));
}

TEST(Linearizability, WhatWasNeverAnsweredMayHaveHappenedAnyTimeLaterOrNot) {
  EXPECT_TRUE(holds({{write(1, 0, never)}, {read(0, 2, 3), read(0, 4, 5)}}));
  EXPECT_TRUE(holds({{write(1, 0, never)}, {read(0, 2, 3), read(1, 4, 5)}}));
  EXPECT_TRUE(holds({{write(1, 0, never)}, {write(2, 0, never)}, {read(2, 2, 3), read(1, 4, 5)}}));
}

TEST(Linearizability, WhatWasNeverAnsweredHappensOnceAndNotBeforeItWasSent) {
  EXPECT_FALSE(holds({{write(1, 0, never)}, {read(1, 2, 3), read(0, 4, 5)}}));
  EXPECT_FALSE(holds({{write(1, 9, never)}, {read(1, 2, 3)}}));
  EXPECT_FALSE(holds({{write(1, 0, never)}, {write(2, 4, 5)}, {read(1, 2, 3), read(2, 6, 7), read(1, 8, 9)}}));
}

TEST(Linearizability, LongHistoriesWithOneOrderAreChecked) {
  history h(4);
  for (int i = 0; i < 2000; ++i) {
    const auto c = static_cast<std::size_t>(i) % 4;
    h[c].push_back(write(i + 1, i * 10, i * 10 + 25));  // overlaps with its neighbours
    h[(c + 1) % 4].push_back(read(i + 1, i * 10 + 8, i * 10 + 26));
  }
  for (auto& client : h)
    std::sort(client.begin(), client.end(), [](const auto& a, const auto& b) { return a.sent < b.sent; });
  EXPECT_TRUE(holds(h));
  h[3].back().operation.value = 7;
  EXPECT_FALSE(holds(h));
}

}  // namespace
}  // namespace paracel::test
