// SPDX-License-Identifier: BSD-3-Clause
#include "alg/logistic_regression/lr.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace {

using paracel::alg::lr_problem;

const char* const csv = "1,0.5,0,1\n-2,1,0,0\n0,0,3,1\n0.25,-1,2,0\n";
const char* const libsvm = "+1 1:1 2:0.5\n-1 1:-2 2:1\n+1 3:3\n-1 1:0.25 2:-1 3:2\n";

lr_problem problem(const char* text, bool bias, bool penalize_bias, double beta) {
  return lr_problem(paracel::parse_samples("f", text), 3, bias, penalize_bias, beta);
}

double value(const lr_problem& p, const std::vector<double>& theta) {
  std::vector<double> ignored(theta.size());
  return p.add_gradient(theta, ignored) + static_cast<double>(p.rows()) * p.penalty(theta);
}

TEST(LrProblem, LossIsTheFormulaWrittenOut) {
  const auto p = problem(csv, true, true, 0.1);
  const std::vector<double> theta{0.3, -1, 2, 0.5};
  double sum = 0;
  const double x[4][3] = {{1, .5, 0}, {-2, 1, 0}, {0, 0, 3}, {.25, -1, 2}};
  const double y[4] = {1, -1, 1, -1};
  for (int i = 0; i < 4; ++i) {
    sum += std::log(1 + std::exp(-y[i] * (theta[0] + theta[1] * x[i][0] + theta[2] * x[i][1] + theta[3] * x[i][2])));
  }
  std::vector<double> gradient(4);
  EXPECT_NEAR(p.add_gradient(theta, gradient), sum, 1e-14);
  EXPECT_NEAR(p.penalty(theta), 0.1 * (0.09 + 1 + 4 + 0.25), 1e-15);
}

TEST(LrProblem, GradientIsTheSlopeOfTheLoss) {
  for (const auto* text : {csv, libsvm}) {
    for (const bool penalize : {true, false}) {
      const auto p = problem(text, true, penalize, 0.1);
      const std::vector<double> theta{0.3, -1, 2, 0.5};
      std::vector<double> gradient(4);
      p.add_gradient(theta, gradient);
      p.add_penalty_gradient(theta, static_cast<double>(p.rows()), gradient);
      for (std::size_t j = 0; j < theta.size(); ++j) {
        auto up = theta;
        auto down = theta;
        up[j] += 1e-6;
        down[j] -= 1e-6;
        EXPECT_NEAR(gradient[j], (value(p, up) - value(p, down)) / 2e-6, 1e-8) << j;
      }
    }
  }
}

TEST(LrProblem, DenseAndSparseRowsGiveTheSame) {
  const auto dense = problem(csv, true, true, 0.1);
  const auto sparse = problem(libsvm, true, true, 0.1);
  const std::vector<double> theta{0.3, -1, 2, 0.5};
  std::vector<double> g(4);
  std::vector<double> h(4);
  EXPECT_NEAR(dense.add_gradient(theta, g), sparse.add_gradient(theta, h), 1e-14);
  for (std::size_t j = 0; j < 4; ++j) EXPECT_NEAR(g[j], h[j], 1e-14);
}

TEST(LrProblem, WithoutBiasThereIsNoFirstCoordinate) {
  const auto p = problem(csv, false, true, 0.1);
  EXPECT_EQ(p.dimension(), 3U);
  EXPECT_DOUBLE_EQ(p.margin(0, std::vector<double>{2, 4, 8}), 4.0);
  EXPECT_DOUBLE_EQ(problem(csv, true, true, 0).margin(0, std::vector<double>{1, 2, 4, 8}), 5.0);
}

TEST(LrProblem, AFreeBiasIsNotPenalized) {
  const std::vector<double> theta{5, 1, 1, 1};
  EXPECT_DOUBLE_EQ(problem(csv, true, false, 2).penalty(theta), 6);
  EXPECT_DOUBLE_EQ(problem(csv, true, true, 2).penalty(theta), 56);
}

TEST(LrProblem, AStepAlongARowIsTheGradientOfThatRowAlone) {
  for (const auto* text : {csv, libsvm}) {
    for (const bool penalize : {true, false}) {
      const auto p = problem(text, true, penalize, 0.1);
      const std::vector<double> theta{0.3, -1, 2, 0.5};
      std::vector<double> total(4);
      std::vector<double> delta(4);
      for (std::size_t i = 0; i < p.rows(); ++i) {
        p.row_step(i, 0.25, theta, delta);
        for (std::size_t j = 0; j < 4; ++j) total[j] += delta[j];
      }
      std::vector<double> gradient(4);
      p.add_gradient(theta, gradient);
      p.add_penalty_gradient(theta, static_cast<double>(p.rows()), gradient);
      for (std::size_t j = 0; j < 4; ++j) EXPECT_NEAR(total[j], -0.25 * gradient[j], 1e-14);
    }
  }
}

TEST(LrProblem, StepsInARowAreStepsOneByOne) {
  for (const auto* text : {csv, libsvm}) {
    for (const bool penalize : {true, false}) {
      // 2 alpha beta = 0.05, 1 (the common factor becomes 0) and 3 (it changes its sign and grows).
      for (const double beta : {0.1, 2.0, 6.0}) {
        const auto p = problem(text, true, penalize, beta);
        std::vector<std::size_t> order;
        for (int k = 0; k < 50; ++k) order.push_back(static_cast<std::size_t>(k * 7 % 4));
        std::vector<double> together{0.3, -1, 2, 0.5};
        auto one_by_one = together;
        p.row_steps(order, 0.25, together);
        std::vector<double> delta(4);
        for (const auto i : order) {
          p.row_step(i, 0.25, one_by_one, delta);
          for (std::size_t j = 0; j < 4; ++j) one_by_one[j] += delta[j];
        }
        for (std::size_t j = 0; j < 4; ++j) {
          EXPECT_NEAR(together[j], one_by_one[j], 1e-10 * (1 + std::abs(one_by_one[j]))) << beta << " " << j;
        }
      }
    }
  }
}

TEST(LrProblem, LongDenseRowsAddUpEveryFeature) {
  for (std::size_t k = 1; k < 40; ++k) {
    std::string line;
    for (std::size_t j = 1; j <= k; ++j) line += std::to_string(j) + ",";
    const lr_problem p(paracel::parse_samples("f", line + "1\n"), k, false, true, 0);
    EXPECT_DOUBLE_EQ(p.margin(0, std::vector<double>(k, 1.0)), static_cast<double>(k * (k + 1) / 2));
  }
}

}  // namespace
