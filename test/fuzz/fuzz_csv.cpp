// SPDX-License-Identifier: BSD-3-Clause
//
// Arbitrary bytes are CSV samples or a data_error; accepted samples satisfy the invariants of sample_rows, and neither
// the fast path nor reading in parts makes a difference. The first byte selects the kind of labels, whether it is input
// to predict, and whether fields are named; the second one missing values, weights, groups, categories, known words and
// floats.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "load/input/byte_range.hpp"
#include "paracel/error.hpp"
#include "property.hpp"
#include "sample_reading.hpp"

namespace {

// Equal, or both missing.
template <class T>
bool same_values(const std::vector<T>& a, const std::vector<T>& b) {
  return std::ranges::equal(a, b, [](T x, T y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

bool same(const paracel::sample_rows& a, const paracel::sample_rows& b) {
  return same_values(a.value, b.value) && same_values(a.floats, b.floats) && a.weight == b.weight &&
         a.label == b.label && a.columns == b.columns && a.rows() == b.rows() && a.names == b.names &&
         a.classes == b.classes && a.column == b.column && a.group == b.group && a.words == b.words;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using rule = paracel::sample_options::label_rule;
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::string file = "fuzz";
  paracel::sample_options options;
  options.label = static_cast<rule>(data[0] % 4);
  if (options.label == rule::real && (data[0] & 0x10) != 0) options.label = rule::relevance;
  options.without_label = (data[0] / 4) % 4 == 3;
  if (options.without_label) options.columns = 1 + data[0] / 16 % 3;
  if ((data[0] & 0x80) != 0) options.target = "t";
  if ((data[0] & 0xc0) == 0xc0) options.features = {"a", "b"};
  options.missing = data[1] % 2 == 1;
  options.floats = data[1] / 2 % 2 == 1;
  const bool header = (data[1] & 0x80) != 0;
  if ((data[1] & 4) != 0) options.weight = header ? "w" : "1";
  if ((data[1] & 8) != 0) options.categorical = {header ? "a" : "0"};
  if ((data[1] & 0x28) == 0x28) options.words = {{0, {"a", "b", "7"}}};
  if ((data[1] & 0x40) != 0) options.group = header ? "q" : "2";
  if ((data[1] & 0x30) == 0x30) options.names = {"b", "a"};
  if ((data[1] & 0x90) == 0x90) {
    options.fields.count = 3;
    options.fields.features = {2, 0};
    options.fields.label = 1;
    options.fields.target = "t";
    options.columns = 2;
  }
  if (data[0] % 32 == 17) {
    options.target = "2";
    options.features = {"1", "0"};
  }
  paracel::sample_layout layout;
  const auto read = [&](bool careful, std::size_t cut, paracel::sample_rows& rows) {
    return read_in_two(text, cut, careful, layout, options, rows);
  };
  try {
    if (!paracel::find_layout(file, text, options, layout)) return 0;
  } catch (const paracel::data_error&) {
    return 0;
  }
  paracel::sample_rows rows;
  const auto problem = read(false, text.size(), rows);
  if (problem.empty()) {
    const bool labelled = !options.without_label && options.label != rule::none;
    require(rows.label.size() == (labelled ? rows.rows() : 0));
    require(rows.weight.size() == (options.weight.empty() ? 0 : rows.rows()));
    for (const double w : rows.weight) require(std::isfinite(w) && w >= 0);
    require(rows.group.size() == (options.group.empty() ? 0 : rows.rows()));
    require((options.floats ? rows.value.size() : rows.floats.size()) == 0);
    std::vector<double> values(rows.floats.begin(), rows.floats.end());
    if (!options.floats) values = rows.value;
    if (rows.dense) require(values.size() == rows.rows() * rows.columns);
    // A word that is not known is missing.
    const bool missing = options.missing || !options.words.empty();
    for (const double v : values) require(std::isfinite(v) || (missing && std::isnan(v) && rows.dense));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto column = rows.dense ? static_cast<std::uint32_t>(i % rows.columns) : rows.column[i];
      if (std::ranges::find(rows.categorical, column) != rows.categorical.end())
        require(paracel::is_category(values[i]));
      if (const auto words = rows.words.find(column); words != rows.words.end())
        require(std::isnan(values[i]) || values[i] < static_cast<double>(words->second.size()));
    }
    for (const double v : rows.label) {
      // Binary ones become -1 and +1 once all workers' labels are known.
      if (options.label == rule::classes || options.label == rule::binary)
        require(v >= 0 && v < static_cast<double>(rows.classes.size()));
      else if (options.label == rule::relevance) require(paracel::is_relevance(v));
      else require(std::isfinite(v));
    }
  }
  paracel::sample_rows others;
  require(read(true, text.size(), others) == problem && (!problem.empty() || same(rows, others)));
  // Only the start of the file can have a header.
  const auto cut = paracel::line_begin(text, text.size() / 2);
  require(read(false, cut, others) == problem && (!problem.empty() || same(rows, others)));
  return 0;
}
