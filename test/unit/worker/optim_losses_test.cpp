// SPDX-License-Identifier: BSD-3-Clause
//
// Gradients against differences of values, Hessian-vector products against differences of gradients, for every loss,
// with weights, an intercept, standardization, dense and sparse rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <paracel/error.hpp>
#include <paracel/optim_losses.hpp>
#include <paracel/random.hpp>

#include "worker/comm/single_comm.hpp"

namespace paracel::optim {
namespace {

using numbers = std::vector<double>;

/// Rows with random entries, a third of them zeros; the last column is constant.
sample_rows random_rows(bool dense, std::size_t n, std::uint32_t columns, const std::function<double(double)>& label) {
  sample_rows rows;
  rows.dense = dense;
  rows.columns = columns;
  rows.row_count = n;
  counter_random draw(7);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::uint32_t j = 0; j < columns; ++j) {
      const double x = j + 1 == columns ? 2 : draw.uniform() < 0.33 ? 0 : draw.normal() + 0.5 * j;
      if (dense || x != 0) rows.value.push_back(x);
      if (!dense && x != 0) rows.column.push_back(j);
    }
    rows.row_begin.push_back(rows.value.size());
    rows.label.push_back(label(draw.normal()));
  }
  return rows;
}

numbers random_vector(std::size_t n, std::uint64_t seed, double scale = 0.5) {
  counter_random draw(seed);
  numbers v(n);
  for (auto& x : v) x = scale * draw.normal();
  return v;
}

double value_at(objective& f, const numbers& w) {
  numbers unused(w.size());
  return f.value_and_gradient(w, unused);
}
numbers gradient_at(objective& f, const numbers& w) {
  numbers g(w.size());
  f.value_and_gradient(w, g);
  return g;
}

void expect_derivatives(objective& f, const std::string& what) {
  SCOPED_TRACE(what);
  const std::size_t n = f.dimension();
  const auto w = random_vector(n, 3);
  const auto g = gradient_at(f, w);
  const double step = 1e-6;
  const auto moved = [&](std::size_t j, double by) {
    auto to = w;
    to[j] += by;
    return to;
  };
  for (std::size_t j = 0; j < n; ++j) {
    const double difference = (value_at(f, moved(j, step)) - value_at(f, moved(j, -step))) / (2 * step);
    EXPECT_NEAR(g[j], difference, 1e-6 * (1 + std::abs(g[j]))) << "coordinate " << j;
  }
  // Row by row, the sums equal the whole.
  numbers by_rows(n);
  double sum = 0;
  for (std::size_t i = 0; i < f.rows(); ++i) sum += f.rows_value_and_gradient(std::vector<std::size_t>{i}, w, by_rows);
  EXPECT_NEAR(sum, value_at(f, w), 1e-10);
  for (std::size_t j = 0; j < n; ++j) EXPECT_NEAR(by_rows[j], g[j], 1e-10);
  if (!f.has_hessian()) return;

  numbers diagonal(n);
  gradient_at(f, w);
  const bool has_diagonal = f.hessian_diagonal(diagonal);
  std::vector<numbers> columns;
  for (std::size_t j = 0; j < n; ++j) {
    numbers unit(n);
    unit[j] = 1;
    numbers h(n);
    gradient_at(f, w);
    f.hessian_vector(unit, h);
    const auto up = gradient_at(f, moved(j, step));
    const auto down = gradient_at(f, moved(j, -step));
    for (std::size_t k = 0; k < n; ++k)
      EXPECT_NEAR(h[k], (up[k] - down[k]) / (2 * step), 1e-5 * (1 + std::abs(h[k]))) << j << " " << k;
    if (has_diagonal) {
      EXPECT_NEAR(diagonal[j], h[j], 1e-9 * (1 + h[j]));
    }
    columns.push_back(h);
  }
  if (dynamic_cast<linear_objective*>(&f) == nullptr) return;
  numbers packed(n * (n + 1) / 2);
  gradient_at(f, w);
  f.hessian(packed);
  std::size_t at = 0;
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t k = j; k < n; ++k) EXPECT_NEAR(packed[at++], columns[j][k], 1e-9 * (1 + std::abs(columns[j][k])));
  }
}

