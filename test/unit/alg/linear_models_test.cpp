// SPDX-License-Identifier: BSD-3-Clause
//
// The numerical parts of ridge, lasso and lr_l1.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/random.hpp>

#include "alg/common/solvers/coordinate_descent.hpp"
#include "alg/common/solvers/design_matrix.hpp"
#include "alg/common/solvers/orthant_newton.hpp"
#include "alg/lr_l1/lr_l1.hpp"
#include "alg/ridge_regression/ridge.hpp"
#include "worker/comm/comm_backend.hpp"

namespace paracel::alg {
namespace {

/// A single worker without a job.
class alone final : public comm_backend {
 public:
  [[nodiscard]] std::size_t rank() const override { return 0; }
  [[nodiscard]] std::size_t size() const override { return 1; }
};
Comm one_worker() { return Comm(std::make_shared<alone>()); }

/// The same matrix dense and sparse; about a third of its elements are nonzero.
struct both {
  sample_rows dense;
  sample_rows sparse;
};
both samples(std::size_t n, std::size_t p, std::uint64_t seed, double share = 0.3) {
  both b;
  b.dense.dense = true;
  b.dense.columns = b.sparse.columns = static_cast<std::uint32_t>(p);
  b.dense.row_count = b.sparse.row_count = n;
  counter_random random(seed);
  for (std::size_t i = 0; i < n; ++i) {
    double y = 0.5;
    for (std::size_t j = 0; j < p; ++j) {
      const double v = random.uniform() < share ? 1 + random.normal() : 0;
      b.dense.value.push_back(v);
      y += v * static_cast<double>(j % 3);
      if (v == 0) continue;
      b.sparse.column.push_back(static_cast<std::uint32_t>(j));
      b.sparse.value.push_back(v);
    }
    b.sparse.row_begin.push_back(b.sparse.value.size());
    b.dense.label.push_back(y + random.normal());
  }
  b.sparse.label = b.dense.label;
  return b;
}

double at(const sample_rows& dense, std::size_t i, std::size_t j) { return dense.value[i * dense.columns + j]; }

TEST(Design, AGramMatrixIsTheSumOfOuterProductsDenseAndSparse) {
  for (const double share : {0.05, 0.9}) {
    const auto b = samples(300, 23, 1, share);
    const std::vector<std::uint32_t> features{0, 3, 4, 9, 10, 11, 12, 13, 17, 22};
    std::vector<double> weight(300);
    for (std::size_t i = 0; i < 300; ++i) weight[i] = static_cast<double>(i % 5) / 4;
    for (const bool weighted : {false, true}) {
      const std::span<const double> w = weighted ? std::span<const double>(weight) : std::span<const double>();
      std::vector<double> dense(packed_size(features.size()));
      std::vector<double> sparse(dense.size());
      add_gram(b.dense, features, w, dense);
      add_gram(b.sparse, features, w, sparse);
      for (std::size_t a = 0; a < features.size(); ++a) {
        for (std::size_t c = a; c < features.size(); ++c) {
          double expected = 0;
          for (std::size_t i = 0; i < 300; ++i) {
            expected += (weighted ? weight[i] : 1) * at(b.dense, i, features[a]) * at(b.dense, i, features[c]);
          }
          const auto place = packed_at(features.size(), a, c);
          EXPECT_NEAR(dense[place], expected, 1e-10);
          EXPECT_NEAR(sparse[place], expected, 1e-10);
        }
      }
    }
  }
}

TEST(Design, SparseRowsAreCentredAndScaledAsDenseOnesAre) {
  for (const bool standardize : {false, true}) {
    const auto b = samples(200, 9, 2);
    const centred_samples dense(one_worker(), b.dense, standardize);
    const centred_samples sparse(one_worker(), b.sparse, standardize);
    EXPECT_NEAR(dense.target_mean(), sparse.target_mean(), 1e-13);
    EXPECT_NEAR(dense.target_sd(), sparse.target_sd(), 1e-13);
    std::vector<std::uint32_t> all(9);
    std::iota(all.begin(), all.end(), 0U);
    const auto g = dense.gram(all);
    const auto h = sparse.gram(all);
    for (std::size_t k = 0; k < g.size(); ++k) EXPECT_NEAR(g[k], h[k], 1e-9);
    if (standardize) {
      for (std::size_t j = 0; j < 9; ++j) EXPECT_NEAR(g[packed_at(9, j, j)], 200, 1e-9);
    }
    const std::vector<double> w{1, -2, 0, 0.5, 3, 0, 0, 1, -1};
    std::vector<double> r;
    std::vector<double> s;
    dense.residual(w, r);
    sparse.residual(w, s);
    for (std::size_t i = 0; i < 200; ++i) EXPECT_NEAR(r[i], s[i], 1e-11);
    const auto c = dense.correlate(r);
    const auto e = sparse.correlate(s);
    for (std::size_t j = 0; j < c.size(); ++j) EXPECT_NEAR(c[j], e[j], 1e-8);
    const auto u = dense.normal_product(w);
    const auto v = sparse.normal_product(w);
    for (std::size_t j = 0; j < u.size(); ++j) EXPECT_NEAR(u[j], v[j], 1e-8);
    const auto l = sparse.squared_lengths();
    for (std::size_t j = 0; j < 9; ++j) EXPECT_NEAR(l[j], g[packed_at(9, j, j)], 1e-9);
    // The model in the units of the input makes predictions that agree with the residual.
    const auto theta = sparse.theta(w);
    for (std::size_t i = 0; i < 200; ++i) EXPECT_NEAR(b.dense.label[i] - predicted(b.sparse, i, theta), s[i], 1e-11);
  }
}

TEST(Design, SparseAndDenseRowsAreAlikeFarFromZero) {
  for (const double far : {1e3, 1e6, 1e9}) {
    auto b = samples(200, 3, 8);
    sample_rows sparse;
    sparse.columns = 3;
    sparse.row_count = 200;
    sparse.label = b.dense.label;
    for (std::size_t k = 0; k < b.dense.value.size(); ++k) {
      b.dense.value[k] = 5 * at(b.dense, k / 3, k % 3) + (k % 3 == 1 ? far : 0);
      sparse.column.push_back(static_cast<std::uint32_t>(k % 3));
      sparse.value.push_back(b.dense.value[k]);
      if (k % 3 == 2) sparse.row_begin.push_back(sparse.value.size());
    }
    for (const bool standardize : {false, true}) {
      const centred_samples d(one_worker(), b.dense, standardize);
      const centred_samples s(one_worker(), sparse, standardize);
      const std::vector<std::uint32_t> all{0, 1, 2};
      const auto g = d.gram(all);
      const auto h = s.gram(all);
      for (std::size_t k = 0; k < g.size(); ++k) EXPECT_NEAR(g[k], h[k], 1e-9 * std::abs(g[0])) << far;
      const std::vector<double> w{1, -2, 0.5};
      for (std::size_t j = 0; j < 4; ++j) EXPECT_NEAR(d.theta(w)[j] / s.theta(w)[j], 1, 1e-9) << far;
      // And back: the intercept may be another one.
      for (const auto* samples : {&d, &s}) {
        auto theta = samples->theta(w);
        theta[0] += 0.25;
        const auto [again, above] = samples->from_theta(theta);
        for (std::size_t j = 0; j < 3; ++j) EXPECT_NEAR(again[j], w[j], 1e-12);
        EXPECT_NEAR(above, 0.25, 1e-15 * far);
        // rows() and their intercept predict what theta does.
        const auto scale = samples->row_scale();
        double margin = samples->row_intercept(w) + samples->target_mean();
        for (std::size_t j = 0; j < 3; ++j) margin += at(samples->rows(), 7, j) * scale[j] * w[j];
        EXPECT_NEAR(margin + 0.25, predicted(b.dense, 7, theta), 1e-14 * far);
      }
    }
  }
}

TEST(Design, AFeatureWithoutSpreadHasNoWeightHoweverItsMeanIsRounded) {
  sample_rows rows;
  rows.dense = true;
  rows.columns = 2;
  rows.row_count = 1000;
  for (int i = 0; i < 1000; ++i) {
    rows.value.push_back(0.1);
    rows.value.push_back(i);
    rows.label.push_back(2.0 * i);
  }
  const centred_samples s(one_worker(), rows, true);
  const std::vector<double> w{5, 1};
  EXPECT_EQ(s.theta(w)[1], 0);
  EXPECT_EQ(s.squared_lengths()[0], 0);
  EXPECT_NEAR(s.squared_lengths()[1], 1000, 1e-9);
}

TEST(Ridge, CholeskyAndConjugateGradientsSolveTheNormalEquations) {
  const auto b = samples(150, 12, 3);
  const centred_samples s(one_worker(), b.sparse, true);
  std::vector<std::uint32_t> all(12);
  std::iota(all.begin(), all.end(), 0U);
  std::vector<double> r;
  s.residual(std::vector<double>(12), r);
  auto right = s.correlate(r);
  right.pop_back();
  const auto exact = ridge_factors(s.gram(all), 12, 0.7).solve(right);
  const auto by_steps = ridge_conjugate_gradients([&](std::span<const double> v) { return s.normal_product(v); },
                                                  s.squared_lengths(), right, 0.7, 1e-13, 200, [](int, double) {});
  // At the minimum X'r = a w.
  s.residual(exact, r);
  const auto slope = s.correlate(r);
  for (std::size_t j = 0; j < 12; ++j) {
    EXPECT_NEAR(slope[j], 0.7 * exact[j], 1e-9);
    EXPECT_NEAR(exact[j], by_steps[j], 1e-10);
  }
  // From a start that is near, and at the solution, where no step is needed.
  const auto steps_from = [&](std::vector<double> start) {
    int steps = 0;
    const auto w =
        ridge_conjugate_gradients([&](std::span<const double> v) { return s.normal_product(v); }, s.squared_lengths(),
                                  right, 0.7, 1e-9, 200, [&](int, double) { ++steps; }, std::move(start));
    for (std::size_t j = 0; j < 12; ++j) EXPECT_NEAR(exact[j], w[j], 1e-7);
    return steps;
  };
  auto near = exact;
  for (auto& x : near) x *= 1 + 1e-7;
  EXPECT_EQ(steps_from(exact), 0);
  EXPECT_LT(steps_from(near), steps_from({}));
  EXPECT_GT(steps_from(near), 0);
}

TEST(Ridge, ASingularMatrixHasItsSolutionOfLeastLength) {
  const std::vector<double> ones{1, 1, 1};  // packed: all elements 1
  const auto w = ridge_factors(ones, 2, 0).solve(std::vector<double>{2, 2});
  EXPECT_NEAR(w[0], 1, 1e-12);
  EXPECT_NEAR(w[1], 1, 1e-12);
}

TEST(Ridge, ScalesOfTheFeaturesDoNotMatter) {
  const auto b = samples(150, 4, 3);
  std::vector<std::uint32_t> all(4);
  std::iota(all.begin(), all.end(), 0U);
  const std::vector<double> factor{1e-9, 1, 1e5, 1e9};
  auto rows = b.dense;
  for (std::size_t k = 0; k < rows.value.size(); ++k) rows.value[k] *= factor[k % 4];
  const auto solutions = [&](const sample_rows& of) {
    const centred_samples s(one_worker(), of, false);
    std::vector<double> r;
    s.residual(std::vector<double>(4), r);
    auto right = s.correlate(r);
    right.pop_back();
    auto both = ridge_factors(s.gram(all), 4, 0).solve(right);
    for (const double w : ridge_conjugate_gradients([&](std::span<const double> v) { return s.normal_product(v); },
                                                    s.squared_lengths(), right, 0, 1e-13, 200, [](int, double) {}))
      both.push_back(w);
    return both;
  };
  const auto wanted = solutions(b.dense);
  const auto found = solutions(rows);
  for (std::size_t k = 0; k < 8; ++k)
    EXPECT_NEAR(found[k] * factor[k % 4], wanted[k], 1e-11 * (1 + std::abs(wanted[k]))) << k;
}

TEST(Ridge, AStepIsParacelsForDenseAndSparseRows) {
  const auto b = samples(20, 4, 4);
  const std::vector<double> scale{1, 2, 0.5, 1};
  std::vector<std::size_t> order{3, 0, 7, 7, 19};
  for (const auto* rows : {&b.dense, &b.sparse}) {
    std::vector<double> w{0.1, -0.2, 0.3, 0};
    double intercept = 0.5;
    auto expected = w;
    double expected_intercept = intercept;
    for (const auto i : order) {
      double e = rows->label[i] - expected_intercept;
      for (std::size_t j = 0; j < 4; ++j) e -= at(b.dense, i, j) * scale[j] * expected[j];
      for (std::size_t j = 0; j < 4; ++j)
        expected[j] += 0.01 * (e * at(b.dense, i, j) * scale[j] - 2 * 0.3 * expected[j]);
      expected_intercept += 0.01 * e;
    }
    ridge_steps(*rows, scale, order, 0.01, 1, 0.3, w, intercept);
    for (std::size_t j = 0; j < 4; ++j) EXPECT_NEAR(w[j], expected[j], 1e-13);
    EXPECT_NEAR(intercept, expected_intercept, 1e-13);
  }
}

TEST(L1Descent, OneCoordinateIsThresholdedSoftly) {
  for (const double q : {3.0, 0.5, -2.0}) {
    std::vector<double> w{0};
    std::vector<double> correlation{q};
    l1_descend(std::vector<double>{2.0}, std::vector<double>{1.0}, 0.5, std::vector<double>{1e-12}, w, correlation);
    EXPECT_NEAR(w[0], std::abs(q) > 1 ? std::copysign((std::abs(q) - 1) / 2.5, q) : 0, 1e-15);
  }
}

TEST(L1Descent, EndsAtTheOptimumAlsoWhereFeaturesDependOnEachOther) {
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U}) {
    // More features than rows, so that the matrix is singular.
    const auto b = samples(30, 60, seed, 0.8);
    std::vector<std::uint32_t> all(60);
    std::iota(all.begin(), all.end(), 0U);
    std::vector<double> gram(packed_size(60));
    add_gram(b.dense, all, {}, gram);
    std::vector<double> q(60);
    add_transposed(b.dense, b.dense.label, q);
    std::vector<double> l1(60, 1.0);
    l1[7] = 0;
    std::vector<double> w(60);
    auto correlation = q;
    l1_descend(gram, l1, 0, std::vector<double>(w.size(), 1e-8), w, correlation);
    for (std::size_t j = 0; j < 60; ++j) {
      double slope = q[j];
      for (std::size_t k = 0; k < 60; ++k) slope -= gram[packed_at(60, std::min(j, k), std::max(j, k))] * w[k];
      EXPECT_LE(l1_violation(w[j], slope, l1[j]), 1e-7);
    }
  }
}

