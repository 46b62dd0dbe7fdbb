// SPDX-License-Identifier: BSD-3-Clause
#include "server/scheduler/seat.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include <nlohmann/json.hpp>

namespace paracel::srv {
namespace {

using enum seat_state;
using nlohmann::json;

const std::set<seat_state> every_state{expected, joined, blocked, awaited, catching_up, ejected, lost, left};

TEST(Seat, EveryStateButEjectedHasAWayOut) {
  const std::map<seat_state, std::set<seat_state>> transitions{
      {expected, {joined, lost, left}},
      {joined, {blocked, awaited, ejected, lost, left}},
      {blocked, {lost, left}},
      {awaited, {catching_up, lost}},
      {catching_up, {joined, awaited, lost, left}},
      {ejected, {}},
      {lost, {lost}},
      {left, {lost}},
  };
  for (const auto from : every_state)
    for (const auto to : every_state)
      EXPECT_EQ(may_become(from, to), transitions.at(from).contains(to)) << int(from) << " -> " << int(to);
}

TEST(Seat, IsPresentWhileItsProcessTakesPart) {
  seat s;
  EXPECT_FALSE(s.has_joined() || s.is_present() || s.is_gone());
  s.become(joined);
  EXPECT_TRUE(s.has_joined() && s.is_present());
  s.become(awaited);
  EXPECT_TRUE(s.is_gone());
  s.dismiss();  // of a process that is gone: it stays what it is
  EXPECT_TRUE(s.is(awaited));
  s.become(catching_up);
  EXPECT_TRUE(s.is_present());
  s.dismiss();
  EXPECT_TRUE(s.is(left) && s.is_gone());
}

TEST(Seat, KnowsItsProcessFromThoseBefore) {
  seat s;
  const json body{{"pid", 7}, {"host", "a"}};
  EXPECT_FALSE(s.is_held_by(body));
  s.become(joined);
  s.holder = {.pid = 7, .host = "a", .incarnation = 0xabc};
  EXPECT_TRUE(s.is_held_by(body));
  EXPECT_TRUE(s.is_held_by({{"pid", 7}}));  // a launcher knows only the pid
  EXPECT_FALSE(s.is_held_by({{"pid", 7}, {"host", "b"}}));
  EXPECT_FALSE(s.is_held_by({{"pid", 7}, {"incarnation", "0000000000000def"}}));
  EXPECT_FALSE(s.was_held_by(body));
  s.earlier.push_back(s.holder);
  s.holder = {.pid = 8, .host = "a"};
  EXPECT_FALSE(s.is_held_by(body));
  EXPECT_TRUE(s.was_held_by(body));
}

TEST(Seat, ThatNobodyHasHeldIsGoneButNotJoined) {
  seat s;
  s.dismiss();
  s.dismiss();
  EXPECT_TRUE(s.is(left) && s.is_gone());
  EXPECT_FALSE(s.has_joined());
  EXPECT_FALSE(s.is_held_by({{"pid", 0}}));
}

}  // namespace
}  // namespace paracel::srv
