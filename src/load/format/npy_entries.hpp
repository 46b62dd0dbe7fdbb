// SPDX-License-Identifier: BSD-3-Clause
//
// Entries in NumPy's .npy format: a matrix with the columns row, column and, optional, value; of rows only one with the
// ids. Ids are whole numbers from 0 to 2^53.
#pragma once

#include <cstddef>

#include "load/format/entry_parser.hpp"
#include "load/input/input.hpp"

namespace paracel {

/// Whether the entries of an .npy input have values. Throws: data_error.
bool npy_entries_have_values(const input_set& input);

/// Part `rank` of `size` of the rows of all files, which must all be .npy. `rows_only`: as entry_parser::parse_rows.
/// Throws: data_error `file:row:column: ...`, both from 1.
void read_npy_entries(const input_set& input, std::size_t rank, std::size_t size, bool rows_only, bool non_negative,
                      entry_parser& to);

}  // namespace paracel
