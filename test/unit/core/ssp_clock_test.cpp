// SPDX-License-Identifier: BSD-3-Clause
#include "core/ssp_clock.hpp"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <paracel/error.hpp>

namespace paracel {
namespace {

constexpr auto never = std::numeric_limits<std::uint32_t>::max();

/// A direct implementation of the definition.
struct naive_clock {
  std::vector<std::uint32_t> finished;
  std::vector<bool> in;

  [[nodiscard]] std::uint32_t slowest() const {
    std::uint32_t least = never;
    std::uint32_t greatest = 0;
    bool any = false;
    for (std::size_t i = 0; i < finished.size(); ++i) {
      greatest = std::max(greatest, finished[i]);
      if (!in[i]) continue;
      any = true;
      least = std::min(least, finished[i]);
    }
    return any ? least : greatest;
  }
};

TEST(SspClock, TheSlowestWorkerDecides) {
  ssp_clock c(3);
  EXPECT_EQ(c.slowest(), 0U);
  EXPECT_FALSE(c.tick(0, 1));
  EXPECT_FALSE(c.tick(2, 5));
  EXPECT_EQ(c.slowest(), 0U);
  EXPECT_TRUE(c.tick(1, 2));
  EXPECT_EQ(c.slowest(), 1U);
  EXPECT_TRUE(c.tick(0, 9));
  EXPECT_EQ(c.slowest(), 2U);
}

TEST(SspClock, ATickCountsOnceHoweverOftenItIsSent) {
  ssp_clock c(2);
  c.tick(0, 1);
  EXPECT_TRUE(c.tick(1, 1));
  EXPECT_FALSE(c.tick(1, 1));
  EXPECT_FALSE(c.tick(1, 1));
  EXPECT_EQ(c.finished(1), 1U);
  EXPECT_EQ(c.slowest(), 1U);
}

TEST(SspClock, ATickThatWasOvertakenDoesNotTurnTheClockBack) {
  ssp_clock c(1);
  EXPECT_TRUE(c.tick(0, 7));
  EXPECT_FALSE(c.tick(0, 3));
  EXPECT_EQ(c.finished(0), 7U);
  EXPECT_EQ(c.slowest(), 7U);
}

TEST(SspClock, AWorkerThatLeavesNoLongerHoldsTheOthersUp) {
  ssp_clock c(3);
  c.tick(0, 4);
  c.tick(1, 6);
  EXPECT_EQ(c.slowest(), 0U);
  EXPECT_TRUE(c.remove(2));
  EXPECT_EQ(c.slowest(), 4U);
  EXPECT_FALSE(c.remove(2));
  EXPECT_FALSE(c.is_in(2));
  EXPECT_FALSE(c.remove(1));
  EXPECT_EQ(c.slowest(), 4U);
}

TEST(SspClock, ATickOfAWorkerThatLeftChangesNothing) {
  ssp_clock c(2);
  c.tick(0, 3);
  c.remove(1);
  EXPECT_FALSE(c.tick(1, 100));
  EXPECT_EQ(c.finished(1), 0U);
  EXPECT_EQ(c.slowest(), 3U);
}

TEST(SspClock, WhenAllHaveLeftTheGreatestNumberSeenStands) {
  ssp_clock c(2);
  c.tick(0, 3);
  c.tick(1, 8);
  EXPECT_FALSE(c.remove(1));
  EXPECT_EQ(c.slowest(), 3U);
  EXPECT_TRUE(c.remove(0));
  EXPECT_EQ(c.slowest(), 8U);
}

TEST(SspClock, AnUnknownRankIsAnErrorAndChangesNothing) {
  ssp_clock c(2);
  EXPECT_THROW(c.tick(2, 1), error);
  EXPECT_THROW(c.remove(2), error);
  EXPECT_THROW((void)c.finished(never), error);
  EXPECT_EQ(c.encode(), ssp_clock(2).encode());
  EXPECT_THROW(ssp_clock(0).tick(0, 1), error);
  EXPECT_THROW(ssp_clock(ssp_clock::most_workers + 1), error);
}

TEST(SspClock, AgreesWithTheDefinitionUnderRandomTicksAndRemovals) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const auto workers = 1 + random() % 9;
    ssp_clock c(static_cast<std::uint32_t>(workers));
    naive_clock n{std::vector<std::uint32_t>(workers), std::vector<bool>(workers, true)};
    for (int step = 0; step < 300; ++step) {
      const auto rank = static_cast<std::uint32_t>(random() % workers);
      const auto before = n.slowest();
      bool rose = false;
      if (random() % 100 == 0) {
        n.in[rank] = false;
        rose = c.remove(rank);
      } else {
        // mostly the next one, sometimes the same or an old one, sometimes a jump
        const auto kind = random() % 10;
        auto value = n.finished[rank] + 1;
        if (kind == 0) value = n.finished[rank];
        if (kind == 1) value = static_cast<std::uint32_t>(random() % (n.finished[rank] + 1));
        if (kind == 2) value += static_cast<std::uint32_t>(random() % 5);
        if (n.in[rank]) n.finished[rank] = std::max(n.finished[rank], value);
        rose = c.tick(rank, value);
      }
      ASSERT_EQ(c.slowest(), n.slowest());
      ASSERT_EQ(rose, n.slowest() != before);
      ASSERT_GE(n.slowest(), before);
      ASSERT_EQ(c.finished(rank), n.finished[rank]);
      ASSERT_EQ(c.is_in(rank), n.in[rank]);
    }
    const auto copy = ssp_clock::decode(c.encode());
    EXPECT_EQ(copy.slowest(), c.slowest());
    EXPECT_EQ(copy.encode(), c.encode());
  }
}

