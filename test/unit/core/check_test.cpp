// SPDX-License-Identifier: BSD-3-Clause
#ifndef PARACEL_ASSERTIONS
#define PARACEL_ASSERTIONS
#endif
#include "core/check.hpp"

#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace {

TEST(CheckDeathTest, WhatDoesNotHoldIsSaidWithItsPlaceAndEndsTheProcess) {
  const int some = 3;
  EXPECT_DEATH(PARACEL_CHECK(some == 4), "check_test.cpp:[0-9]+: internal error: some == 4 does not hold");
  EXPECT_DEATH(PARACEL_ASSERT(some == 4), "check_test.cpp:[0-9]+: internal error: some == 4 does not hold");
}

TEST(Check, WhatHoldsIsEvaluatedOnceAndMayHaveCommas) {
  int times = 0;
  PARACEL_CHECK(++times == 1);
  PARACEL_ASSERT(std::map<int, int>{{1, 2}}.contains(++times - 1));
  EXPECT_EQ(times, 2);
}

}  // namespace
