// SPDX-License-Identifier: BSD-3-Clause
#include "worker/comm/mpi/polling.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include <paracel/error.hpp>

#include "core/message_matcher.hpp"

namespace paracel {
namespace {

using namespace std::chrono_literals;

TEST(Polling, WhatArrivesInTheLastProgressIsFound) {
  message_matcher messages;
  const auto ticket = messages.post({1, 7, 0});
  std::optional<received_message> taken;
  int calls = 0;
  const bool done = poll_until(
      100ms, [&] { return (taken = messages.take(ticket)).has_value(); },
      [&] {
        ++calls;
        std::this_thread::sleep_for(101ms);  // past the limit
        messages.arrive({{1, 7, 0}, {}});
      },
      [] {});
  EXPECT_TRUE(done);
  EXPECT_TRUE(taken);
  EXPECT_EQ(calls, 1);
}

TEST(Polling, WithoutPatienceItLooksOnce) {
  int looks = 0;
  EXPECT_FALSE(poll_until(
      0ms, [&] { return ++looks > 1; }, [] {}, [] {}));
  EXPECT_EQ(looks, 1);
  EXPECT_FALSE(poll_until(
      1ms, [] { return false; }, [] {}, [] {}));
  EXPECT_TRUE(poll_until(
      std::nullopt, [&] { return ++looks > 1000; }, [] {}, [] {}));
}

TEST(Polling, ACheckEndsAWait) {
  EXPECT_THROW((void)poll_until(
                   std::nullopt, [] { return false; }, [] {}, [] { throw error("interrupted"); }),
               error);
}

}  // namespace
}  // namespace paracel
