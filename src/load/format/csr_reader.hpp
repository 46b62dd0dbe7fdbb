// SPDX-License-Identifier: BSD-3-Clause
//
// Samples as compressed sparse rows in binary form, for programs that hand over sparse matrices (src/python). All
// numbers are little-endian; a part that the header does not announce is absent:
//
//     "\x93PARCSR1" | u64 rows, columns, entries, parts (1: labels, 2: groups) | f64 label[rows] | f64 group[rows] |
//     u64 row_begin[rows + 1] | f64 value[entries] | u32 column[entries]
//
// Columns are from 0, increasing within a row.
#pragma once

#include <cstddef>

#include "load/input/input.hpp"
#include "paracel/samples.hpp"

namespace paracel {

/// Whether a file begins like this.
bool is_csr(const input_file& file);

/// Part `rank` of `size` of the rows of the only file of `input`: as many as the other parts, or one less. Weights come
/// from files of their own. Throws: data_error `file:row: ...`, rows from 1; when there are several files.
sample_rows read_csr(const input_set& input, std::size_t rank, std::size_t size, const sample_options& options);

}  // namespace paracel
