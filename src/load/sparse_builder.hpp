// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "load/numbering.hpp"
#include "paracel/comm.hpp"
#include "paracel/sparse.hpp"

namespace paracel {

/// Rows with the numbers of their columns.
struct numbered_rows {
  std::vector<std::uint64_t> begin{0};
  std::vector<std::uint64_t> column;
  std::vector<double> value;  ///< empty when values are not kept
};

/// Entries as they come: row (counted from this worker's first), number of the column, value.
struct loose_entries {
  std::vector<std::uint32_t> row;
  std::vector<std::uint64_t> column;
  std::vector<double> value;
  bool valued = false;
};

/// Sorts entries into rows, and columns in them, stably; then applies the rule to those that are there twice.
/// Returns row and column of the first such pair when the rule refuses it.
std::optional<std::pair<std::uint64_t, std::uint64_t>> build_rows(std::size_t rows, const loose_entries& entries,
                                                                  duplicate_rule rule, numbered_rows& out);

/// Sends entry k = (row[k], column[k]), numbered by `row_numbers` and `column_numbers`, to the owner of its row.
/// Entries come in the order of the ranks, and of one rank in its order.
/// Blocks: a collective. Cost: 12 bytes an entry, 20 with values, in bounded rounds.
class entry_sender {
 public:
  entry_sender(Comm comm, const std::vector<std::uint64_t>& row_first) : comm_(std::move(comm)), first_(row_first) {}

  struct stream {
    std::span<const std::uint32_t> row;
    std::span<const std::uint32_t> column;
    std::span<const double> value;
    bool valued = false;  // the same on every worker, whether it has entries or not
    std::span<const std::uint64_t> row_number;
    std::span<const std::uint64_t> column_number;
    /// Each entry (row, column) is followed by (column, row), but for row = column.
    bool both_ways = false;
    bool self_loops = true;
  };
  loose_entries send(const stream& entries);

 private:
  Comm comm_;
  const std::vector<std::uint64_t>& first_;
};

}  // namespace paracel
