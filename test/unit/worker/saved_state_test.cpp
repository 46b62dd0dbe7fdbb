// SPDX-License-Identifier: BSD-3-Clause
//
// What a worker saves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <paracel/detail/saved_state.hpp>
#include <paracel/error.hpp>

namespace paracel {
namespace {

using testing::ElementsAre;

TEST(SavedState, GivesBackWhatWasPut) {
  std::mt19937_64 random(5);
  random.discard(1000);
  saved_state s;
  s.put("n", std::int64_t{-3});
  s.put("list", std::vector<double>{1, 2.5});
  s.put("map", std::map<std::string, int>{{"a", 1}});
  s.put_random("random", random);
  const auto bytes = s.to_bytes();
  const auto back = saved_state::from_bytes(bytes);
  std::int64_t n = 0;
  std::vector<double> list;
  std::map<std::string, int> map;
  std::mt19937_64 again;
  EXPECT_TRUE(back.get("n", n) && back.get("list", list) && back.get("map", map) && back.get_random("random", again));
  EXPECT_EQ(n, -3);
  EXPECT_THAT(list, ElementsAre(1, 2.5));
  EXPECT_EQ(map.at("a"), 1);
  EXPECT_EQ(again(), random());
  EXPECT_FALSE(back.get("other", n));
  EXPECT_THROW(back.get("list", n), type_error);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    EXPECT_THROW((void)saved_state::from_bytes(std::span(bytes).first(cut)), protocol_error) << cut;
  }
}

}  // namespace
}  // namespace paracel
