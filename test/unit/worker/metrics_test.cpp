// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/metrics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace {

TEST(Metrics, AucCountsTiesHalf) {
  EXPECT_DOUBLE_EQ(paracel::auc(std::vector<double>{1, 2, 3, 4}, std::vector<double>{-1, -1, 1, 1}), 1.0);
  EXPECT_DOUBLE_EQ(paracel::auc(std::vector<double>{4, 3, 2, 1}, std::vector<double>{-1, -1, 1, 1}), 0.0);
  EXPECT_DOUBLE_EQ(paracel::auc(std::vector<double>{5, 5, 5, 5}, std::vector<double>{-1, 1, -1, 1}), 0.5);
  // Pairs (+,-): 2>1, 2=2, 3>1, 3>2.
  EXPECT_DOUBLE_EQ(paracel::auc(std::vector<double>{1, 2, 2, 3}, std::vector<double>{-1, -1, 1, 1}), 3.5 / 4);
  EXPECT_TRUE(std::isnan(paracel::auc(std::vector<double>{1, 2}, std::vector<double>{1, 1})));
  // By weights; rows of weight 0 do not count.
  const std::vector<double> margin{1, 2, 2, 3, 9};
  const std::vector<double> label{1, -1, 1, 1, -1};
  const std::vector<double> weight{1, 2, 2, 1, 0};
  EXPECT_DOUBLE_EQ(paracel::auc(margin, label, weight), (1.0 * 2 + 2.0 * 2 / 2) / (2 * 4));
  EXPECT_DOUBLE_EQ(paracel::accuracy(margin, label, weight), 4.0 / 6);
  EXPECT_DOUBLE_EQ(paracel::log_loss(std::vector<double>{0, 9}, std::vector<double>{1, -1}, std::vector<double>{3, 0}),
                   std::log(2));
}

TEST(Metrics, TheRootMeanSquaredErrorIsWeighted) {
  const std::vector<double> prediction{1, 2, 9};
  const std::vector<double> target{2, 4, 0};
  EXPECT_DOUBLE_EQ(paracel::rmse(prediction, target), std::sqrt((1.0 + 4 + 81) / 3));
  EXPECT_DOUBLE_EQ(paracel::rmse(prediction, target, std::vector<double>{3, 1, 0}), std::sqrt(7.0 / 4));
  EXPECT_TRUE(std::isnan(paracel::rmse({}, {})));
  EXPECT_THROW(paracel::rmse(prediction, std::vector<double>{1}), paracel::error);
}

TEST(Metrics, LossAndAccuracyDoNotOverflow) {
  EXPECT_DOUBLE_EQ(paracel::log_loss(std::vector<double>{-1e4, 1e4}, std::vector<double>{1, 1}), 5e3);
  EXPECT_DOUBLE_EQ(paracel::logistic(-1e4), 0.0);
  EXPECT_DOUBLE_EQ(paracel::logistic(1e4), 1.0);
  EXPECT_DOUBLE_EQ(paracel::accuracy(std::vector<double>{-2, 0, 3, 4}, std::vector<double>{-1, 1, 1, -1}), 0.75);
}

}  // namespace
