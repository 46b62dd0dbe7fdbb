// SPDX-License-Identifier: BSD-3-Clause
//
// Metrics: the file in which a run records them, and those of predictions.
#pragma once

#include <fstream>
#include <span>
#include <string>

namespace paracel {

/// <output>/metrics.jsonl: a JSON object in each line, which says how far the run is (doc/metrics.md). Programs usually
/// call paralg::report_metric. Thread-safety: none
class metrics_file {
 public:
  /// Whether it has been opened; also after an error.
  [[nodiscard]] bool is_open() const { return !path_.empty(); }
  /// `appends`: an earlier part of the run has begun it. Throws: error that names the file when it cannot be written.
  void open(const std::string& path, bool appends = false);
  /// Writes a line at once, so that it is there even if the process dies. If that fails, e.g. because the disk is full,
  /// says so on stderr once, and the run continues.
  void write(const std::string& json);

 private:
  std::string path_;
  std::ofstream out_;
};

// ---- binary classifiers: labels are -1 or +1; a margin is the real number whose sign is the prediction and whose
// logistic function is the probability of +1.

/// log(1 + exp(-x)) without overflow.
double logistic_loss(double x) noexcept;
/// 1 / (1 + exp(-x)) without overflow.
double logistic(double x) noexcept;

// With weights a row counts as often as its weight says, a pair as often as the product of its two; without: once.
// Throws: error when the lengths differ. Metrics of all workers' rows: each sends its rows to one, or, for means, their
// sums.

/// The fraction of rows whose margin has the sign of the label; a margin of 0 counts as +1. nan without rows.
double accuracy(std::span<const double> margin, std::span<const double> label, std::span<const double> weight = {});
/// Mean logistic loss. nan without rows.
double log_loss(std::span<const double> margin, std::span<const double> label, std::span<const double> weight = {});
/// Area under the ROC curve: the fraction of (+1, -1) pairs ranked correctly, a tie counting half.
/// nan unless both classes occur. Cost: O(n log n)
double auc(std::span<const double> margin, std::span<const double> label, std::span<const double> weight = {});

// ---- predictions of numbers

/// Root mean squared error. nan without rows.
double rmse(std::span<const double> prediction, std::span<const double> target, std::span<const double> weight = {});

}  // namespace paracel
