// SPDX-License-Identifier: BSD-3-Clause
//
// Loops over dense vectors, with sums in a fixed order.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

namespace paracel::optim {

/// Eight partial sums, so that the compiler can vectorise without reordering additions.
inline double dot(std::span<const double> a, std::span<const double> b) {
  double lane[8] = {};
  std::size_t j = 0;
  for (; j + 8 <= a.size(); j += 8) {
    for (std::size_t l = 0; l < 8; ++l) lane[l] += a[j + l] * b[j + l];
  }
  double sum = 0;
  for (; j < a.size(); ++j) sum += a[j] * b[j];
  return sum + (((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7])));
}

inline double norm(std::span<const double> a) { return std::sqrt(dot(a, a)); }

/// to += times * a
inline void add_scaled(double times, std::span<const double> a, std::span<double> to) {
  for (std::size_t j = 0; j < a.size(); ++j) to[j] += times * a[j];
}

/// A symmetric matrix as its upper triangle, row after row.
constexpr std::size_t packed_row(std::size_t n, std::size_t i) noexcept { return i * n - i * (i + 1) / 2; }

/// out = A v for a packed A.
inline void packed_product(std::span<const double> packed, std::span<const double> v, std::span<double> out) {
  const std::size_t n = v.size();
  for (std::size_t i = 0; i < n; ++i) out[i] = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const auto row = packed.subspan(packed_row(n, i) + i, n - i);
    out[i] += dot(row, v.subspan(i));
    add_scaled(v[i], row.subspan(1), out.subspan(i + 1));
  }
}

}  // namespace paracel::optim
