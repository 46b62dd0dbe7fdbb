// SPDX-License-Identifier: BSD-3-Clause
//
// From the entries that one worker has read to the rows that it owns.
//
//     entries (index, index)  --numbers-->  (row, column)  --to the owner of the row-->  buckets of rows  -->  rows
//
// Blocks of entries are freed as soon as they have been sent, and buckets as soon as they are rows, so that little
// more than the entries themselves is held at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "load/chunked_vector.hpp"
#include "load/ids/global_ids.hpp"
#include "paracel/comm.hpp"
#include "paracel/sparse.hpp"

namespace paracel {

/// Rows and the numbers of their columns, 32 bits where all numbers fit.
template <class Column>
struct numbered_rows {
  std::vector<std::uint64_t> begin{0};
  std::vector<Column> column;  ///< ascending in a row
  std::vector<double> value;   ///< empty when values are not kept
};

/// The number of each index.
struct index_numbers {
  std::vector<std::uint32_t> narrow;
  std::vector<std::uint64_t> wide;  ///< used when there are 2^32 numbers or more
  bool identity = true;             ///< index i has number i
  bool is_wide = false;

  index_numbers() = default;
  /// `place`: the place of each index in the numbered list (empty: the identity). Moves `place` out of the numbering.
  index_numbers(std::vector<std::uint32_t>&& place, global_ids& of);
  [[nodiscard]] std::uint64_t operator[](std::uint32_t i) const { return identity ? i : is_wide ? wide[i] : narrow[i]; }
};

struct build_options {
  bool swap = false;       ///< rows are the second of each pair
  bool both_ways = false;  ///< each entry (row, column) is followed by (column, row), unless row = column
  bool once = false;       ///< (row, column) and (column, row) are the same entry, stored as one of them
  bool self_loops = true;  ///< false: no entry with row = column
  bool keep = false;       ///< entries are needed again
  duplicate_rule duplicates = duplicate_rule::sum;
};

/// Row and column of a duplicate entry where these are not allowed.
using duplicate_entry = std::optional<std::pair<std::uint64_t, std::uint64_t>>;

/// Sends each entry to the worker whose numbers [first[w], first[w + 1]) contain its row, and builds rows of what
/// arrives. Duplicates are combined in input order. With `keep` the entries remain, but their indices may have been
/// replaced by numbers: both maps are then the identity. Without it entries and maps are used up. Blocks: a collective.
/// Cost: on the wire 8 bytes per entry (12 with 64-bit columns), 8 more with a value, in bounded rounds; in memory what
/// basic_entry_store needs for it.
template <class Column>
numbered_rows<Column> build_rows(Comm comm, const std::vector<std::uint64_t>& first, chunked_vector& entries,
                                 index_numbers& row_numbers, index_numbers& column_numbers,
                                 const build_options& options, duplicate_entry& twice);

/// `place(n)` of each number n, reusing the memory of the numbers if it is as wide. `same`: the identity.
template <class Column, class F>
std::vector<std::uint32_t> to_places(std::vector<Column>&& numbers, F&& place, bool same) {
  if constexpr (std::is_same_v<Column, std::uint32_t>) {
    if (!same) {
      for (auto& n : numbers) n = static_cast<std::uint32_t>(place(n));
    }
    return std::move(numbers);
  } else {
    std::vector<std::uint32_t> out(numbers.size());
    for (std::size_t k = 0; k < numbers.size(); ++k) out[k] = static_cast<std::uint32_t>(place(numbers[k]));
    return out;
  }
}

}  // namespace paracel
