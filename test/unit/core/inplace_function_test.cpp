// SPDX-License-Identifier: BSD-3-Clause
#include "core/inplace_function.hpp"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace paracel {
namespace {

using function = inplace_function<int(int), 32>;

int twice(int x) { return 2 * x; }

TEST(SmallFunction, IsEmptyUntilItIsGivenSomething) {
  EXPECT_FALSE(function());
  EXPECT_FALSE(function(nullptr));
  EXPECT_FALSE(function(std::function<int(int)>()));
  EXPECT_FALSE(function(static_cast<int (*)(int)>(nullptr)));
  EXPECT_TRUE(function(twice));
  EXPECT_EQ(function(twice)(4), 8);
}

TEST(SmallFunction, MovesWhatItHoldsWhereverThatIs) {
  const auto small = std::make_shared<int>(1);
  const std::array<int, 40> large{7};
  function f([small](int x) { return *small + x; });
  EXPECT_EQ(small.use_count(), 2);
  function g(std::move(f));
  EXPECT_FALSE(f);
  EXPECT_EQ(small.use_count(), 2);
  EXPECT_EQ(g(1), 2);
  function h([large, small](int x) { return large[0] + x; });  // does not fit
  EXPECT_EQ(small.use_count(), 3);
  g = std::move(h);
  EXPECT_EQ(small.use_count(), 2) << "what it held before has gone";
  EXPECT_EQ(g(1), 8);
  g = nullptr;
  EXPECT_EQ(small.use_count(), 1);
}

TEST(SmallFunction, HoldsWhatCannotBeCopied) {
  auto owned = std::make_unique<std::string>("text");
  inplace_function<std::size_t()> f([s = std::move(owned)] { return s->size(); });
  auto g = std::move(f);
  EXPECT_EQ(g(), 4U);
}

}  // namespace
}  // namespace paracel
