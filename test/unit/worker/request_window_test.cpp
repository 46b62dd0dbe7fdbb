// SPDX-License-Identifier: BSD-3-Clause
#include "client/request_window.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "client/multi_request.hpp"

namespace paracel {
namespace {

using net::verb;

request_window::sequence open(request_window& w, verb what = verb::update, std::size_t bytes = 10) {
  w.reserve();
  return w.open(what, 0, bytes, nullptr);
}

TEST(RequestWindow, EveryNumberBelowTheWatermarkIsAnsweredAndTheWatermarkItselfIsNot) {
  request_window w;
  const auto a = open(w);
  const auto b = open(w);
  const auto c = open(w);
  EXPECT_EQ(w.low(), a);
  w.close(w.at(b));
  EXPECT_EQ(w.low(), a) << "the one before is on its way";
  EXPECT_TRUE(w.is_consistent());
  EXPECT_TRUE(w.answered(b));
  EXPECT_FALSE(w.answered(a));
  w.close(w.at(a));
  EXPECT_EQ(w.low(), c);
  EXPECT_TRUE(w.answered(a));
  EXPECT_EQ(w.in_flight(), 1U);
  EXPECT_EQ(w.bytes(), 10U);
  w.close(w.at(c));
  EXPECT_EQ(w.low(), w.next());
  EXPECT_EQ(w.bytes(), 0U);
  EXPECT_FALSE(w.answered(w.next())) << "it was never made";
}

TEST(RequestWindow, GrowsWhileOneRequestStaysUnanswered) {
  request_window w;
  int ran = 0;
  w.reserve();
  const auto first = w.open(verb::pull, 7, 1, [&](const kv_result&) { ++ran; });
  for (int i = 0; i < 5000; ++i) w.close(w.at(open(w)));
  EXPECT_EQ(w.low(), first);
  EXPECT_TRUE(w.is_full());
  EXPECT_TRUE(w.is_consistent());
  w.at(first).bytes += 1;
  EXPECT_FALSE(w.is_consistent());
  w.at(first).bytes -= 1;
  ASSERT_TRUE(w.is_open(first));
  EXPECT_EQ(w.at(first).channel, 7U);
  w.at(first).done(kv_result{});
  EXPECT_EQ(ran, 1);
  w.close(w.at(first));
  EXPECT_EQ(w.low(), w.next());
  EXPECT_FALSE(w.is_full());
}

TEST(RequestWindow, AForgottenRequestIsStillAnsweredButItsHandlerDoesNotRun) {
  request_window w;
  int ran = 0;
  const auto handler = [&](const kv_result&) { ++ran; };
  w.reserve();
  const auto read = w.open(verb::pull, 0, 1, handler);
  w.reserve();
  const auto update = w.open(verb::update, 0, 1, handler);
  multi_request several;
  several.each = [&](std::size_t, std::string_view, const net::reply_item&) { ++ran; };
  w.reserve();
  const auto multi = w.open(verb::pull_multi, several);
  w.forget_reads();
  EXPECT_FALSE(w.at(read).done);
  EXPECT_FALSE(several.each);
  ASSERT_TRUE(w.at(update).done);
  w.at(update).done(kv_result{});
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(w.in_flight(), 3U);
  std::vector<request_window::sequence> single;
  w.for_each_open([&](auto s, auto&) { single.push_back(s); });
  EXPECT_EQ(single, (std::vector{read, update})) << "a number that stands for several is none of them";
  w.close(w.at(multi));
  EXPECT_EQ(w.low(), read);
}

TEST(RequestWindow, SubscriptionsHaveNumbersAndHoldNothingBack) {
  request_window w;
  int ran = 0;
  const auto handler = [&](const kv_result&) { ++ran; };
  const auto first = w.park({3, 1, handler});
  const auto second = w.park({4, 1, handler});
  const auto silent = w.park({3, 2, nullptr});
  EXPECT_EQ(w.in_flight(), 0U);
  EXPECT_EQ(w.low(), w.next());
  EXPECT_EQ(w.parked(), 3U);
  EXPECT_FALSE(w.take_parked(w.next()));
  const auto lost = w.take_parked_at(3);
  ASSERT_EQ(lost.size(), 1U) << "nobody hears of the one without a handler";
  lost[0].done(kv_result{});
  EXPECT_EQ(ran, 1);
  EXPECT_FALSE(w.take_parked(first));
  EXPECT_TRUE(w.take_parked(second));
  EXPECT_TRUE(w.take_parked(silent));
  EXPECT_EQ(w.parked(), 0U);
}

TEST(RequestWindow, MemoryOfARetainedRequestIsUsedAgainAndItsContentsAreLetGo) {
  request_window w;
  w.reserve();
  auto& r = w.retain_next();
  r.body.assign(100, std::byte{1});
  r.tail = shared_buffer::allocate(10);
  r.parts.push_back({.channel = 1});
  const auto* memory = r.body.data();
  const auto s = w.open(verb::update, 0, 100, nullptr);
  EXPECT_EQ(w.at(s).retained.get(), &r);
  w.close(w.at(s));
  EXPECT_EQ(w.at(s).retained, nullptr);
  w.reserve();
  auto& again = w.retain_next();
  EXPECT_EQ(&again, &r);
  EXPECT_EQ(again.body.data(), memory);
  EXPECT_FALSE(again.tail);
  EXPECT_TRUE(again.parts.empty());
}

}  // namespace
}  // namespace paracel
