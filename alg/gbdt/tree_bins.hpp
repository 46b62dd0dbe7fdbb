// SPDX-License-Identifier: BSD-3-Clause
//
// Features as bins of one byte. The edges are exact quantiles of all workers' values: a function of the values alone,
// neither of their order nor of the number of workers.
//
// A feature of at most `most` distinct values has a bin for each. Of another one each worker sorts its values; the
// quantiles are found by bisection on the bits of a float, one sum over the workers a bit for many features at once,
// so that nothing travels that grows with the rows. A value that fills several quantiles gets a bin of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <paracel/collectives.hpp>
#include <paracel/samples.hpp>

namespace paracel::alg {

/// Bins of a feature. Number: bin b has threshold[b - 1] <= x < threshold[b]. Categorical: bin b is category[b], and
/// one more bin is all others, if there are more categories than bins.
struct feature_bins {
  bool categorical = false;
  bool missing = false;  ///< a training row has none: the last bin is for these
  bool others = false;
  std::vector<float> threshold;
  std::vector<std::uint32_t> category;  ///< the most frequent ones, ascending

  /// Of values that are not missing.
  [[nodiscard]] std::size_t values() const noexcept {
    return categorical ? category.size() + (others ? 1 : 0) : threshold.size() + 1;
  }
  [[nodiscard]] std::size_t bins() const noexcept { return values() + (missing ? 1 : 0); }
  /// A missing value where training had none: as one that is less than all others.
  [[nodiscard]] std::uint8_t bin_of(float x) const noexcept;
};

/// Rows as bins: one row after the other, for adding rows up, and one column after the other, for parting them by one
/// feature.
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
