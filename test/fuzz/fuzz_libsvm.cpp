// SPDX-License-Identifier: BSD-3-Clause
//
// Any bytes are libsvm samples or a data_error; what is accepted keeps the promises of sample_rows, and reading in
// parts gives the same rows as reading at once.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "paracel/error.hpp"
#include "load/byte_range.hpp"
#include "load/data_reader.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const paracel::sample_rows& rows) {
  require(rows.row_begin.size() == rows.rows() + 1);
  require(rows.label.size() == rows.rows());
  require(rows.column.size() == rows.value.size() && rows.row_begin.back() == rows.value.size());
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    require(rows.label[i] == 1 || rows.label[i] == -1);
    const auto columns = rows.columns_of(i);
    for (std::size_t k = 0; k < columns.size(); ++k) {
      require(columns[k] < rows.columns && (k == 0 || columns[k - 1] < columns[k]));
    }
  }
  for (const double v : rows.value) require(std::isfinite(v));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  paracel::sample_layout layout;
  layout.format = paracel::sample_format::libsvm;
  const std::string file = "fuzz";
  try {
    paracel::sample_parser whole(layout, {});
    whole.parse({file, text});
    const auto rows = whole.take();
    check(rows);
    paracel::sample_parser parts(layout, {});
    const std::size_t cut = size / 3;
    parts.parse({file, text, paracel::whole_lines(text, 0, cut)});
    parts.parse({file, text, paracel::whole_lines(text, cut, size)});
    const auto again = parts.take();
    require(again.value == rows.value && again.column == rows.column && again.row_begin == rows.row_begin &&
            again.label == rows.label);
  } catch (const paracel::data_error&) {
  }
  return 0;
}
