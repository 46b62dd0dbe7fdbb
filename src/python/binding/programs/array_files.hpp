// SPDX-License-Identifier: BSD-3-Clause
//
// Arrays of Python as input files of programs (src/storage/memory_file.hpp): their bytes are made from the arrays while
// a program reads them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace paracel::py {

/// Of one or two dimensions, any strides, numbers of types f8, f4, i8 or i4.
using any_array = nanobind::ndarray<nanobind::ro, nanobind::device::cpu>;

/// An .npy matrix of doubles whose rows are those of the first part, then those of the second one, ...; of a part those
/// of the arrays, side by side. Throws: error for other arrays, different numbers of rows or columns, and a name that
/// is in use.
void add_table_file(const std::string& name, const std::vector<std::vector<any_array>>& parts);

/// The binary form of sparse rows (src/load/format/csr_reader.hpp); empty `labels` or `groups`: none. Throws: as above.
void add_sparse_file(const std::string& name, std::uint64_t columns, const any_array& row_begin,
                     const any_array& column, const any_array& value, const std::vector<any_array>& labels,
                     const std::vector<any_array>& groups);

/// The file's bytes are those of the text.
void add_text_file(const std::string& name, const nanobind::bytes& text);

}  // namespace paracel::py
