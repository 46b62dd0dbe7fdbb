// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary bytes after the magic string are an .npy file or a data_error, and the ranks together read every row once.
// The first byte selects the kind of labels, missing values, weights, groups, categories and floats.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "load/format/npy_reader.hpp"
#include "load/format/sample_layout.hpp"
#include "memory_file.hpp"
#include "paracel/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string bytes("\x93NUMPY");
  bytes.append(reinterpret_cast<const char*>(data) + 1, size - 1);
  const memory_file file(bytes);
  paracel::sample_options options;
  options.label = static_cast<paracel::sample_options::label_rule>(data[0] % 4);
  options.missing = (data[0] & 4) != 0;
  options.floats = (data[0] & 8) != 0;
  if ((data[0] & 0x10) != 0) options.weight = "1";
  if ((data[0] & 0x20) != 0) options.categorical = {"0"};
  if ((data[0] & 0x40) != 0) options.group = "2";
  if ((data[0] & 0x80) != 0) options.label = paracel::sample_options::label_rule::relevance;
  // A missing value is -1e300, so that values can be compared.
  const auto read = [&](std::size_t ranks, std::vector<double>& values) {
    std::uint64_t rows = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      const auto part = paracel::read_npy(paracel::input_set({file.name()}), r, ranks, options, {});
      std::vector<double> found(part.floats.begin(), part.floats.end());
      if (!options.floats) found = part.value;
      if (found.size() != part.rows() * part.columns) std::abort();
      if (part.weight.size() != (options.weight.empty() ? 0 : part.rows())) std::abort();
      if (part.group.size() != (options.group.empty() ? 0 : part.rows())) std::abort();
      for (const double w : part.weight) {
        if (!std::isfinite(w) || w < 0) std::abort();
      }
      for (std::size_t i = 0; i < found.size(); ++i) {
        if (!part.categorical.empty() && i % part.columns == 0 && !paracel::is_category(found[i])) std::abort();
        if (options.missing && std::isnan(found[i])) found[i] = -1e300;
        if (!std::isfinite(found[i])) std::abort();
      }
      rows += part.rows();
      values.insert(values.end(), found.begin(), found.end());
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