TEST(OptimLosses, DerivativesOfEveryLossAreThoseOfItsValue) {
  const auto sign = [](double x) { return x > 0 ? 1.0 : -1.0; };
  const auto number = [](double x) { return 3 * x; };
  struct known {
    const char* name;
    loss_ptr of;
    bool classes;
  };
  const std::vector<known> losses{{"log", log_loss(), true},
                                  {"smooth hinge", smooth_hinge_loss(), true},
                                  {"squared hinge", squared_hinge_loss(), true},
                                  {"perceptron", perceptron_loss(), true},
                                  {"squared", squared_loss(), false},
                                  {"epsilon-insensitive", epsilon_insensitive_loss(0.3), false},
                                  {"huber", huber_loss(0.7), false}};
  for (const auto& l : losses) {
    for (const bool dense : {false, true}) {
      const auto rows = random_rows(
          dense, 40, 5, l.classes ? std::function<double(double)>(sign) : std::function<double(double)>(number));
      for (int variant = 0; variant < 4; ++variant) {
        linear_options options;
        options.intercept = variant != 0;
        if (variant >= 2) options.row_weights = numbers(40, 0.5);
        if (variant >= 2) options.row_weights[3] = 4;
        if (variant % 2 == 1)
          options.standardize =
              standardization(Comm(std::make_shared<single_comm>()), rows, 5, options.row_weights, options.intercept);
        linear_objective f(rows, l.of, options);
        expect_derivatives(f, std::string(l.name) + (dense ? " dense " : " sparse ") + std::to_string(variant));
      }
    }
  }
}

TEST(OptimLosses, DerivativesOfSoftmaxAreThoseOfItsValue) {
  const auto label = [](double x) { return x < -0.4 ? 0.0 : x < 0.4 ? 1.0 : 2.0; };
  for (const bool dense : {false, true}) {
    const auto rows = random_rows(dense, 30, 4, label);
    for (int variant = 0; variant < 3; ++variant) {
      linear_options options;
      options.intercept = variant > 0;
      if (variant == 2) {
        options.row_weights = random_vector(30, 9);
        for (auto& x : options.row_weights) x = std::abs(x);
      }
      if (variant != 1)
        options.standardize =
            standardization(Comm(std::make_shared<single_comm>()), rows, 4, options.row_weights, options.intercept);
      softmax_objective f(rows, 3, options);
      expect_derivatives(f, (dense ? "dense " : "sparse ") + std::to_string(variant));
    }
  }
}

TEST(OptimLosses, TheLogLossIsFiniteForAnyMargin) {
  const numbers margin{1e4, -1e4, 1e308, -1e308, 0};
  const numbers label(5, 1.0);
  numbers slope(5);
  numbers curvature(5);
  const double sum = log_loss()->derivatives(margin, label, {}, slope, curvature);
  EXPECT_NEAR(sum / (1e4 + 1e308 + std::log(2.0)), 1, 1e-12);
  EXPECT_EQ(slope, (numbers{-0.0, -1, -0.0, -1, -0.5}));
  EXPECT_EQ(curvature, (numbers{0, 0, 0, 0, 0.25}));
}

TEST(OptimLosses, StandardizedFeaturesHaveMeanZeroAndDeviationOne) {
  const auto rows = random_rows(false, 50, 4, [](double x) { return x; });
  const standardization s(Comm(std::make_shared<single_comm>()), rows, 4, {}, true);
  linear_options options;
  options.intercept = true;
  options.standardize = s;
  const linear_objective f(rows, squared_loss(), options);
  for (std::size_t j = 0; j < 4; ++j) {
    numbers unit(5);
    unit[1 + j] = 1;
    double sum = 0;
    double square = 0;
    for (const double m : f.margins(unit)) {
      sum += m;
      square += m * m;
    }
    EXPECT_NEAR(sum, 0, 1e-10);
    EXPECT_NEAR(square, j == 3 ? 0 : 50, 1e-8);  // the last one is constant
  }
  EXPECT_THROW(linear_objective(rows, squared_loss(), {.standardize = s}), error);  // centered without an intercept
}

TEST(OptimLosses, WrongRowsAreRefused) {
  const auto rows = random_rows(false, 3, 2, [](double) { return 1.0; });
  EXPECT_THROW(linear_objective(rows, log_loss(), {.columns = 1}), error);
  EXPECT_THROW(linear_objective(rows, log_loss(), {.row_weights = {1, 2}}), error);
  EXPECT_THROW(linear_objective(rows, log_loss(), {.row_weights = {1, 2, -1}}), error);
  EXPECT_THROW(softmax_objective(rows, 1, {}), error);
  auto labels = rows;
  labels.label = {0, 1, 3};
  EXPECT_THROW(softmax_objective(labels, 3, {}), error);
  labels.label = {0, 1, 0.5};
  EXPECT_THROW(softmax_objective(labels, 3, {}), error);
  EXPECT_THROW((void)huber_loss(0), config_error);
  EXPECT_THROW((void)epsilon_insensitive_loss(-1), config_error);
}

