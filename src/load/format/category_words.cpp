// SPDX-License-Identifier: BSD-3-Clause
#include "load/format/category_words.hpp"

#include <cmath>
#include <limits>
#include <numeric>

#include "core/number_parsing.hpp"

namespace paracel {

namespace {

/// Replaces each value of a column that is not missing.
template <class F>
void change_column(sample_rows& rows, std::uint32_t column, F&& of) {
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    const auto at = i * rows.columns + column;
    if (rows.value.empty()) {
      if (float& v = rows.floats[at]; !std::isnan(v)) v = static_cast<float>(of(static_cast<double>(v)));
    } else if (double& v = rows.value[at]; !std::isnan(v)) {
      v = of(v);
    }
  }
}

}  // namespace

std::optional<double> category_words::integer(std::string_view text) {
  double v = 0;
  if (!read_whole_number(text, v)) return std::nullopt;
  if (v < 0 && v == std::floor(v)) return std::nullopt;
  if (!is_category(v)) throw class_labels::refused{no_category(std::string(text), true)};
  return v == 0 ? 0.0 : v;
}

double category_words::index(std::string_view text, bool as_written) {
  const std::string word(text);
  if (!known_) return words_.index(word, as_written);
  return words_.known_index(word, as_written).value_or(std::numeric_limits<double>::quiet_NaN());
}

std::vector<std::string> category_words::sort(std::vector<double>& place) {
  place.resize(words_.size());
  std::iota(place.begin(), place.end(), 0.0);
  return words_.sort(place);
}

void move_words(sample_rows& rows, std::uint32_t column, const std::vector<double>& place) {
  change_column(rows, column, [&](double v) { return place[static_cast<std::size_t>(v)]; });
}

void integers_to_words(sample_rows& rows, std::uint32_t column) {
  category_words words(nullptr);
  change_column(rows, column, [&](double v) { return words.index(number_text(v), false); });
  std::vector<double> place;
  rows.words[column] = words.sort(place);
  move_words(rows, column, place);
}

}  // namespace paracel
