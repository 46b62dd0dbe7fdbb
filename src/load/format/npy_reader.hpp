// SPDX-License-Identifier: BSD-3-Clause
//
// Samples in NumPy's .npy format (paracel/npy_header.hpp): a matrix of raw numbers. A row belongs to
// the rank whose part of the file contains its first byte, as for lines of text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "load/input/input.hpp"
#include "paracel/samples.hpp"

namespace paracel {

struct npy_matrix {
  char kind = 'f';          ///< f: floating point, i: integer
  std::uint64_t width = 8;  ///< bytes of a number: 4 or 8
  std::uint64_t rows = 0;
  std::uint64_t columns = 1;  ///< of one dimension: 1
  std::uint64_t data_begin = 0;
};

/// `front`: the beginning of a file, 64 KB or all of it. `bytes`: of the whole file.
/// Throws: data_error that names the file: another kind of array, or a file that is too short or too long for it.
npy_matrix read_npy_matrix(const std::string& file, std::string_view front, std::uint64_t bytes);

/// The beginning of a file, as read_npy_matrix wants it. Throws: data_error.
std::string npy_front(const input_file& file);

/// Whether a file begins like an .npy file.
bool is_npy(const input_file& file);

/// Part `rank` of `size` of the rows of all files, which must all be .npy. Dense; the label, if present, is the
/// last column. Throws: data_error `file:row:column: ...`, both from 1.
sample_rows read_npy(const input_set& input, std::size_t rank, std::size_t size, const sample_options& options,
                     const load_progress& progress);

}  // namespace paracel
