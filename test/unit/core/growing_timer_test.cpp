// SPDX-License-Identifier: BSD-3-Clause
#include "core/growing_timer.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace paracel {
namespace {

using namespace std::chrono_literals;

/// When it passes, in milliseconds since the beginning, if it is asked this often.
std::vector<int> passes(growing_timer::duration first, growing_timer::duration most, std::chrono::milliseconds step) {
  const growing_timer::time_point begin{};
  growing_timer t(first, most, begin);
  std::vector<int> all;
  for (auto at = 0ms; at <= 5000ms; at += step)
    if (t.has_passed(begin + at)) all.push_back(static_cast<int>(at.count()));
  return all;
}

TEST(GrowingTimer, PassesWheneverTheWaitHasDoubledAndAtLeastOnceInTheLongestInterval) {
  EXPECT_EQ(passes(100ms, 1s, 1ms), (std::vector<int>{100, 200, 400, 800, 1600, 2600, 3600, 4600}));
  EXPECT_EQ(passes(100ms, 1s, 70ms), (std::vector<int>{140, 280, 560, 1120, 2170, 3220, 4270}));
}

TEST(GrowingTimer, PassesFirstAfterTheLongestIntervalIfThatIsShorter) {
  EXPECT_EQ(passes(3s, 2s, 10ms), (std::vector<int>{2000, 4000}));
}

}  // namespace
}  // namespace paracel
