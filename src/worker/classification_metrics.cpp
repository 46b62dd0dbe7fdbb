// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/classification_metrics.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

#include "paracel/error.hpp"

namespace paracel {

namespace {

void check_lengths(std::span<const double> margin, std::span<const double> label) {
  if (margin.size() != label.size()) throw error("metrics: want one margin per label");
}

}  // namespace

double logistic_loss(double x) noexcept { return x > 0 ? std::log1p(std::exp(-x)) : -x + std::log1p(std::exp(x)); }

double logistic(double x) noexcept {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const double e = std::exp(x);
  return e / (1 + e);
}

double accuracy(std::span<const double> margin, std::span<const double> label) {
  check_lengths(margin, label);
  if (margin.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::size_t right = 0;
  for (std::size_t i = 0; i < margin.size(); ++i) right += (margin[i] >= 0) == (label[i] > 0) ? 1U : 0U;
  return static_cast<double>(right) / static_cast<double>(margin.size());
}

double log_loss(std::span<const double> margin, std::span<const double> label) {
  check_lengths(margin, label);
  if (margin.empty()) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (std::size_t i = 0; i < margin.size(); ++i) sum += logistic_loss(label[i] * margin[i]);
  return sum / static_cast<double>(margin.size());
}

double auc(std::span<const double> margin, std::span<const double> label) {
  check_lengths(margin, label);
  std::vector<std::size_t> order(margin.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return margin[a] < margin[b]; });
  // Mann-Whitney: the sum of the ranks of +1, ties sharing their mean rank.
  double positives = 0;
  double rank_sum = 0;
  for (std::size_t i = 0; i < order.size();) {
    std::size_t j = i;
    double tied_positives = 0;
    while (j < order.size() && margin[order[j]] == margin[order[i]]) tied_positives += label[order[j++]] > 0 ? 1 : 0;
    if (j == i) return std::numeric_limits<double>::quiet_NaN();  // a NaN margin
    rank_sum += tied_positives * (static_cast<double>(i + j) + 1) / 2;
    positives += tied_positives;
    i = j;
  }
  const double negatives = static_cast<double>(order.size()) - positives;
  if (positives == 0 || negatives == 0) return std::numeric_limits<double>::quiet_NaN();
  return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives);
}

}  // namespace paracel