TEST(SspClock, ADecodedClockGoesOnWhereTheOtherStopped) {
  ssp_clock c(3);
  c.tick(0, 5);
  c.tick(1, 2);
  c.remove(2);
  auto copy = ssp_clock::decode(c.encode());
  EXPECT_TRUE(copy.tick(1, 4));
  EXPECT_EQ(copy.slowest(), 4U);
  EXPECT_FALSE(copy.tick(2, 9));
  EXPECT_EQ(copy.workers(), 3U);
}

TEST(SspClock, HasTheseBytes) {
  ssp_clock c(2);
  c.tick(0, 0x01020304);
  c.remove(1);
  const std::vector<unsigned char> expected{1, 0, 0, 0, 2, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0, 1, 0};
  const auto bytes = c.encode();
  ASSERT_EQ(bytes.size(), expected.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(std::to_integer<unsigned>(bytes[i]), expected[i]) << i;
}

TEST(SspClock, DecodeRefusesEverythingElse) {
  ssp_clock c(3);
  c.tick(1, 4);
  const auto good = c.encode();
  for (std::size_t n = 0; n < good.size(); ++n) {
    EXPECT_THROW((void)ssp_clock::decode(std::span(good).first(n)), protocol_error) << n;
  }
  auto longer = good;
  longer.push_back(std::byte{0});
  EXPECT_THROW((void)ssp_clock::decode(longer), protocol_error);
  auto format = good;
  format[0] = std::byte{2};
  EXPECT_THROW((void)ssp_clock::decode(format), protocol_error);
  auto count = good;
  for (std::size_t i = 4; i < 8; ++i) count[i] = std::byte{0xff};  // must not reserve memory for four billion workers
  EXPECT_THROW((void)ssp_clock::decode(count), protocol_error);
  auto neither = good;
  neither.back() = std::byte{2};
  EXPECT_THROW((void)ssp_clock::decode(neither), protocol_error);
}

TEST(SspRule, AWorkerMayReadUpToSIterationsAheadOfTheSlowest) {
  EXPECT_EQ(needed_minimum(0, 0), 0U);
  EXPECT_EQ(needed_minimum(1, 0), 1U);
  EXPECT_EQ(needed_minimum(3, 3), 0U);
  EXPECT_EQ(needed_minimum(4, 3), 1U);
  EXPECT_EQ(needed_minimum(never, unbounded_staleness), 0U);
  EXPECT_EQ(needed_minimum(never, never - 1), 1U);
  for (std::uint32_t c = 0; c < 12; ++c) {
    for (std::uint32_t s = 0; s < 12; ++s) {
      for (std::uint32_t slowest = 0; slowest <= c; ++slowest)
        EXPECT_EQ(slowest >= needed_minimum(c, s), c - slowest <= s) << c << " " << s << " " << slowest;
    }
  }
}

}  // namespace
}  // namespace paracel