TEST(L1Descent, ACoordinateWithoutCurvatureStays) {
  std::vector<double> w{0, 2};
  std::vector<double> correlation{5, 1};
  l1_descend(std::vector<double>{0, 0, 1}, std::vector<double>{1, 1}, 0, std::vector<double>{1e-12, 1e-12}, w,
             correlation);
  EXPECT_EQ(w[0], 0);
  EXPECT_EQ(w[1], 2);
}

TEST(Design, WeightedProductsAndSquaresAreThoseOfTheGramMatrix) {
  const auto b = samples(50, 13, 9);
  std::vector<std::uint32_t> all(13);
  std::iota(all.begin(), all.end(), 0U);
  std::vector<double> weight(50);
  for (std::size_t i = 0; i < 50; ++i) weight[i] = 0.01 * static_cast<double>(i);
  std::vector<double> v(13);
  for (std::size_t j = 0; j < 13; ++j) v[j] = 1.0 / (1.0 + static_cast<double>(j));
  for (const auto* rows : {&b.dense, &b.sparse}) {
    std::vector<double> gram(packed_size(13));
    add_gram(*rows, all, weight, gram);
    std::vector<double> product(13, 1.0);
    add_weighted_product(*rows, weight, v, product);
    std::vector<double> squares(13, 1.0);
    add_weighted_squares(*rows, weight, squares);
    for (std::size_t j = 0; j < 13; ++j) {
      double expected = 1;
      for (std::size_t k = 0; k < 13; ++k) expected += gram[packed_at(13, std::min(j, k), std::max(j, k))] * v[k];
      EXPECT_NEAR(product[j], expected, 1e-12);
      EXPECT_NEAR(squares[j], 1 + gram[packed_at(13, j, j)], 1e-12);
    }
  }
}