// Rows stay intact and within their run of 2,048, where they are sorted by length.
TEST(OptimLosses, GroupingEqualRowsOnlyMovesThem) {
  sample_rows rows;
  counter_random random(4);
  for (std::size_t i = 0; i < 5000; ++i) {
    const std::size_t count = random.below(9);
    for (std::size_t j = 0; j < count; ++j) {
      rows.column.push_back(static_cast<std::uint32_t>(j));
      rows.value.push_back(static_cast<double>(i));
    }
    rows.row_begin.push_back(rows.column.size());
    rows.label.push_back(static_cast<double>(i));
  }
  rows.columns = 8;
  rows.row_count = 5000;
  const auto before = rows;
  group_equal_rows(rows);
  std::vector<int> seen(5000);
  for (std::size_t i = 0; i < 5000; ++i) {
    const auto was = static_cast<std::size_t>(rows.label[i]);
    ++seen[was];
    EXPECT_EQ(was / 2048, i / 2048);
    ASSERT_TRUE(std::ranges::equal(rows.values_of(i), before.values_of(was)));
    ASSERT_TRUE(std::ranges::equal(rows.columns_of(i), before.columns_of(was)));
    if (i % 2048 != 0) {
      EXPECT_LE(rows.values_of(i - 1).size(), rows.values_of(i).size());
    }
  }
  EXPECT_EQ(seen, std::vector<int>(5000, 1));
}

TEST(OptimScales, ASampleOfTheRowsIsTheSameForAnyNumberOfWorkers) {
  // A column of zeros on the second half of the rows must not make their worker leave the sample.
  constexpr std::size_t n = 20000;
  auto rows = random_rows(true, n, 3, [](double x) { return x > 0 ? 1.0 : 0.0; });
  rows.rows_total = n;
  for (std::size_t i = n / 2; i < n; ++i) rows.value[i * 3 + 2] = 0;
  const auto part = [&](std::size_t begin, std::size_t end) {
    sample_rows some;
    some.dense = true;
    some.columns = 3;
    some.first_row = begin;
    some.rows_total = n;
    some.row_count = end - begin;
    some.value.assign(rows.value.begin() + static_cast<std::ptrdiff_t>(begin * 3),
                      rows.value.begin() + static_cast<std::ptrdiff_t>(end * 3));
    some.label.assign(rows.label.begin() + static_cast<std::ptrdiff_t>(begin),
                      rows.label.begin() + static_cast<std::ptrdiff_t>(end));
    return some;
  };
  const auto check = [&](auto&& make) {
    const auto scale_of = [&](std::initializer_list<std::pair<std::size_t, std::size_t>> workers) {
      numbers both;
      for (const auto& [begin, end] : workers) {
        const auto own = part(begin, end);
        auto f = make(own);
        both.resize(2 * f.dimension());
        EXPECT_TRUE(
            f.sampled_curvature_scale(std::span(both).first(f.dimension()), std::span(both).subspan(f.dimension())));
      }
      return both;
    };
    const auto alone = scale_of({{0, n}});
    EXPECT_EQ(alone[alone.size() / 2], n / 16);
    const auto three = scale_of({{0, n / 2}, {n / 2, n - 5000}, {n - 5000, n}});
    ASSERT_EQ(three.size(), alone.size());
    for (std::size_t j = 0; j < alone.size(); ++j) EXPECT_NEAR(three[j], alone[j], 1e-9 * alone[j]) << j;
  };
  check([](const sample_rows& own) { return linear_objective(own, log_loss(), {.intercept = true}); });
  check([](const sample_rows& own) { return softmax_objective(own, 2, {.intercept = true}); });
  rows.rows_total = 100;
  linear_objective few(rows, log_loss(), {});
  numbers unused(2 * few.dimension());
  EXPECT_FALSE(few.sampled_curvature_scale(unused, unused));
}

TEST(OptimScales, AColumnThatTheSampleHasOnlyAsZerosIsMeasuredByAllRows) {
  auto rows = random_rows(true, 20000, 3, [](double x) { return x > 0.2 ? 1.0 : -1.0; });
  rows.rows_total = rows.rows();
  for (std::size_t i = 0; i < rows.rows(); ++i) rows.value[i * 3 + 2] *= i % 16 == 1 ? 1 : 0;
  auto scaled = rows;
  for (std::size_t i = 0; i < rows.rows(); ++i) scaled.value[i * 3 + 2] *= 0x1p30;
  settings s;
  s.how = method::lbfgs;
  s.max_steps = 4;
  linear_objective f(rows, log_loss(), {});
  linear_objective g(scaled, log_loss(), {});
  const auto wanted = minimize(f, s);
  const auto found = minimize(g, s);
  EXPECT_NEAR(found.value, wanted.value, 1e-9 * wanted.value);
  for (std::size_t j = 0; j < 3; ++j)
    EXPECT_NEAR(found.w[j] * (j == 2 ? 0x1p30 : 1), wanted.w[j], 1e-6 * (1 + std::abs(wanted.w[j])));
}

