// SPDX-License-Identifier: BSD-3-Clause
#include "alg/similarity_dense/sim_dense.hpp"

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <paracel/random.hpp>

namespace paracel::alg {
namespace {

std::vector<double> random_rows(std::uint64_t seed, std::size_t rows, std::size_t width) {
  counter_random random(seed);
  std::vector<double> values(rows * width);
  for (auto& v : values) v = random.normal();
  for (std::size_t i = 0; i < rows; ++i) {
    const auto row = std::span(values).subspan(i * width, width);
    if (i % 17 == 3) std::fill(row.begin(), row.end(), 0.0);
    to_unit_length(row);
  }
  return values;
}

double dot(const std::vector<double>& a, std::size_t i, const std::vector<double>& b, std::size_t j,
           std::size_t width) {
  double sum = 0;
  for (std::size_t k = 0; k < width; ++k) sum += a[i * width + k] * b[j * width + k];
  return sum;
}

TEST(DenseKernel, GivesEveryPairOfTwoMatricesOnce) {
  for (const auto& [n, m, width] :
       {std::tuple(1U, 1U, 1U), {5U, 70U, 3U}, {67U, 33U, 64U}, {40U, 600U, 5U}, {3U, 9U, 20000U}}) {
    const auto a = random_rows(1, n, width);
    const auto b = random_rows(2, m, width);
    dense_kernel kernel(width);
    std::map<std::pair<std::size_t, std::size_t>, double> found;
    kernel.product(a, b, false, [&](std::size_t i, std::size_t j, std::span<const double> s) {
      for (std::size_t c = 0; c < s.size(); ++c) EXPECT_TRUE(found.emplace(std::pair(i, j + c), s[c]).second);
    });
    ASSERT_EQ(found.size(), std::size_t{n} * m);
    for (const auto& [pair, s] : found) {
      const double expected = dot(a, pair.first, b, pair.second, width);
      if (std::isnan(expected)) EXPECT_TRUE(std::isnan(s));
      else EXPECT_NEAR(s, expected, 1e-13);
    }
  }
}

TEST(DenseKernel, OfOneMatrixEachPairComesOnceAndHasTheBitsThatBlocksGive) {
  for (const auto& [n, width] : {std::pair(90U, 7U), {700U, 3U}, {33U, 3000U}}) {
    const auto a = random_rows(3, n, width);
    dense_kernel kernel(width);
    std::vector<int> times(std::size_t{n} * n);
    std::vector<double> value(times.size());
    kernel.product(a, a, true, [&, n = n](std::size_t i, std::size_t j, std::span<const double> s) {
      for (std::size_t c = j > i ? 0 : i + 1 - j; c < s.size(); ++c) {
        ++times[i * n + j + c];
        value[i * n + j + c] = s[c];
      }
    });
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) ASSERT_EQ(times[i * n + j], i < j ? 1 : 0) << i << ' ' << j;
    }
    // The same from the other side, in pieces of odd sizes.
    for (std::size_t from = 0; from < n; from += 13) {
      const auto count = std::min<std::size_t>(13, n - from);
      kernel.product(std::span(a).subspan(from * width, count * width), a, false,
                     [&, n = n](std::size_t i, std::size_t j, std::span<const double> s) {
                       for (std::size_t c = 0; c < s.size(); ++c) {
                         if (from + i <= j + c) continue;
                         const double other = value[(j + c) * n + from + i];
                         if (std::isnan(other)) EXPECT_TRUE(std::isnan(s[c]));
                         else EXPECT_EQ(s[c], other);
                       }
                     });
    }
  }
}

TEST(ToUnitLength, HoldsForHugeTinyAndZeroRows) {
  std::vector<double> huge{3e300, 4e300};
  std::vector<double> tiny{-3e-300, 4e-300};
  std::vector<double> zero{0, 0};
  for (auto* row : {&huge, &tiny, &zero}) to_unit_length(*row);
  EXPECT_NEAR(huge[0], 0.6, 1e-15);
  EXPECT_NEAR(tiny[0], -0.6, 1e-15);
  EXPECT_TRUE(std::isnan(zero[0]) && std::isnan(zero[1]));
}

// The bar of 1 is reached by all of them: the lengths and the product are rounded, by less than similarity_rounding.
TEST(DenseKernel, EqualRowsAreWithinRoundingOfOne) {
  counter_random random(5);
  for (const std::size_t width : {1U, 2U, 7U, 100U, 30'000U}) {
    for (int trial = 0; trial < (width > 1000 ? 3 : 300); ++trial) {
      std::vector<double> a(width);
      for (auto& v : a) v = random.normal();
      auto b = a;
      for (auto& v : b) v *= 3;
      to_unit_length(a);
      to_unit_length(b);
      EXPECT_GE(dot(a, 0, b, 0, width), 1 - similarity_rounding(width)) << width;
    }
  }
  EXPECT_LT(similarity_rounding(30'000), 1e-11);
}

}  // namespace
}  // namespace paracel::alg
