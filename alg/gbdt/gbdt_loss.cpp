// SPDX-License-Identifier: BSD-3-Clause
#include "gbdt_loss.hpp"

#include <algorithm>
#include <cmath>

#include <paracel/error.hpp>
#include <paracel/metrics.hpp>

#include "alg/common/output/run_log.hpp"
#include "tree_grower.hpp"

namespace paracel::alg {

namespace {

// Lower bound of probabilities.
constexpr double least_probability = 1e-15;
constexpr double greatest_size = 1e30;  // of targets and weights: leaves are floats, and squares are summed
constexpr double least_target = 1e-30;

}  // namespace

void check_sizes(collectives& all, std::span<const double> values, const std::string& what, const std::string& file) {
  const double most = greatest_value(all, values, what.c_str());
  if (most > 0 && most < least_target && what == "target")
    throw data_error(file + ": found only targets below 1e-30, want larger ones: leaves are single-precision numbers");
  if (most <= greatest_size) return;
  throw data_error(file + ": found a " + what + " of absolute value " + json_number(most) +
                   ", want at most 1e30: leaves are single-precision numbers");
}

double first_margin(collectives& all, boosting_loss loss, const labelled_rows& rows) {
  if (loss == boosting_loss::softmax || loss == boosting_loss::lambdamart) return 0;
  std::vector<double> part(rows.label.size());
  for (std::size_t i = 0; i < part.size(); ++i) part[i] = rows.weight_of(i) * rows.label[i];
  const double sum = exact_sum(all, part, rows.rows_total, "labels");
  for (std::size_t i = 0; i < part.size(); ++i) part[i] = rows.weight_of(i);
  const double weights = exact_sum(all, part, rows.rows_total, "weights");
  if (!(weights > 0)) throw data_error("found no row with a weight above 0");
  const double mean = sum / weights;
  if (loss == boosting_loss::squared) {
    // The rounding errors of the sum, which count if targets hardly differ.
    for (std::size_t i = 0; i < part.size(); ++i) part[i] = rows.weight_of(i) * (rows.label[i] - mean);
    return mean + exact_sum(all, part, rows.rows_total, "labels") / weights;
  }
  const double p = std::clamp(mean, 1e-6, 1 - 1e-6);
  return std::log(p / (1 - p));
}

void to_predictions(boosting_loss loss, std::span<double> margins, std::size_t outputs) {
  if (loss == boosting_loss::squared || loss == boosting_loss::lambdamart) return;
  if (loss == boosting_loss::log) {
    for (auto& m : margins) m = logistic(m);
    return;
  }
  for (std::size_t i = 0; i + outputs <= margins.size(); i += outputs) {
    const auto m = margins.subspan(i, outputs);
    const double most = *std::ranges::max_element(m);
    double sum = 0;
    for (auto& v : m) sum += v = std::exp(v - most);
    for (auto& v : m) v /= sum;
  }
}

void derivatives(boosting_loss loss, const labelled_rows& rows, std::span<const double> predictions,
                 std::size_t outputs, std::size_t k, std::span<double> first, std::span<double> second) {
  for (std::size_t i = 0; i < first.size(); ++i) {
    const double w = rows.weight_of(i);
    const double p = predictions[i * outputs + k];
    if (loss == boosting_loss::squared) {
      first[i] = w * (p - rows.label[i]);
      second[i] = w;
      continue;
    }
    const double y = loss == boosting_loss::log ? rows.label[i] : (rows.label[i] == static_cast<double>(k) ? 1.0 : 0.0);
    const double curvature = (loss == boosting_loss::log ? 1 : 2) * p * (1 - p);
    first[i] = w * (p - y);
    second[i] = w * std::max(curvature, least_curvature_of_loss);
  }
}

boosting_quality quality_of(collectives& all, boosting_loss loss, const labelled_rows& rows,
                            std::span<const double> predictions, std::size_t outputs) {
  std::vector<double> lost(rows.label.size());
  std::vector<double> right(rows.label.size());
  std::vector<double> weight(rows.label.size());
  for (std::size_t i = 0; i < lost.size(); ++i) {
    const double w = weight[i] = rows.weight_of(i);
    const auto p = predictions.subspan(i * outputs, outputs);
    if (loss == boosting_loss::squared) {
      lost[i] = w * (p[0] - rows.label[i]) * (p[0] - rows.label[i]);
      continue;
    }
    const auto y = static_cast<std::size_t>(rows.label[i]);
    const double of_label = loss == boosting_loss::softmax ? p[y] : (y == 1 ? p[0] : 1 - p[0]);
    const auto most = loss == boosting_loss::softmax ? static_cast<std::size_t>(std::ranges::max_element(p) - p.begin())
                                                     : static_cast<std::size_t>(p[0] >= 0.5 ? 1 : 0);
    lost[i] = -w * std::log(std::max(of_label, least_probability));
    right[i] = most == y ? w : 0;
  }
  const double total = exact_sum(all, weight, rows.rows_total, "weights");
  boosting_quality q;
  q.loss = exact_sum(all, lost, rows.rows_total, "loss") / total;
  q.accuracy = exact_sum(all, right, rows.rows_total, "accuracy") / total;
  return q;
}

}  // namespace paracel::alg
