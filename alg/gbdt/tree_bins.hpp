// SPDX-License-Identifier: BSD-3-Clause
//
// Features as bins of one byte. The edges are exact quantiles of all workers' values: they depend on the values alone,
// neither on their order nor on the number of workers.
//
// A feature with at most `most` distinct values has a bin for each. For other features each worker sorts its values;
// the quantiles are found by bisection on the bits of a float, with one sum over the workers per bit for many features
// at once, so that traffic does not grow with the rows. A value that fills several quantiles gets its own bin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <paracel/collectives.hpp>
#include <paracel/samples.hpp>

namespace paracel::alg {

/// Bins of a feature. Number: bin b has threshold[b - 1] <= x < threshold[b]. Categorical: bin b is category[b]; if
/// there are more categories than bins, one more bin is for all others.
struct feature_bins {
  bool categorical = false;
  bool missing = false;  ///< some training rows have no value: the last bin is for these
  bool others = false;
  std::vector<float> threshold;
  std::vector<std::uint32_t> category;  ///< the most frequent ones, ascending

  /// Bins of values that are not missing.
  [[nodiscard]] std::size_t values() const noexcept {
    return categorical ? category.size() + (others ? 1 : 0) : threshold.size() + 1;
  }
  [[nodiscard]] std::size_t bins() const noexcept { return values() + (missing ? 1 : 0); }
  /// A missing value gets bin 0 if training had none.
  [[nodiscard]] std::uint8_t bin_of(float x) const noexcept;
};

/// Rows as bins: row by row, for summing rows, and column by column, for partitioning them by one feature.
struct binned_rows {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<std::uint8_t> bin;        ///< rows * columns
  std::vector<std::uint8_t> by_column;  ///< columns * rows

  [[nodiscard]] const std::uint8_t* row(std::size_t i) const noexcept { return bin.data() + i * columns; }
};

/// `rows`: of floats, dense. `most`: bins of a feature without the one for missing values, 2 to 255. Throws:
/// data_error. Blocks: a collective. Cost: for a numeric feature of many values 33 sums of `most` numbers.
std::vector<feature_bins> make_bins(collectives& all, const sample_rows& rows, std::size_t most);
/// The rows' bins. Not a collective.
binned_rows to_bins(const sample_rows& rows, const std::vector<feature_bins>& bins);

}  // namespace paracel::alg
