// SPDX-License-Identifier: BSD-3-Clause
#include "core/half.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace paracel {
namespace {

std::uint32_t bits(float f) { return std::bit_cast<std::uint32_t>(f); }

/// By the definition of the format, in double.
double meaning(std::uint16_t h) {
  const int exponent = h >> 10U & 31;
  const double sign = (h & 0x8000U) != 0 ? -1 : 1;
  const double fraction = h & 0x3ffU;
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

TEST(Half, EveryHalfMeansWhatTheFormatSaysAndComesBack) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t h = 0; h < all.size(); ++h) all[h] = static_cast<std::uint16_t>(h);
  std::vector<float> floats(all.size());
  std::vector<float> portable(all.size());
  std::vector<double> doubles(all.size());
  const auto* from = reinterpret_cast<const std::byte*>(all.data());
  from_halves(from, all.size(), floats.data());
  from_halves_portably(from, all.size(), portable.data());
  from_halves(from, all.size(), doubles.data());
  std::vector<std::uint16_t> back(all.size());
  std::vector<std::uint16_t> back_of_doubles(all.size());
  to_halves(floats.data(), all.size(), reinterpret_cast<std::byte*>(back.data()));
  to_halves(doubles.data(), all.size(), reinterpret_cast<std::byte*>(back_of_doubles.data()));
  for (std::size_t h = 0; h < all.size(); ++h) {
    ASSERT_EQ(bits(floats[h]), bits(portable[h])) << h;
    const auto want = meaning(all[h]);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(floats[h]) && std::isnan(doubles[h])) << h;
      ASSERT_EQ(back[h], h | 0x200U) << "a quiet NaN";
      ASSERT_EQ(back_of_doubles[h], h | 0x200U);
      continue;
    }
    ASSERT_EQ(floats[h], want) << h;
    ASSERT_EQ(std::signbit(floats[h]), std::signbit(want)) << h;
    ASSERT_EQ(doubles[h], want) << h;
    ASSERT_EQ(back[h], h);
    ASSERT_EQ(back_of_doubles[h], h);
    ASSERT_EQ(half_of(floats[h]), h);
  }
}

// Rounding rises with the number, so it is right everywhere if it is right at and beside the midpoint of every two
// neighbours.
TEST(Half, BetweenTwoHalvesTheNearerIsTakenAndOfAMidpointTheEvenOne) {
  for (std::uint16_t h = 0; h < 0x7c00; ++h) {
    const auto above = static_cast<std::uint16_t>(h + 1);
    const double next = above == 0x7c00 ? 65536 : meaning(above);
    const double middle = (meaning(h) + next) / 2;
    const auto even = (h & 1U) == 0 ? h : above;
    for (const std::uint16_t sign : {0, 0x8000}) {
      const double s = sign == 0 ? 1 : -1;
      ASSERT_EQ(half_of(s * middle), even | sign);
      ASSERT_EQ(half_of(s * std::nextafter(middle, 0)), h | sign);
      ASSERT_EQ(half_of(s * std::nextafter(middle, 1e9)), above | sign);
      const auto f = static_cast<float>(middle);  // exact: a half has 11 bits, its midpoints 12
      ASSERT_EQ(f, middle);
      const float signed_f = sign == 0 ? f : -f;
      ASSERT_EQ(half_of(signed_f), even | sign);
      ASSERT_EQ(half_of(std::nextafterf(signed_f, 0)), h | sign);
      ASSERT_EQ(half_of(std::nextafterf(signed_f, sign == 0 ? 1e9F : -1e9F)), above | sign);
    }
  }
  EXPECT_EQ(half_of(std::nextafter(half_overflow, 0)), 0x7bff);
  EXPECT_EQ(half_of(half_overflow), 0x7c00);
}

TEST(Half, OfExtremesOnlyInfinitiesAndNaNsStayWhatTheyAre) {
  constexpr auto infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(half_of(infinity), 0x7c00);
  EXPECT_EQ(half_of(-infinity), 0xfc00);
  EXPECT_EQ(half_of(std::numeric_limits<double>::max()), 0x7c00);
  EXPECT_EQ(half_of(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(half_of(-0.0), 0x8000);
  EXPECT_EQ(half_of(-0.0F), 0x8000);
  EXPECT_EQ(half_of(std::numeric_limits<double>::denorm_min()), 0);
  EXPECT_EQ(half_of(-std::numeric_limits<float>::denorm_min()), 0x8000);
  EXPECT_TRUE(std::isnan(float_of_half(half_of(std::nan("")))));
  EXPECT_TRUE(std::isnan(float_of_half(half_of(std::numeric_limits<float>::quiet_NaN()))));
}

// A double that a float would round to a midpoint of halves: rounding twice would err.
TEST(Half, ADoubleIsRoundedOnce) {
  const double middle = 1 + 0x1p-11;  // of 1 and the next half: even is 1
  EXPECT_EQ(half_of(middle), 0x3c00);
  EXPECT_EQ(half_of(middle + 0x1p-40), 0x3c01);
  EXPECT_EQ(static_cast<float>(middle + 0x1p-40), static_cast<float>(middle));
  EXPECT_EQ(half_of(1 + 3 * 0x1p-11 - 0x1p-40), 0x3c01);
  EXPECT_EQ(half_of(0x1p-25 + 0x1p-70), 1);
  EXPECT_EQ(half_of(0x1p-25), 0);
}

TEST(Half, TheProcessorsInstructionsGiveTheSameBitsAtAnyLengthAndAddress) {
  std::mt19937 random(1);
  for (const std::size_t n : {0, 1, 7, 8, 9, 31, 1000, 200'000}) {
    std::vector<float> numbers(n);
    for (auto& x : numbers) {
      const auto raw = static_cast<std::uint32_t>(random());
      // Half of them of the magnitudes of halves, the rest any bits.
      x = random() % 2 == 0 ? std::bit_cast<float>(raw)
                            : std::ldexp(static_cast<float>(raw) * 0x1p-32F, static_cast<int>(random() % 44) - 27);
    }
    std::vector<std::byte> a(2 * n + 1);
    std::vector<std::byte> b(2 * n + 1);
    to_halves(numbers.data(), n, a.data() + 1);
    to_halves_portably(numbers.data(), n, b.data() + 1);
    ASSERT_EQ(a, b) << n;
    std::vector<float> x(n);
    std::vector<float> y(n);
    from_halves(a.data() + 1, n, x.data());
    from_halves_portably(a.data() + 1, n, y.data());
    if (n != 0) ASSERT_EQ(std::memcmp(x.data(), y.data(), n * sizeof(float)), 0) << n;  // NaN is not equal to itself
  }
}

}  // namespace
}  // namespace paracel
