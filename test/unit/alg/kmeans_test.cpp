// SPDX-License-Identifier: BSD-3-Clause
#include "alg/kmeans/kmeans_points.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <paracel/random.hpp>

#include "alg/kmeans/kmeans_input.hpp"

namespace paracel::alg {
namespace {

/// Points around a few centres; sparse ones have about half of their coordinates.
sample_rows points(std::size_t n, std::size_t d, bool dense, std::uint64_t seed, bool whole = false) {
  sample_rows rows;
  rows.dense = dense;
  rows.columns = static_cast<std::uint32_t>(d);
  rows.row_count = n;
  rows.row_begin = {0};
  counter_random random(seed);
  for (std::size_t i = 0; i < n; ++i) {
    const auto place = random.below(5);
    for (std::size_t j = 0; j < d; ++j) {
      double v = 3.0 * static_cast<double>((place * 7 + j) % 3) + random.normal();
      if (whole) v = static_cast<double>(random.below(3));
      if (dense) {
        rows.value.push_back(v);
      } else if (random.below(2) == 0) {
        rows.column.push_back(static_cast<std::uint32_t>(j));
        rows.value.push_back(v);
      }
    }
    rows.row_begin.push_back(rows.value.size());
  }
  return rows;
}

/// By definition: the first of the least values of `distance`.
std::uint32_t nearest_by_hand(const kmeans_points& p, std::size_t i, const kmeans_centres& c) {
  std::uint32_t best = 0;
  for (std::uint32_t k = 1; k < c.size(); ++k) {
    if (p.distance(i, c.row(k)) < p.distance(i, c.row(best))) best = k;
  }
  return best;
}

std::vector<double> first_points(const kmeans_points& p, std::size_t k) {
  std::vector<double> rows;
  for (std::size_t i = 0; i < k; ++i) {
    const auto x = p.point(i);
    rows.insert(rows.end(), x.begin(), x.end());
  }
  return rows;
}

TEST(KmeansPoints, TheNearestCentreIsThatOfTheFormulaAlsoWhereCentresAreEquallyFar) {
  for (const bool dense : {true, false}) {
    for (const bool whole : {true, false}) {  // integers have many ties
      for (const std::uint64_t seed : {1U, 2U, 3U}) {
        const kmeans_points p(points(300, 5, dense, seed, whole), false);
        const kmeans_centres c(first_points(p, 40), 5);
        std::vector<std::size_t> all(p.rows());
        std::iota(all.begin(), all.end(), std::size_t{0});
        std::vector<std::uint32_t> best(p.rows());
        std::vector<double> distance(p.rows());
        std::vector<double> second(p.rows());
        p.nearest(c, all, best, distance, second);
        for (std::size_t i = 0; i < p.rows(); ++i) {
          EXPECT_EQ(best[i], nearest_by_hand(p, i, c));
          EXPECT_NEAR(distance[i], p.distance(i, c.row(best[i])), 1e-12);
          for (std::uint32_t k = 0; k < c.size(); ++k) {
            if (k == best[i]) continue;
            EXPECT_LE(second[i], p.distance(i, c.row(k)) + 1e-12);
          }
        }
      }
    }
  }
}

TEST(KmeansPoints, BoundsChangeNoAssignmentAndTheInertiaNeverRises) {
  for (const bool dense : {true, false}) {
    for (const bool cosine : {false, true}) {
      for (const std::uint64_t seed : {1U, 2U, 3U}) {
        kmeans_points p(points(700, 6, dense, seed), cosine);
        kmeans_centres c(first_points(p, 12), 6);
        kmeans_sums sums(12, 6);
        std::vector<double> moved(12);
        double last = std::numeric_limits<double>::infinity();
        for (int round = 0; round < 60; ++round) {
          p.assign(c, moved, sums);
          double inertia = 0;
          for (std::size_t i = 0; i < p.rows(); ++i) {
            EXPECT_EQ(p.assignment()[i], nearest_by_hand(p, i, c));
            inertia += p.distance(i, c.row(p.assignment()[i]));
          }
          EXPECT_NEAR(sums.inertia(), inertia, 1e-11 * inertia);
          EXPECT_LE(sums.inertia(), last * (1 + 1e-12));
          last = sums.inertia();
          if (sums.changed() == 0) break;
          kmeans_centres next(kmeans_means(c, sums, cosine), 6);
          for (std::size_t k = 0; k < 12; ++k) {
            double square = 0;
            for (std::size_t j = 0; j < 6; ++j) square += std::pow(next.row(k)[j] - c.row(k)[j], 2);
            moved[k] = std::sqrt(square) * (1 + 1e-10);
          }
          c = std::move(next);
        }
        EXPECT_EQ(sums.changed(), 0);
      }
    }
  }
}

TEST(KmeansPoints, DistancesOfSparsePointsDoNotCancelFarFromZero) {
  for (const double far : {1e6, 1e9, 1e12}) {
    auto dense = points(200, 3, true, 4);
    for (auto& v : dense.value) v += far;
    auto sparse = dense;
    sparse.dense = false;
    for (std::size_t k = 0; k < dense.value.size(); ++k) sparse.column.push_back(static_cast<std::uint32_t>(k % 3));
    kmeans_points a(dense, false);
    kmeans_points b(sparse, false);
    const kmeans_centres c(first_points(a, 5), 3);
    kmeans_sums from_dense(5, 3);
    kmeans_sums from_sparse(5, 3);
    a.assign(c, {}, from_dense);
    b.assign(c, {}, from_sparse);
    EXPECT_NEAR(from_sparse.inertia() / from_dense.inertia(), 1, 1e-9) << far;
    EXPECT_EQ(a.assignment(), b.assignment()) << far;
  }
}

TEST(KmeansPoints, SumsAreThoseOfTheAssignedPoints) {
  kmeans_points p(points(100, 3, true, 9), false);
  const kmeans_centres c(first_points(p, 4), 3);
  kmeans_sums sums(4, 3);
  p.assign(c, {}, sums);
  EXPECT_EQ(sums.changed(), 100);
  kmeans_sums expected(4, 3);
  for (std::size_t i = 0; i < 100; ++i) {
    p.add(i, 1, expected.sum(p.assignment()[i]));
    expected.count(p.assignment()[i]) += 1;
  }
  for (std::size_t k = 0; k < 4; ++k) {
    EXPECT_EQ(sums.count(k), expected.count(k));
    for (std::size_t j = 0; j < 3; ++j) EXPECT_NEAR(sums.sum(k)[j], expected.sum(k)[j], 1e-12);
  }
}

TEST(KmeansPoints, TheFarthestComeFirstAndOfEqualOnesTheFirstRow) {
  sample_rows rows;
  rows.dense = true;
  rows.columns = 1;
  rows.row_count = 5;
  rows.first_row = 10;
  rows.value = {1, 4, -4, 0, 2};
  kmeans_points p(rows, false);
  kmeans_sums sums(1, 1);
  p.assign(kmeans_centres({0.0}, 1), {}, sums);
  const auto far = p.farthest(3);
  ASSERT_EQ(far.size(), 3U);
  EXPECT_EQ(far[0].row, 11U);
  EXPECT_EQ(far[1].row, 12U);
  EXPECT_EQ(far[2].row, 14U);
  EXPECT_EQ(far[0].distance, 16);
  EXPECT_EQ(p.farthest(50).size(), 5U);
}

TEST(KmeansMeans, ACentreWithoutPointsStays) {
  const kmeans_centres old({1, 2, 3, 4}, 2);
  kmeans_sums sums(2, 2);
  sums.sum(0)[0] = 6;
  sums.sum(0)[1] = 8;
  sums.count(0) = 2;
  EXPECT_EQ(kmeans_means(old, sums, false), (std::vector<double>{3, 4, 3, 4}));
  EXPECT_EQ(kmeans_means(old, sums, true), (std::vector<double>{0.6, 0.8, 3, 4}));
}

TEST(KmeansReduce, FindsTheGroupsOfItsCandidatesByWeight) {
  std::vector<double> x;
  std::vector<double> weight;
  for (int i = 0; i < 60; ++i) {
    x.push_back(100.0 * (i % 3) + 0.01 * i);
    weight.push_back(1 + i % 2);
  }
  for (const std::uint64_t seed : {0U, 1U, 2U}) {
    auto centres = kmeans_reduce(x, 1, weight, 3, seed);
    std::sort(centres.begin(), centres.end());
    for (int c = 0; c < 3; ++c) EXPECT_NEAR(centres[static_cast<std::size_t>(c)], 100.0 * c, 1);
    EXPECT_EQ(kmeans_reduce(x, 1, weight, 3, seed), kmeans_reduce(x, 1, weight, 3, seed));
  }
}

TEST(KmeansInput, ALineOfANamedPoint) {
  sample_rows rows;
  auto names = id_list::empty(false);
  EXPECT_EQ(parse_fvec_line("a b\t1,-2.5, +3e2", rows, names), "");
  EXPECT_EQ(parse_fvec_line("  ", rows, names), "");
  EXPECT_EQ(rows.value, (std::vector<double>{1, -2.5, 300}));
  EXPECT_EQ(rows.rows(), 1U);
  EXPECT_EQ(names.text(0), "a b");
  EXPECT_EQ(parse_fvec_line("b\t1,2", rows, names), "1: found 2 coordinates, want 3");
  EXPECT_EQ(parse_fvec_line("b\t1,nan,2", rows, names), "5: found \"nan\", want a number");
  EXPECT_EQ(parse_fvec_line("b\t1,2,", rows, names), "7: found \"\", want a number");
  EXPECT_EQ(parse_fvec_line("1,2,3", rows, names), "1: found no tab, want name<tab>x,x,...");
}

}  // namespace
}  // namespace paracel::alg
