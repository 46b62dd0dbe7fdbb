// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary bytes are rows of an id and numbers, or a data_error; accepted rows are finite and of the stated width.
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "paracel/dense_rows.hpp"
#include "paracel/error.hpp"
#include "property.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  try {
    const unsigned choice = data[0];
    const paracel::vector_options options{
        .columns = choice % 4,
        .with_ids = (choice & 4U) == 0,
        .skip_last = (choice & 8U) != 0,
        .header = static_cast<paracel::entry_options::header_rule>((choice >> 4U) % 3)};
    const auto rows = paracel::parse_vectors("fuzz", {reinterpret_cast<const char*>(data) + 1, size - 1}, options);
    require(rows.columns > 0 && rows.rows() > 0);
    require(rows.value.size() == rows.rows() * rows.columns);
    for (const double v : rows.value) require(std::isfinite(v));
    for (std::size_t i = 0; i < rows.rows(); ++i) require(!rows.ids.text(i).empty());
  } catch (const paracel::data_error&) {
  }
  return 0;
}
