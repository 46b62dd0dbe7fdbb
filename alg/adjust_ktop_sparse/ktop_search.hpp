// SPDX-License-Identifier: BSD-3-Clause
//
// The number of neighbours that predicts a row best.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace paracel::alg {

/// A neighbour of a row: its similarity and its own entries, columns ascending.
struct rated_neighbour {
  double similarity = 0;
  std::span<const std::uint64_t> columns;
  std::span<const double> values;
};

/// The result of ktop_search for a row.
struct ktop_choice {
  std::size_t k = 0;      ///< the best number of neighbours
  double error = 0;       ///< squared error with k neighbours, summed over the row's entries
  double base_error = 0;  ///< with all neighbours
};

/// Predicts, for each k from `lower` to the number of neighbours, every entry of a row by
///
///     sum of s_v r_v,i / sum of s_v      over the first k neighbours v that have column i
///
/// (the row's mean if there is none, or if the similarities sum to 0), and returns the k with the least squared error,
/// the smallest of equal ones. A list shorter than `lower` is used completely.
/// Thread-safety: none (memory is reused between calls).
/// Cost: O(entries of the row) for each neighbour, plus the entries of the neighbours.
class ktop_search {
 public:
  ktop_choice operator()(std::span<const std::uint64_t> columns, std::span<const double> values,
                         std::span<const rated_neighbour> neighbours, std::size_t lower) {
    double mean = 0;
    for (const auto v : values) mean += v;
    if (!values.empty()) mean /= static_cast<double>(values.size());
    above_.assign(values.size(), 0);
    below_.assign(values.size(), 0);
    squares_.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) squares_[i] = (values[i] - mean) * (values[i] - mean);

    ktop_choice best;
    const auto first = std::min(std::max<std::size_t>(lower, 1), neighbours.size());
    if (first == 0) best.error = best.base_error = sum_of_squares();
    for (std::size_t k = 1; k <= neighbours.size(); ++k) {
      add(columns, values, neighbours[k - 1], mean);
      if (k < first) continue;
      const double error = sum_of_squares();
      if (k == first || error < best.error) {
        best.k = k;
        best.error = error;
      }
      best.base_error = error;
    }
    return best;
  }

 private:
  void add(std::span<const std::uint64_t> columns, std::span<const double> values, const rated_neighbour& v,
           double mean) {
    std::size_t i = 0;
    for (std::size_t j = 0; i < columns.size() && j < v.columns.size();) {
      if (columns[i] < v.columns[j]) {
        ++i;
      } else if (v.columns[j] < columns[i]) {
        ++j;
      } else {
        above_[i] += v.similarity * v.values[j];
        below_[i] += v.similarity;
        const double error = values[i] - (below_[i] != 0 ? above_[i] / below_[i] : mean);
        squares_[i] = error * error;
        ++i;
        ++j;
      }
    }
  }
  /// Summed again in the order of the columns, so that equal predictions of two k have bit-identical errors.
  [[nodiscard]] double sum_of_squares() const {
    double sum = 0;
    for (const auto s : squares_) sum += s;
    return sum;
  }

  std::vector<double> above_;
  std::vector<double> below_;
  std::vector<double> squares_;
};

}  // namespace paracel::alg