// ---- invariance

TEST(OptimScales, EveryMethodTakesTheSameStepsWhateverTheScalesOfTheColumns) {
  const auto label = [](double x) { return x > 0.3 ? 1.0 : -1.0; };
  const auto plain = random_rows(true, 200, 4, label);
  // Powers of two: products are the same to the last bit.
  const numbers factor{0x1p-40, 1, 0x1p20, 0x1p40};
  auto scaled = plain;
  for (std::size_t k = 0; k < scaled.value.size(); ++k) scaled.value[k] *= factor[k % 4];
  for (const auto m : {method::gd, method::lbfgs, method::owlqn, method::newton, method::cg}) {
    SCOPED_TRACE(name_of(m));
    settings s;
    s.how = m;
    s.max_steps = 15;
    s.gradient_tolerance = 1e-9;
    linear_objective f(plain, log_loss(), {});
    linear_objective g(scaled, log_loss(), {});
    const auto wanted = minimize(f, s);
    const auto found = minimize(g, s);
    EXPECT_EQ(found.steps, wanted.steps);
    EXPECT_EQ(found.why, wanted.why);
    EXPECT_NEAR(found.value, wanted.value, 1e-12 * wanted.value);
    EXPECT_NEAR(found.gradient_norm, wanted.gradient_norm, 1e-6 * wanted.gradient_norm + 1e-12);
    for (std::size_t j = 0; j < 4; ++j)
      EXPECT_NEAR(found.w[j] * factor[j], wanted.w[j], 1e-7 * (1 + std::abs(wanted.w[j])));
  }
}

TEST(OptimScales, ARunDoesNotEndBeforeAColumnNextToAMuchLargerOneIsFitted) {
  const auto plain = random_rows(true, 400, 3, [](double x) { return x > 0 ? 1.0 : -1.0; });
  auto rows = plain;
  for (std::size_t k = 0; k < rows.value.size(); k += 3) rows.value[k] *= 1e6;
  settings s;
  s.how = method::newton;
  linear_objective whole(plain, squared_hinge_loss(), {});
  const double least = minimize(whole, s).value;
  for (const auto m : {method::lbfgs, method::owlqn, method::newton, method::cg}) {
    s.how = m;
    linear_objective f(rows, squared_hinge_loss(), {});
    const auto found = minimize(f, s);
    EXPECT_NEAR(found.value, least, 1e-9 * least) << name_of(m);
  }
}

TEST(OptimScales, TheGreatestCurvatureOfALossIsReached) {
  for (const auto& [loss, at] : {std::pair{log_loss(), 0.0},
                                 {squared_hinge_loss(), 0.0},
                                 {smooth_hinge_loss(), 0.5},
                                 {squared_loss(), 0.0},
                                 {squared_epsilon_insensitive_loss(0.1), 0.0},
                                 {huber_loss(3), 0.0}}) {
    const numbers margin{at};
    const numbers label{1};
    numbers slope(1);
    numbers curvature(1);
    (void)loss->derivatives(margin, label, {}, slope, curvature);
    EXPECT_EQ(curvature[0], loss->greatest_curvature());
  }
}

TEST(OptimScales, ThePenaltyOfACombinationIsThatOfAnInterceptOfShiftedColumns) {
  const auto plain = random_rows(true, 200, 3, [](double x) { return x > 0.3 ? 1.0 : -1.0; });
  const numbers shift{4, -7, 2};
  auto shifted = plain;
  for (std::size_t k = 0; k < shifted.value.size(); ++k) shifted.value[k] -= shift[k % 3];
  for (const auto m : {method::lbfgs, method::newton, method::cg, method::gd}) {
    SCOPED_TRACE(name_of(m));
    settings s;
    s.how = m;
    s.max_steps = 20000;
    s.gradient_tolerance = 1e-10;
    s.penalty.l2 = 0.05;
    linear_objective f(plain, log_loss(), {.intercept = true});
    const auto wanted = minimize(f, s);
    linear_objective g(shifted, log_loss(), {.intercept = true});
    s.penalty.free = {0};
    s.penalty.combination = {1, -shift[0], -shift[1], -shift[2]};
    const auto found = minimize(g, s);
    EXPECT_NEAR(found.value, wanted.value, 1e-10);
    for (std::size_t j = 1; j < 4; ++j) EXPECT_NEAR(found.w[j], wanted.w[j], 1e-5);
  }
}

}  // namespace
}  // namespace paracel::optim
