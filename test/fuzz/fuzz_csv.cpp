// SPDX-License-Identifier: BSD-3-Clause
//
// Any bytes are CSV samples or a data_error; what is accepted keeps the promises of sample_rows. The first byte chooses
// between input to train on and input to predict.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "paracel/error.hpp"
#include "paracel/load.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  paracel::sample_options options;
  options.without_label = (data[0] & 1) != 0;
  if (options.without_label) options.columns = 1 + (data[0] >> 1) % 4;
  try {
    const auto rows = paracel::parse_samples("fuzz", text, options);
    if (rows.dense) require(rows.value.size() == rows.rows() * rows.columns);
    require(rows.label.size() == (options.without_label ? 0 : rows.rows()));
    for (const double v : rows.value) require(std::isfinite(v));
    for (const double v : rows.label) require(v == 1 || v == -1);
  } catch (const paracel::data_error&) {
  }
  return 0;
}
