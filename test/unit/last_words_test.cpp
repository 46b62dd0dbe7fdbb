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
  const auto is_whole = [&](const user_call& c) {
    const auto k = c.function - 1;
    return k <= 1 && c.name == &names[k] && c.key.data() == keys[k].data() && c.key.size() == keys[k].size() &&
           c.row == k;
  };
  int broken = 0;
  for (int i = 0, seen = 0; i < 2'000'000 || seen < 1000; ++i) {
    const auto s = call.read();
    if (s.call.name == nullptr) continue;
    ++seen;
    if (!is_whole(s.call)) ++broken;
  }
  over = true;
  writer.join();
  EXPECT_EQ(broken, 0);
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
