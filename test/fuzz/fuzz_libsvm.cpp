// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary bytes are libsvm samples or a data_error; accepted samples satisfy the invariants of sample_rows, and
// neither the fast path nor reading in parts makes a difference. The first byte selects the kind of labels, the known
// features, weights, groups, categories and floats.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "property.hpp"
#include "sample_reading.hpp"

namespace {

void check(const paracel::sample_rows& rows, const paracel::sample_options& options) {
  using rule = paracel::sample_options::label_rule;
  require(rows.row_begin.size() == rows.rows() + 1);
  require(rows.label.size() == (options.label == rule::none ? 0 : rows.rows()));
  const std::vector<double> floats(rows.floats.begin(), rows.floats.end());
  const auto& values = options.floats ? floats : rows.value;
  require((options.floats ? rows.value.size() : rows.floats.size()) == 0);
  require(rows.column.size() == values.size() && rows.row_begin.back() == values.size());
  require(rows.weight.size() == (options.weight.empty() ? 0 : rows.rows()));
  require(rows.group.size() == (options.group.empty() ? 0 : rows.rows()));
  for (const double w : rows.weight) require(std::isfinite(w) && w >= 0);
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    if (options.label == rule::real) require(std::isfinite(rows.label[i]));
    if (options.label == rule::relevance) require(paracel::is_relevance(rows.label[i]));
    if (options.label == rule::classes || options.label == rule::binary)
      require(rows.label[i] >= 0 && rows.label[i] < static_cast<double>(rows.classes.size()));
    const auto columns = rows.columns_of(i);
    for (std::size_t k = 0; k < columns.size(); ++k) {
      require(columns[k] < rows.columns && (k == 0 || columns[k - 1] < columns[k]));
      const bool category = std::ranges::find(rows.categorical, columns[k]) != rows.categorical.end();
      require(!category || paracel::is_category(values[rows.row_begin[i] + k]));
    }
  }
  for (const double v : values) require(std::isfinite(v));
}

bool same(const paracel::sample_rows& a, const paracel::sample_rows& b) {
  return a.value == b.value && a.floats == b.floats && a.weight == b.weight && a.column == b.column &&
         a.row_begin == b.row_begin && a.group == b.group && a.label == b.label && a.classes == b.classes &&
         a.columns == b.columns && a.has_label_zero == b.has_label_zero &&
         a.has_label_minus_one == b.has_label_minus_one;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  paracel::sample_layout layout;
  layout.format = paracel::sample_format::libsvm;
  paracel::sample_options options;
  options.label = static_cast<paracel::sample_options::label_rule>(data[0] % 4);
  options.columns = (data[0] / 4) % 4;
  options.floats = (data[0] & 0x10) != 0;
  if ((data[0] & 0x20) != 0) options.weight = "1";
  if ((data[0] & 0x80) != 0) options.group = "qid";
  if ((data[0] & 0x81) == 0x81) options.label = paracel::sample_options::label_rule::relevance;
  if ((data[0] & 0x40) != 0) options.categorical = {"2"};
  const auto read = [&](bool careful, std::size_t cut, paracel::sample_rows& rows) {
    return read_in_two(text, cut, careful, layout, options, rows);
  };
  paracel::sample_rows rows;
  const auto problem = read(false, text.size(), rows);
  if (problem.empty()) check(rows, options);
  paracel::sample_rows others;
  require(read(true, text.size(), others) == problem && (!problem.empty() || same(rows, others)));
  require(read(false, text.size() / 3, others) == problem && (!problem.empty() || same(rows, others)));
  return 0;
}
