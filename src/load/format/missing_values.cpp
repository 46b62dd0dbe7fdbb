// SPDX-License-Identifier: BSD-3-Clause
#include "load/format/missing_values.hpp"

#include <algorithm>

#include "core/number_parsing.hpp"

namespace paracel {

missing_values::missing_values(const sample_options& options) : allowed_(options.missing) {
  if (!allowed_) return;
  for (const auto& text : options.missing_as) {
    double v = 0;
    if (read_whole_number(text, v)) numbers_.push_back(v);
    else words_.push_back(text);
  }
}

bool missing_values::is_missing(std::string_view field) const noexcept {
  if (!allowed_) return false;
  if (field.empty() || field == "NA" || field == "nan" || field == "NaN" || field == "null" || field == "?")
    return true;
  if (std::ranges::find(words_, field) != words_.end()) return true;
  double v = 0;
  return has_numbers() && read_whole_number(field, v) && std::ranges::find(numbers_, v) != numbers_.end();
}

}  // namespace paracel
