// SPDX-License-Identifier: BSD-3-Clause
#include "server/request/slow_consumer_guard.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace paracel::srv {
namespace {

constexpr std::size_t limit = 10 << 20;

net::request_header from(std::uint64_t client) {
  net::request_header h;
  h.client = client;
  h.rank = 3;
  return h;
}

TEST(UnreadGuard, WhoIsOverTheLimitIsRefusedHoweverFarBeyondItLargeRepliesBringItAtOnce) {
  slow_consumer_guard g(limit);
  EXPECT_FALSE(g.is_over(0));
  EXPECT_FALSE(g.is_over(limit));
  EXPECT_TRUE(g.is_over(limit + 1));
  EXPECT_TRUE(g.answers(from(1), limit + 1));
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(g.answers(from(1), 30 * limit));
  EXPECT_EQ(g.refused(), 1001U);
  EXPECT_EQ(g.dropped(), 0U);
}

TEST(UnreadGuard, RefusalsThatAreNotReadComeToAnEndUntilTheirClientReads) {
  slow_consumer_guard g(limit);
  constexpr std::uint64_t refusal = 280;
  std::uint64_t unread = limit + 1, answered = 0;
  for (int i = 0; i < 100'000; ++i) {
    if (!g.answers(from(1), unread)) continue;
    unread += refusal;
    ++answered;
  }
  EXPECT_LE(answered * refusal, limit);
  EXPECT_GT(answered, 10'000U);
  EXPECT_EQ(g.dropped(), 100'000 - answered);
  EXPECT_TRUE(g.answers(from(2), unread)) << "another one's are its own";
  EXPECT_TRUE(g.answers(from(1), unread - refusal)) << "it has read";
}

TEST(UnreadGuard, EachClientIsNamedOnceAndNotWithoutEnd) {
  std::vector<std::string> lines;
  slow_consumer_guard g(limit, [&](const std::string& line) { lines.push_back(line); });
  for (int i = 0; i < 5; ++i) {
    g.answers(from(17), 11 << 20);
    g.answers(from(18), 100 << 20);
  }
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], "client 17 of rank 3 has not read 11 MiB of replies: its requests are refused until it does");
  for (std::uint64_t c = 0; c < 5000; ++c) g.answers(from(c), 11 << 20);
  EXPECT_LE(lines.size(), 1000U);
}

TEST(UnreadGuard, ALimitThatWouldRefuseEverybodyIsRaised) {
  EXPECT_EQ(slow_consumer_guard(0).limit(), slow_consumer_guard::least_limit);
  EXPECT_EQ(slow_consumer_guard(limit).limit(), limit);
}

}  // namespace
}  // namespace paracel::srv
