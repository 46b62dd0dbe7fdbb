// SPDX-License-Identifier: BSD-3-Clause
#include "core/number_parsing.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>

namespace paracel {

namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

/// Whether a number that from_chars found out of range is too large, rather than too small: whether its first digit
/// that is not 0 stands for 1 or more.
bool is_large(std::string_view number) noexcept {
  if (number.starts_with('-')) number.remove_prefix(1);
  const auto mark = number.find_first_of("eE");
  const auto digits = number.substr(0, mark);
  const auto point = std::min(digits.find('.'), digits.size());
  const auto first = digits.find_first_of("123456789");
  // first is not npos: 0 is in range.
  const auto place = first < point ? static_cast<std::int64_t>(point - first) - 1
                                   : static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first);
  if (mark == std::string_view::npos) return place >= 0;
  auto exponent = number.substr(mark + 1);
  const bool negative = exponent.starts_with('-');
  if (negative || exponent.starts_with('+')) exponent.remove_prefix(1);
  std::int64_t power = 0;
  const auto [end, problem] = std::from_chars(exponent.data(), exponent.data() + exponent.size(), power);
  if (problem == std::errc::result_out_of_range) return !negative;
  return place + (negative ? -power : power) >= 0;
}

}  // namespace

number_reading read_number(const char* first, const char* last) noexcept {
  // Most numbers in data files are small integers: from_chars would take ten times as long for "1".
  const char* p = first;
  const bool negative = p != last && *p == '-';
  if (p != last && (*p == '-' || *p == '+')) ++p;
  const char* digits = p;
  std::uint32_t small = 0;
  while (p != last && is_digit(*p) && p - digits < 9) small = small * 10 + static_cast<std::uint32_t>(*p++ - '0');
  if (p != digits && (p == last || (!is_digit(*p) && *p != '.' && *p != 'e' && *p != 'E'))) {
    const double v = small;
    return {number_outcome::ok, negative ? -v : v, p};
  }

  // from_chars accepts '-' but not '+', and "+-1" must not pass because of that.
  const char* start = first;
  if (start != last && *start == '+') {
    ++start;
    if (start != last && *start == '-') return {number_outcome::not_a_number, 0, start};
  }
  double value = 0;
  const auto [end, problem] = std::from_chars(start, last, value);
  if (problem == std::errc::invalid_argument) return {number_outcome::not_a_number, 0, start};
  if (problem == std::errc::result_out_of_range) {
    // from_chars does not distinguish overflow from underflow; strtod does, but by the locale's decimal sign.
    const bool large = is_large({start, static_cast<std::size_t>(end - start)});
    value = std::copysign(large ? std::numeric_limits<double>::infinity() : 0.0, *start == '-' ? -1.0 : 1.0);
  }
  if (!std::isfinite(value)) return {number_outcome::not_finite, value, end};
  return {number_outcome::ok, value, end};
}

bool read_whole_number(std::string_view text, double& out) noexcept {
  const auto reading = read_number(text.data(), text.data() + text.size());
  if (reading.outcome != number_outcome::ok || reading.end != text.data() + text.size()) return false;
  out = reading.value;
  return true;
}

bool read_whole_integer(std::string_view text, std::int64_t& out) noexcept {
  if (!text.empty() && text.front() == '+') {
    text.remove_prefix(1);
    if (!text.empty() && text.front() == '-') return false;
  }
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), out);
  return problem == std::errc() && end == text.data() + text.size() && !text.empty();
}

bool read_byte_count(std::string_view text, std::uint64_t& out) noexcept {
  constexpr std::string_view units = "KMGT";
  unsigned shift = 0;
  if (!text.empty()) {
    if (const auto unit = units.find(text.back()); unit != std::string_view::npos) {
      shift = 10 * (static_cast<unsigned>(unit) + 1);
      text.remove_suffix(1);
    }
  }
  std::uint64_t count = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (problem != std::errc() || end != text.data() + text.size() || (count << shift) >> shift != count) return false;
  out = count << shift;
  return true;
}

void append_number(std::string& to, double value) {
  char buffer[32];
  const auto [end, problem] = std::to_chars(buffer, buffer + sizeof buffer, value);
  static_cast<void>(problem);
  to.append(buffer, end);
}

std::string number_text(double value) {
  std::string s;
  append_number(s, value);
  return s;
}

std::string quote_for_error(std::string_view text) {
  constexpr std::size_t longest = 40;
  constexpr char hex[] = "0123456789abcdef";
  std::string s = "\"";
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == longest) {
      s += "...";
      break;
    }
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 || c == 0x7f) {
      s += "\\x";
      s += hex[c >> 4];
      s += hex[c & 15];
    } else {
      s += text[i];
    }
  }
  s += '"';
  return s;
}

}  // namespace paracel
