// SPDX-License-Identifier: BSD-3-Clause
//
// Formatting of numbers, faster than printf: the generator's most expensive part.
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

namespace datagen {

/// Text that grows by doubling and is written through a pointer.
/// Thread-safety: none
class text_buffer {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return used_; }
  [[nodiscard]] const char* data() const noexcept { return bytes_.data(); }
  void clear() noexcept { used_ = 0; }

  /// Returns space for n more bytes; `commit` sets the end of the text.
  char* room(std::size_t n) {
    if (bytes_.size() - used_ < n) bytes_.resize(2 * bytes_.size() + n + 4096);
    return bytes_.data() + used_;
  }
  void commit(const char* end) noexcept { used_ = static_cast<std::size_t>(end - bytes_.data()); }

  void put(char c) {
    *room(1) = c;
    ++used_;
  }
  void put(const std::string& s) {
    std::memcpy(room(s.size()), s.data(), s.size());
    used_ += s.size();
  }

 private:
  std::string bytes_;
  std::size_t used_ = 0;
};

namespace detail {

constexpr auto two_digits = [] {
  std::array<char, 200> t{};
  for (std::size_t i = 0; i < 100; ++i) {
    t[2 * i] = static_cast<char>('0' + i / 10);
    t[2 * i + 1] = static_cast<char>('0' + i % 10);
  }
  return t;
}();

/// Exactly n digits, with leading zeros.
inline char* put_digits(char* to, std::uint64_t v, int n) {
  int i = n;
  for (; i >= 2; i -= 2) {
    std::memcpy(to + i - 2, two_digits.data() + 2 * (v % 100), 2);
    v /= 100;
  }
  if (i == 1) to[0] = static_cast<char>('0' + v % 10);
  return to + n;
}

constexpr std::array<std::uint64_t, 20> powers = [] {
  std::array<std::uint64_t, 20> p{1};
  for (std::size_t i = 1; i < p.size(); ++i) p[i] = 10 * p[i - 1];
  return p;
}();

}  // namespace detail

/// At most 20 bytes.
inline char* put_integer(char* to, std::uint64_t v) {
  int n = 1;
  while (n < 20 && v >= detail::powers[static_cast<std::size_t>(n)]) ++n;
  return detail::put_digits(to, v, n);
}

/// Like %.<decimals>f, for |x| * 10^decimals below 2^63; rounds half to even. At most 24 bytes.
inline char* put_fixed(char* to, double x, int decimals) {
  const auto scale = detail::powers[static_cast<std::size_t>(decimals)];
  const auto scaled = std::llrint(std::abs(x) * static_cast<double>(scale));
  const auto v = static_cast<std::uint64_t>(scaled);
  if (x < 0 && v != 0) *to++ = '-';
  to = put_integer(to, v / scale);
  if (decimals == 0) return to;
  *to++ = '.';
  return detail::put_digits(to, v % scale, decimals);
}

/// Enough digits to read back the same bits. At most 32 bytes.
inline char* put_exact(char* to, double x) { return std::to_chars(to, to + 32, x).ptr; }

/// Exactly like %.9g. At most 24 bytes.
inline char* put_g9(char* to, double x) {
  const double a = std::abs(x);
  if (a >= 1e-4 && a < 1e9) {
    // The double nearest to 10^-k is above it for k = 1 ... 4, so these comparisons are correct.
    int e = 8;
    while (e > 0 && a < static_cast<double>(detail::powers[static_cast<std::size_t>(e)])) --e;
    if (e == 0 && a < 1) e = a >= 1e-1 ? -1 : a >= 1e-2 ? -2 : a >= 1e-3 ? -3 : -4;
    // 64 bits of mantissa: nine digits, and 34 bits to determine the rounding direction.
    const long double scaled = static_cast<long double>(a) * static_cast<long double>(detail::powers[8 - e]);
    auto digits = static_cast<std::uint64_t>(scaled);
    const auto rest = static_cast<double>(scaled - static_cast<long double>(digits));
    if (std::abs(rest - 0.5) > 1e-6) {
      if (rest > 0.5) ++digits;
      if (digits == detail::powers[9]) {
        digits = detail::powers[8];
        ++e;
      }
      if (e < 9) {
        int n = 9;
        while (digits % 10 == 0) {
          digits /= 10;
          --n;
        }
        if (x < 0) *to++ = '-';
        if (e < 0) {
          std::memcpy(to, "0.0000", 6);
          return detail::put_digits(to + 1 - e, digits, n);
        }
        const int whole = e + 1;
        if (n <= whole)
          return detail::put_digits(to, digits * detail::powers[static_cast<std::size_t>(whole - n)], whole);
        const auto split = detail::powers[static_cast<std::size_t>(n - whole)];
        to = detail::put_digits(to, digits / split, whole);
        *to++ = '.';
        return detail::put_digits(to, digits % split, n - whole);
      }
    }
  }
  return to + std::snprintf(to, 24, "%.9g", x);
}

}  // namespace datagen
