// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary bytes after the magic ones are an .npy file or a data_error, and the ranks together read every row once.
// The first byte selects the kind of labels.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "load/format/npy_reader.hpp"
#include "memory_file.hpp"
#include "paracel/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string bytes("\x93NUMPY");
  bytes.append(reinterpret_cast<const char*>(data) + 1, size - 1);
  const memory_file file(bytes);
  paracel::sample_options options;
  options.label = static_cast<paracel::sample_options::label_rule>(data[0] % 4);
  const auto read = [&](std::size_t ranks, std::vector<double>& values) {
    std::uint64_t rows = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      const auto part = paracel::read_npy(paracel::input_set({file.name()}), r, ranks, options, {});
      if (part.value.size() != part.rows() * part.columns) std::abort();
      for (const double v : part.value) {
        if (!std::isfinite(v)) std::abort();
      }
      rows += part.rows();
      values.insert(values.end(), part.value.begin(), part.value.end());
    }
    return rows;
  };
  try {
    std::vector<double> one;
    std::vector<double> three;
    const auto rows = read(1, one);
    if (read(3, three) != rows || one != three) std::abort();
  } catch (const paracel::data_error&) {
  }
  return 0;
}