TEST(FaceNewton, TheSlopeIsTheNearestSubgradientToZero) {
  EXPECT_EQ(l1_slope(2, 0.25, 1), 1.25);
  EXPECT_EQ(l1_slope(-2, 0.25, 1), -0.75);
  EXPECT_EQ(l1_slope(0, 0.75, 1), 0);
  EXPECT_EQ(l1_slope(0, 1.5, 1), 0.5);
  EXPECT_EQ(l1_slope(0, -1.5, 1), -0.5);
  EXPECT_EQ(l1_slope(0, -1.5, 0), -1.5);
}

TEST(FaceNewton, AWeightStopsAtZero) {
  EXPECT_EQ(stay_in_orthant(2, 1, 0.5), 0.5);
  EXPECT_EQ(stay_in_orthant(2, 1, -0.5), 0);
  EXPECT_EQ(stay_in_orthant(-2, 1, 0.5), 0);
  EXPECT_EQ(stay_in_orthant(0, 1, -0.5), -0.5);
  EXPECT_EQ(stay_in_orthant(0, 1, 0.5), 0);
}

TEST(FaceNewton, TheDirectionSolvesTheEquationsOfTheFreeCoordinates) {
  const auto b = samples(200, 20, 4, 0.5);
  const std::vector<double> weight(200, 0.5);
  std::vector<double> diagonal(20);
  add_weighted_squares(b.dense, weight, diagonal);
  std::vector<double> slope(20);
  std::vector<char> free(20);
  for (std::size_t j = 0; j < 20; ++j) {
    slope[j] = std::sin(static_cast<double>(j));
    free[j] = j % 3 != 0 ? 1 : 0;
  }
  std::size_t products = 0;
  const auto product = [&](std::span<const double> v, std::span<double> out) {
    ++products;
    add_weighted_product(b.dense, weight, v, out);
  };
  const auto direction = face_direction(product, diagonal, slope, free, 1e-12, 100);
  std::vector<double> image(20);
  add_weighted_product(b.dense, weight, direction, image);
  for (std::size_t j = 0; j < 20; ++j) {
    if (free[j] != 0) EXPECT_NEAR(image[j], -slope[j], 1e-10);
    else EXPECT_EQ(direction[j], 0);
  }
  // As many as there are free coordinates, or a few more because of rounding.
  EXPECT_LE(products, 20U);
  // Truncated it is still a descent direction.
  products = 0;
  const auto rough = face_direction(product, diagonal, slope, free, 0, 2);
  EXPECT_EQ(products, 2U);
  EXPECT_LT(std::inner_product(rough.begin(), rough.end(), slope.begin(), 0.0), 0);
}

