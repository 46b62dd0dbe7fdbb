// SPDX-License-Identifier: BSD-3-Clause
//
// Losses with kinks and their smoothed forms, and rows that are held out.
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "alg/common/solvers/margin_solver.hpp"
#include "paracel/optim.hpp"
#include "paracel/optim_losses.hpp"
#include "paracel/samples.hpp"

namespace {

using namespace paracel::optim;
using paracel::alg::smoothed_epsilon_insensitive;
using paracel::alg::smoothed_hinge;

struct at_margin {
  double value = 0;
  double slope = 0;
  double curvature = 0;
};

at_margin derivatives(const loss_ptr& of, double margin, double label, double weight = 1) {
  at_margin d;
  d.value = of->derivatives(std::span(&margin, 1), std::span(&label, 1), std::span(&weight, 1), std::span(&d.slope, 1),
                            std::span(&d.curvature, 1));
  return d;
}

TEST(OptimKinks, SlopesAndCurvaturesAreThoseOfTheValues) {
  constexpr double h = 1e-5;
  for (const auto& of : {smoothed_hinge(0.5), smoothed_hinge(1e-2), squared_hinge_loss(),
                         smoothed_epsilon_insensitive(0.3, 0.2), smoothed_epsilon_insensitive(0.1, 0.7),
                         smoothed_epsilon_insensitive(0, 1), squared_epsilon_insensitive_loss(0.3)}) {
    for (double m = -3.0137; m < 3; m += 0.0773) {
      for (const double y : {-1.0, 1.0}) {
        const auto d = derivatives(of, m, y, 3);
        const auto before = derivatives(of, m - h, y, 3);
        const auto after = derivatives(of, m + h, y, 3);
        // Not across a kink of the slope.
        const bool smooth = std::abs(after.curvature - before.curvature) < 1;
        EXPECT_NEAR(d.slope, (after.value - before.value) / (2 * h), 1e-4);
        if (smooth) {
          EXPECT_NEAR(d.curvature, (after.slope - before.slope) / (2 * h), 1e-3);
        }
      }
    }
  }
}

TEST(OptimKinks, SmoothedLossesAreAtMostMuLogTwoAbove) {
  for (const double mu : {1.0, 0.1, 1e-3}) {
    for (double m = -3; m < 3; m += 0.0501) {
      const double hinge = derivatives(smoothed_hinge(mu), m, 1).value - derivatives(hinge_loss(), m, 1).value;
      EXPECT_GE(hinge, -1e-15);
      EXPECT_LE(hinge, mu * std::log(2) + 1e-15);
      const double tube = derivatives(smoothed_epsilon_insensitive(0.2, mu), m, 1).value -
                          derivatives(epsilon_insensitive_loss(0.2), m, 1).value;
      EXPECT_GE(tube, -1e-15);
      EXPECT_LE(tube, 2 * mu * std::log(2) + 1e-15);  // both sides, where mu is greater than epsilon
    }
  }
  EXPECT_FALSE(hinge_loss()->has_curvature());
  EXPECT_THROW((void)squared_epsilon_insensitive_loss(-1), paracel::config_error);
}

TEST(OptimKinks, ARunEndsWhenTheLossOfTheHeldOutRowsDoesNotFall) {
  // (w - 4)^2 / 2 is minimised; w = 1 is best for the row that is held out.
  paracel::sample_rows rows;
  rows.columns = 1;
  rows.row_count = 1;
  rows.row_begin = {0, 1};
  rows.column = {0};
  rows.value = {1};
  rows.label = {4};
  linear_objective f(rows, squared_loss(), {});
  settings s;
  s.how = method::sgd;
  s.rate = 0.01;
  s.decay = 0;
  s.max_steps = 1000;
  s.objective_tolerance = 0;
  s.held_out.patience = 5;
  s.held_out.measure = [](std::span<const double> w, std::span<double> sums) {
    sums[0] += 2;
    sums[1] += 2 * (w[0] - 1) * (w[0] - 1);
    sums[2] += w[0] < 1 ? 2 : 0;
  };
  std::vector<double> losses;
  s.watch = [&](const progress& now) { losses.push_back(now.validation_loss); };
  const auto stopped = minimize(f, s);
  EXPECT_EQ(stopped.why, ending::validation);
  EXPECT_EQ(losses.size(), static_cast<std::size_t>(stopped.steps));
  EXPECT_NEAR(stopped.best.w[0], 1, 0.05);
  EXPECT_EQ(stopped.best.steps_since, 5);
  EXPECT_EQ(stopped.best.loss, losses[losses.size() - 6]);
  EXPECT_GT(stopped.w[0], stopped.best.w[0]);
  // A second run continues the count.
  s.start = stopped.w;
  s.held_out.patience = 7;
  s.held_out.best = stopped.best;
  const auto more = minimize(f, s);
  EXPECT_EQ(more.steps, 2);
  EXPECT_EQ(more.best.w, stopped.best.w);
  s.held_out = {};
  EXPECT_EQ(minimize(f, s).why, ending::steps);
}

}  // namespace
