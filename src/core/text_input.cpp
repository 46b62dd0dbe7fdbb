// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/text_input.hpp"

#include <charconv>
#include <cmath>

#include "core/number_parsing.hpp"

namespace paracel {

bool parse_number(std::string_view text, double& to) noexcept { return read_whole_number(text, to); }

bool parse_number(std::string_view text, float& to) noexcept {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return false;
  }
  float value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem == std::errc::invalid_argument || end != text.data() + text.size()) return false;
  if (problem == std::errc::result_out_of_range) {
    // from_chars does not distinguish overflow from underflow.
    double wide = 0;
    if (!read_whole_number(text, wide) || std::abs(wide) > 1) return false;
    value = static_cast<float>(wide);
  }
  if (!std::isfinite(value)) return false;
  to = value;
  return true;
}

bool parse_id(std::string_view text, std::uint64_t& to) noexcept {
  std::uint64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size()) return false;
  to = value;
  return true;
}

bool is_comment(std::string_view line) noexcept {
  while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
  return line.starts_with('#') || line.starts_with('%') || line.starts_with("//");
}

std::string quoted_text(std::string_view text) { return quote_for_error(text); }

}  // namespace paracel
