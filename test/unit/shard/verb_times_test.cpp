// SPDX-License-Identifier: BSD-3-Clause
#include "server/request/verb_times.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <numeric>
#include <thread>

namespace {

using namespace paracel;
using net::verb;
using srv::verb_times;

struct counted {
  std::array<std::uint64_t, verb_times::buckets> counts{};
  std::uint64_t nanoseconds = 0;
  [[nodiscard]] std::uint64_t all() const { return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}); }
};

std::map<verb, counted> all_of(const verb_times& times) {
  std::map<verb, counted> found;
  times.each([&](verb what, const auto& counts, std::uint64_t ns) { found[what] = {counts, ns}; });
  return found;
}

TEST(VerbTimes, ATimeIsInTheBucketThatContainsIt) {
  verb_times times;
  EXPECT_TRUE(all_of(times).empty());
  for (int i = 1; i <= 5; ++i) {
    const auto before = std::chrono::steady_clock::now();
    times.begin();
    std::this_thread::sleep_for(std::chrono::milliseconds(i));
    times.end(verb::pull);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - before;
    const auto found = all_of(times).at(verb::pull);
    EXPECT_EQ(found.all(), static_cast<std::uint64_t>(i));
    EXPECT_GE(static_cast<double>(found.nanoseconds), i * (i + 1) / 2 * 0.9e6);
    if (i == 1) {
      EXPECT_LE(static_cast<double>(found.nanoseconds), 1.1 * took.count());
    }
  }
  const auto found = all_of(times).at(verb::pull);
  EXPECT_EQ(std::accumulate(found.counts.begin(), found.counts.begin() + 13, 0U), 0U) << "none below 0.5 ms";
  // Every time is below its bucket's bound, and not below the one before.
  double least = 0;
  double most = 0;
  for (std::size_t i = 0; i < verb_times::buckets; ++i) {
    const double bound = 1ULL << (verb_times::least_bits + i);
    least += static_cast<double>(found.counts[i]) * (i == 0 ? 0 : bound / 2);
    most += static_cast<double>(found.counts[i]) * bound;
  }
  EXPECT_LE(least, static_cast<double>(found.nanoseconds));
  EXPECT_GE(most, static_cast<double>(found.nanoseconds));
}

TEST(VerbTimes, AClockThatGoesBackCountsAsNoTimeAndAnUnknownVerbAsNone) {
  verb_times times;
  times.add(verb::push, srv::ticks_now() + (1ULL << 40));
  times.add(static_cast<verb>(255), srv::ticks_now());
  times.begin();
  times.end(verb::ping);
  const auto found = all_of(times);
  ASSERT_EQ(found.size(), 2U) << "pings are not counted";
  EXPECT_EQ(found.at(verb::push).counts[0], 1U);
  EXPECT_EQ(found.at(verb::push).nanoseconds, 0U);
  EXPECT_EQ(found.at(verb::none).all(), 1U);
}

TEST(VerbTimes, AnHourIsInTheLastBucket) {
  verb_times times;
  times.add(verb::update, srv::ticks_now() - 3600ULL * 1000 * 1000 * 1000);
  EXPECT_EQ(all_of(times).at(verb::update).counts.back(), 1U);
}

}  // namespace
