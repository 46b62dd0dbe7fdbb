// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>
#include <paracel/random.hpp>

namespace paracel {
namespace {

TEST(CounterRandom, DrawsAreAFunctionOfSeedStreamAndRow) {
  counter_random a(1, 2, 3);
  counter_random b(1, 2, 3);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(a.bits(), b.bits());
  EXPECT_NE(counter_random(1, 2, 3).bits(), counter_random(2, 2, 3).bits());
  EXPECT_NE(counter_random(1, 2, 3).bits(), counter_random(1, 3, 3).bits());
  EXPECT_NE(counter_random(1, 2, 3).bits(), counter_random(1, 2, 4).bits());
  EXPECT_NE(counter_random(1, 2, 3).bits(), counter_random(1, 3, 2).bits());
}

// Models trained with a seed must be reproducible with the next version.
TEST(CounterRandom, NumbersNeverChange) {
  counter_random r(42, 1, 7);
  EXPECT_EQ(r.bits(), 0xd8fd2789c11224e0U);
  EXPECT_EQ(r.bits(), 0x9412f407393c15eaU);
  EXPECT_EQ(r.below(1000), 672U);
}

TEST(CounterRandom, UniformAndNormalHaveTheirMoments) {
  // Across rows, because the generator is used with a few draws for each of many rows.
  double sum = 0, squares = 0, normal = 0, normal_squares = 0, products = 0;
  const int rows = 200000;
  double last = 0;
  for (int row = 0; row < rows; ++row) {
    counter_random r(5, 0, static_cast<std::uint64_t>(row));
    const double u = r.uniform();
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    squares += u * u;
    const double z = r.normal();
    ASSERT_TRUE(std::isfinite(z));
    normal += z;
    normal_squares += z * z;
    products += z * last;
    last = z;
  }
  // Five standard errors each.
  const double root = std::sqrt(static_cast<double>(rows));
  EXPECT_NEAR(sum / rows, 0.5, 5 * std::sqrt(1.0 / 12) / root);
  EXPECT_NEAR(squares / rows, 1.0 / 3, 5 * std::sqrt(4.0 / 45) / root);
  EXPECT_NEAR(normal / rows, 0, 5 / root);
  EXPECT_NEAR(normal_squares / rows, 1, 5 * std::sqrt(2.0) / root);
  EXPECT_NEAR(products / rows, 0, 5 / root);
}

TEST(CounterRandom, BelowIsUniformAlsoForBoundsThatDoNotDivide) {
  std::array<int, 7> count{};
  counter_random r(9);
  for (int i = 0; i < 70000; ++i) ++count[r.below(7)];
  double chi = 0;
  for (const int c : count) chi += (c - 10000.0) * (c - 10000.0) / 10000.0;
  EXPECT_LT(chi, 33);  // 6 degrees of freedom, one in 10^5
  EXPECT_EQ(counter_random(9).below(1), 0U);
  const std::uint64_t big = (std::uint64_t{1} << 63U) + 1;
  for (int i = 0; i < 100; ++i) ASSERT_LT(r.below(big), big);
}

TEST(CounterRandom, ShufflingKeepsTheItemsAndMovesThem) {
  std::vector<int> items(1000);
  std::iota(items.begin(), items.end(), 0);
  auto shuffled = items;
  counter_random(3).shuffle(shuffled);
  EXPECT_NE(shuffled, items);
  auto again = items;
  counter_random(3).shuffle(again);
  EXPECT_EQ(again, shuffled);
  std::sort(shuffled.begin(), shuffled.end());
  EXPECT_EQ(shuffled, items);
}

}  // namespace
}  // namespace paracel
