// SPDX-License-Identifier: BSD-3-Clause
//
// Trees keep features as floats, 24 bits. Of a column whose values are far from 0 for their spread (times of day as
// seconds since 1970 and fractions, prices with an offset) few of these bits are left, or none. Such a column, found
// when the floats have been loaded, is loaded once more as doubles, and the middle of its range is subtracted before
// they are rounded. Splits are invariant to this; the model stores the offsets. Other columns stay as they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/samples.hpp>

#include "alg/common/output/model_file.hpp"

namespace paracel::alg {

/// Thread-safety: const-concurrent
class column_offsets {
 public:
  /// The columns of these rows of floats that need an offset, or that are constant in floats; categories aside. Warns
  /// of numbers beyond the range of floats. A collective.
  [[nodiscard]] static std::vector<std::uint32_t> candidates(const Comm& comm, const sample_rows& rows);
  /// Chooses the offsets of such columns, given the same rows as doubles. A collective.
  void choose(const Comm& comm, const sample_rows& exact, const std::vector<std::uint32_t>& columns);
  /// Whether there is none: then rows are loaded as floats.
  [[nodiscard]] bool empty() const noexcept { return offset_.empty(); }
  [[nodiscard]] double of(std::size_t column) const noexcept { return empty() ? 0 : offset_[column]; }
  /// Columns after those of the model that was read have none.
  void widen(std::size_t columns) {
    if (!empty()) offset_.resize(columns);
  }
  /// Rows of doubles become dense rows of floats, less the offsets.
  void apply(sample_rows& rows) const;
  /// The array "offset" of a model, a number a column, unless empty.
  void write(model_writer& to) const;
  /// Throws: data_error when their number is not that of the columns.
  void read(const model_reader& from, std::size_t columns, const std::string& where);

 private:
  std::vector<double> offset_;  // by column
};

}  // namespace paracel::alg
