// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/metrics.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "paracel/error.hpp"

namespace paracel {

namespace {

void check_lengths(std::span<const double> margin, std::span<const double> label, std::span<const double> weight) {
  if (margin.size() != label.size()) throw error("metrics: want one prediction per label");
  if (!weight.empty() && weight.size() != label.size()) throw error("metrics: want one weight per label, or none");
}

/// The sum of term(i, weight of i) over those whose weight is not 0, divided by the sum of the weights.
template <class F>
double weighted_mean(std::size_t n, std::span<const double> weight, const F& term) {
  double sum = 0;
  double all = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double w = weight.empty() ? 1 : weight[i];
    all += w;
    if (w != 0) sum += term(i, w);
  }
  return sum / all;
}

}  // namespace

void metrics_file::open(const std::string& path, bool appends) {
  out_.open(path, appends ? std::ios::app : std::ios::trunc);
  if (!out_) throw error(path + ": cannot be written: " + std::strerror(errno));
  path_ = path;
}

void metrics_file::write(const std::string& json) {
  if (!out_.is_open() || out_ << json << std::endl) return;
  std::fprintf(stderr, "%s: cannot be written: %s; the run continues\n", path_.c_str(), std::strerror(errno));
  out_.close();
}

double logistic_loss(double x) noexcept { return x > 0 ? std::log1p(std::exp(-x)) : -x + std::log1p(std::exp(x)); }

double logistic(double x) noexcept {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const double e = std::exp(x);
  return e / (1 + e);
}

double accuracy(std::span<const double> margin, std::span<const double> label, std::span<const double> weight) {
  check_lengths(margin, label, weight);
  return weighted_mean(margin.size(), weight,
                       [&](std::size_t i, double w) { return (margin[i] >= 0) == (label[i] > 0) ? w : 0; });
}

double log_loss(std::span<const double> margin, std::span<const double> label, std::span<const double> weight) {
  check_lengths(margin, label, weight);
  return weighted_mean(margin.size(), weight,
                       [&](std::size_t i, double w) { return w * logistic_loss(label[i] * margin[i]); });
}

double auc(std::span<const double> margin, std::span<const double> label, std::span<const double> weight) {
  check_lengths(margin, label, weight);
  std::vector<std::size_t> order(margin.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return margin[a] < margin[b]; });
  // Mann-Whitney: the weight of the pairs whose +1 has the greater margin, and half of those that are tied.
  double positives = 0;
  double negatives = 0;
  double pairs = 0;
  for (std::size_t i = 0; i < order.size();) {
    std::size_t j = i;
    double tied[2] = {0, 0};  // by label
    for (; j < order.size() && margin[order[j]] == margin[order[i]]; ++j)
      tied[label[order[j]] > 0 ? 1 : 0] += weight.empty() ? 1 : weight[order[j]];
    if (j == i) return std::numeric_limits<double>::quiet_NaN();  // a NaN margin
    pairs += tied[1] * (negatives + tied[0] / 2);
    positives += tied[1];
    negatives += tied[0];
    i = j;
  }
  if (positives == 0 || negatives == 0) return std::numeric_limits<double>::quiet_NaN();
  return pairs / (positives * negatives);
}

double rmse(std::span<const double> prediction, std::span<const double> target, std::span<const double> weight) {
  check_lengths(prediction, target, weight);
  return std::sqrt(weighted_mean(target.size(), weight, [&](std::size_t i, double w) {
    return w * (prediction[i] - target[i]) * (prediction[i] - target[i]);
  }));
}

}  // namespace paracel