TEST(FaceNewton, WithoutCurvatureItStays) {
  const std::vector<double> one{1, 1};
  const std::vector<char> free{1, 1};
  const auto direction = face_direction([](auto, auto) {}, one, one, free, 0.1, 5);
  EXPECT_EQ(direction, (std::vector<double>{0, 0}));
}

TEST(LrL1, DerivativesAreThoseOfTheLoss) {
  const std::vector<double> label{1, -1, 1, -1};
  const std::vector<double> margin{0.3, 2, -40, 800};
  std::vector<double> slope(4);
  std::vector<double> curvature(4);
  const double c = 2.5;
  const double loss = lr_l1_loss(margin, label, {}, c, slope, curvature);
  EXPECT_NEAR(loss, c * (std::log1p(std::exp(-0.3)) + std::log1p(std::exp(2.0)) + 40 + 800), 1e-9);
  std::vector<double> up(4);
  std::vector<double> ignored(4);
  for (std::size_t i = 0; i < 2; ++i) {
    auto moved = margin;
    moved[i] += 1e-5;
    const double above = lr_l1_loss(moved, label, {}, c, up, ignored);
    const double slope_above = up[i];
    moved[i] -= 2e-5;
    const double below = lr_l1_loss(moved, label, {}, c, up, ignored);
    EXPECT_NEAR(slope[i], (above - below) / 2e-5, 1e-6);
    EXPECT_NEAR(curvature[i], (slope_above - up[i]) / 2e-5, 1e-8);
  }
  EXPECT_EQ(slope[3], c);
  EXPECT_EQ(curvature[3], 0);
}

TEST(LrL1, TheBiasIsAFeatureThatIsOne) {
  auto b = samples(10, 3, 5);
  const auto before = b;
  append_ones(b.dense);
  append_ones(b.sparse);
  const std::vector<double> w{1, 2, 3, 10};
  for (std::size_t i = 0; i < 10; ++i) {
    const double expected = row_product(before.dense, i, std::span(w).first(3)) + 10;
    EXPECT_NEAR(row_product(b.dense, i, w), expected, 1e-12);
    EXPECT_NEAR(row_product(b.sparse, i, w), expected, 1e-12);
  }
}

}  // namespace
}  // namespace paracel::alg
