// SPDX-License-Identifier: BSD-3-Clause
#include "server/plugin/last_words.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

namespace paracel::srv {
namespace {

TEST(PublishedCall, IsNeverSeenHalfWritten) {
  const std::string names[] = {"libx.so:f", "libother.so:g"};
  const std::string keys[] = {std::string(3, 'a'), std::string(70, 'b')};
  published_call call;
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (unsigned i = 0; !over; ++i) {
      const auto k = i % 2;
      call.begin({&names[k], k + 1, keys[k], k});
      if (i % 3 == 0) call.set_key(keys[k]);
      if (i % 5 == 0) call.end();
    }
  });
  int seen = 0;
  for (int i = 0; i < 2'000'000; ++i) {
    const auto s = call.read();
    if (s.call.name == nullptr) continue;
    ++seen;
    const auto k = s.call.function - 1;
    ASSERT_LE(k, 1U);
    ASSERT_EQ(s.call.name, &names[k]);
    ASSERT_EQ(s.call.key.data(), keys[k].data());
    ASSERT_EQ(s.call.key.size(), keys[k].size());
    ASSERT_EQ(s.call.row, k);
  }
  over = true;
  writer.join();
  EXPECT_GT(seen, 0);
}

TEST(PublishedCall, WhatHasEndedIsStillKnown) {
  const std::string name = "libx.so:f";
  published_call call;
  EXPECT_EQ(call.read().call.name, nullptr);
  call.begin({&name, 5, "k"});
  EXPECT_TRUE(call.read().is_running);
  EXPECT_EQ(call.read().call.key, "k");
  call.end();
  EXPECT_FALSE(call.read().is_running);
  EXPECT_EQ(call.read().call.name, &name);
}

}  // namespace
}  // namespace paracel::srv
