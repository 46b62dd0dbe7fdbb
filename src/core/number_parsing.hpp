// SPDX-License-Identifier: BSD-3-Clause
//
// Parsing and printing numbers, locale-independent and lossless.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace paracel {

/// The separators of fields in a line.
constexpr bool is_blank(char c) noexcept { return c == ' ' || c == '\t'; }

/// The outcome of parsing a number.
enum class number_outcome { ok, not_a_number, not_finite };

struct number_reading {
  number_outcome outcome = number_outcome::not_a_number;
  double value = 0;
  const char* end = nullptr;  ///< one past the last character of the number
};

/// Reads the number at the front of [first, last): decimal or scientific, with an optional sign.
/// nan, inf and overflow are `not_finite`; underflow yields the nearest double.
/// Cost: about 3 ns for a short integer, 20 ns for 17 digits.
number_reading read_number(const char* first, const char* last) noexcept;

/// The same for most numbers in data files, in place: [-]digits[.digits] with at most 15 digits in all, followed
/// by a byte that is not part of a number. False: retry with read_number. `end` is then unchanged. There must be a
/// byte at or after `at` that is neither digit nor point (a line end), and `room` bytes must be readable. Cost: about 1
/// ns plus 0.5 ns per digit. Source: integers of 15 digits and the powers of ten to 10^15 are exact doubles, so one
/// division rounds once (Clinger, "How to read floating point numbers accurately", 1990); eight digits at once as in
/// Lemire, "Number parsing at a gigabyte per second", 2021.
inline bool read_short_number(const char*& end, std::size_t room, double& out) noexcept {
  static constexpr double power[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                     1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
  const auto digit = [](char c) { return static_cast<unsigned>(static_cast<unsigned char>(c)) - '0'; };
  const char* p = end;
  const char* const readable = p + room;
  const bool negative = *p == '-';
  if (negative) ++p;
  std::uint64_t digits = 0;
  const char* const first = p;
  for (unsigned d = digit(*p); d < 10; d = digit(*++p)) digits = digits * 10 + d;
  auto count = p - first;
  std::ptrdiff_t after = 0;
  if (*p == '.') {
    const char* const point = ++p;
    if (readable - p >= 8) {
      std::uint64_t eight = 0;
      std::memcpy(&eight, p, sizeof eight);
      if (((eight & 0xf0f0f0f0f0f0f0f0U) | (((eight + 0x0606060606060606U) & 0xf0f0f0f0f0f0f0f0U) >> 4U)) ==
          0x3333333333333333U) {
        eight -= 0x3030303030303030U;
        eight = eight * 10 + (eight >> 8U);
        eight = ((eight & 0x000000ff000000ffU) * 0x000f424000000064U +
                 ((eight >> 16U) & 0x000000ff000000ffU) * 0x0000271000000001U) >>
                32U;
        digits = digits * 100000000 + eight;
        p += 8;
      }
    }
    for (unsigned d = digit(*p); d < 10; d = digit(*++p)) digits = digits * 10 + d;
    after = p - point;
    count += after;
  }
  // More than 15 digits may have overflowed; then the result is discarded.
  if (count == 0 || count > 15 || *p == 'e' || *p == 'E' || *p == '.') return false;
  const double v = static_cast<double>(static_cast<std::int64_t>(digits)) / power[after];
  out = negative ? -v : v;
  end = p;
  return true;
}

/// The whole of `text` as a finite number; false otherwise.
bool read_whole_number(std::string_view text, double& out) noexcept;

/// The whole of `text` as an integer; false if it is not one or does not fit.
bool read_whole_integer(std::string_view text, std::int64_t& out) noexcept;

/// A number of bytes: digits, and optionally K, M, G or T for a power of 1024 (neither 1.5 nor 2GB is valid). False if
/// it is invalid or does not fit.
bool read_byte_count(std::string_view text, std::uint64_t& out) noexcept;

/// Appends the shortest text that reads back as the same double.
void append_number(std::string& to, double value);
std::string number_text(double value);

/// `text` for an error message: in double quotes, unprintable bytes as \xNN, at most 40 characters.
std::string quote_for_error(std::string_view text);

}  // namespace paracel
