// SPDX-License-Identifier: BSD-3-Clause
#include "alg/decision_tree_rec/dtr.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include <paracel/random.hpp>

namespace paracel::alg {
namespace {

std::vector<double> random_rows(std::uint64_t seed, std::size_t n, std::size_t k) {
  std::vector<double> v;
  counter_random random(seed);
  for (std::size_t i = 0; i < n * k; ++i) v.push_back(random.normal());
  return v;
}

double spread(const std::vector<double>& rows, std::size_t k, const std::vector<bool>& of) {
  double sum = 0;
  for (std::size_t f = 0; f < k; ++f) {
    double mean = 0;
    double n = 0;
    for (std::size_t u = 0; u < of.size(); ++u) {
      if (of[u]) {
        mean += rows[u * k + f];
        n += 1;
      }
    }
    mean /= n;
    for (std::size_t u = 0; u < of.size(); ++u) sum += of[u] ? std::pow(rows[u * k + f] - mean, 2) : 0;
  }
  return sum;
}

TEST(FixedPoint, SumsOfManyFitIntoAWholeNumberAndKeepTwelveDigits) {
  for (const double largest : {1e-9, 0.3, 1.0, 7e5}) {
    const std::uint64_t count = 1'000'000;
    const fixed_point unit(largest, count);
    EXPECT_LT(static_cast<double>(unit.whole(largest)) * static_cast<double>(count), 0x1p62);
    EXPECT_NEAR(unit.real(unit.whole(largest / 3)), largest / 3, 1e-12 * largest);
    EXPECT_EQ(unit.whole(-largest), -unit.whole(largest));
  }
  EXPECT_EQ(fixed_point(0, 5).whole(0), 0);
}

TEST(DtrUsers, LikesAreTheSignsOfTheProductsForAnyNumberOfUsers) {
  for (const std::size_t n : {0U, 1U, 7U, 8U, 63U, 64U, 65U, 200U}) {
    const std::size_t k = 5;
    const auto rows = random_rows(n, n, k);
    const auto item = random_rows(99, 1, k);
    const dtr_users users(rows, k, fixed_point(10, 200), fixed_point(500, 200));
    ASSERT_EQ(users.size(), n);
    std::vector<std::uint64_t> likes(users.words());
    users.ask(item, likes);
    std::size_t bits = 0;
    for (const auto w : likes) bits += static_cast<std::size_t>(__builtin_popcountll(w));
    std::size_t expected = 0;
    for (std::size_t u = 0; u < n; ++u) {
      double product = 0;
      for (std::size_t f = 0; f < k; ++f) product += rows[u * k + f] * item[f];
      EXPECT_EQ((likes[u / 64] >> (u % 64) & 1U) != 0, product >= 0);
      EXPECT_EQ(users.likes(u, item), product >= 0);
      expected += product >= 0 ? 1 : 0;
    }
    EXPECT_EQ(bits, expected);  // no bits beyond the last user
  }
}

TEST(DtrUsers, AProductOfZeroIsALike) {
  const std::vector<double> rows{1, 0, 0, 0};
  const dtr_users users(rows, 2, fixed_point(1, 2), fixed_point(1, 2));
  std::vector<std::uint64_t> likes(1);
  users.ask(std::vector<double>{0, -1}, likes);
  EXPECT_EQ(likes[0], 3U);
}

TEST(DtrGain, IsTheNormLessTheSpreadOfBothSides) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::size_t n = 60;
    const std::size_t k = 4;
    const auto rows = random_rows(seed, n, k);
    const auto item = random_rows(seed + 1000, 1, k);
    const fixed_point unit(10, n);
    const fixed_point norm_unit(500, n);
    const dtr_users users(rows, k, unit, norm_unit);
    std::vector<std::uint64_t> likes(1);
    users.ask(item, likes);
    const std::vector<std::uint32_t> place(n, 0);
    std::vector<std::int64_t> all(1 + k);
    std::vector<std::int64_t> like(1 + k);
    std::vector<std::int64_t> norm(1);
    users.add(std::vector<std::uint64_t>{(std::uint64_t{1} << n) - 1}, place, all);
    users.add(likes, place, like);
    users.add_norms(place, norm);
    const double gain = dtr_gain({all[0], std::span(all).subspan(1)}, {like[0], std::span(like).subspan(1)}, unit);
    if (like[0] >= 3 * (all[0] - like[0]) || all[0] - like[0] >= 3 * like[0]) {
      EXPECT_EQ(gain, not_allowed);
      continue;
    }
    std::vector<bool> side(n);
    std::vector<bool> other(n);
    for (std::size_t u = 0; u < n; ++u) {
      side[u] = (likes[0] >> u & 1U) != 0;
      other[u] = !side[u];
    }
    EXPECT_NEAR(norm_unit.real(norm[0]) - gain, spread(rows, k, side) + spread(rows, k, other), 1e-9);
  }
}

TEST(DtrGain, RefusesAnEmptySideAndThreeToOne) {
  const fixed_point unit(1, 8);
  const std::vector<std::int64_t> zero{0};
  const auto gain = [&](std::int64_t all, std::int64_t likes) { return dtr_gain({all, zero}, {likes, zero}, unit); };
  EXPECT_EQ(gain(8, 0), not_allowed);
  EXPECT_EQ(gain(8, 8), not_allowed);
  EXPECT_EQ(gain(8, 2), not_allowed);
  EXPECT_EQ(gain(8, 6), not_allowed);
  EXPECT_EQ(gain(8, 3), 0);
  EXPECT_EQ(gain(8, 5), 0);
}

TEST(DtrChoice, TakesTheGreatestGainAndOfEqualOnesTheSmaller) {
  const std::vector<double> gains{3, 5, not_allowed, 5 - 1e-12, 5 + 1e-12, 4};
  std::vector<bool> used(6);
  EXPECT_EQ(dtr_choice(gains, used, 1e-9), 1U);
  EXPECT_EQ(dtr_choice(gains, used, 0), 4U);
  // The group of the first three, then 4, then 3; no others.
  const std::vector<std::size_t> expected{1, 3, 4, 5, 0, 6, 6};
  for (std::size_t n = 0; n < expected.size(); ++n) EXPECT_EQ(dtr_choice(gains, used, 1e-9, n), expected[n]) << n;
  used[1] = used[4] = true;
  EXPECT_EQ(dtr_choice(gains, used, 1e-9), 3U);
  EXPECT_EQ(dtr_choice(std::vector<double>{not_allowed}, {false}, 1), 1U);
  EXPECT_EQ(dtr_choice({}, {}, 1), 0U);
}

}  // namespace
}  // namespace paracel::alg
