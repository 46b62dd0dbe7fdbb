// SPDX-License-Identifier: BSD-3-Clause
//
// The header of a file in NumPy's .npy format:
//
//     93 'N' 'U' 'M' 'P' 'Y' | major, minor | header bytes (2, from version 2 on 4, little-endian) | {'descr': '<f8',
//     'fortran_order': False, 'shape': (3, 4), } and blanks | 3 * 4 * 8 bytes
//
// Source: NumPy enhancement proposal 1, "A simple file format for NumPy arrays", versions 1.0 to 3.0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paracel {

inline constexpr std::string_view npy_magic("\x93NUMPY", 6);

struct npy_header {
  std::string type;  ///< byte order, kind and bytes of an element: "<f8"
  std::vector<std::uint64_t> shape;
  bool fortran_order = false;
  std::uint64_t data_begin = 0;  ///< bytes before the elements
};

/// `front`: the beginning of a file, 64 KB or all of it.
/// Throws: data_error that names the file. Interpreting type and shape is left to the caller.
npy_header read_npy_header(const std::string& file, std::string_view front);

}  // namespace paracel
