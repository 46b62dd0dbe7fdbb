// SPDX-License-Identifier: BSD-3-Clause
//
// Metrics of binary classifiers. Labels are -1 or +1; a margin is the real number whose sign is the prediction and
// whose logistic function is the probability of +1.
#pragma once

#include <span>

namespace paracel {

/// log(1 + exp(-x)) without overflow.
double logistic_loss(double x) noexcept;
/// 1 / (1 + exp(-x)) without overflow.
double logistic(double x) noexcept;

// With weights a row counts as often as its weight says, a pair as often as the product of its two; without: once.

/// Accuracy: the fraction of rows whose margin has the sign of the label; a margin of 0 counts as +1. nan without rows.
double accuracy(std::span<const double> margin, std::span<const double> label, std::span<const double> weight = {});
/// Mean logistic loss. nan without rows.
double log_loss(std::span<const double> margin, std::span<const double> label, std::span<const double> weight = {});
/// Area under the ROC curve: the fraction of (+1, -1) pairs ranked correctly, a tie counting half.
/// nan unless both classes occur. Cost: O(n log n)
double auc(std::span<const double> margin, std::span<const double> label, std::span<const double> weight = {});

}  // namespace paracel
