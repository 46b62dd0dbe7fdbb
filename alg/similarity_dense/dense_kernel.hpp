// SPDX-License-Identifier: BSD-3-Clause
//
// Cosine similarities of dense rows by blocked matrix multiplication: rows are scaled to length 1 once, and a product
// of two blocks of rows yields all their similarities. Tiles of 4 rows by 8 keep 32 sums in registers; the 8 rows are
// interleaved. Every sum is in feature order, so its bits do not depend on how rows are blocked.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "alg/common/solvers/power_scale.hpp"

// The widest vectors that the processor supports, selected when the program starts.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define PARACEL_WIDE_VECTORS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PARACEL_WIDE_VECTORS
#endif

namespace paracel::alg {

/// Scales a row to length 1. A zero row becomes NaN, which is similar to nothing.
inline void to_unit_length(std::span<double> row) {
  if (!scale_to_one(row)) {
    std::fill(row.begin(), row.end(), std::numeric_limits<double>::quiet_NaN());
    return;
  }
  double sum = 0;
  for (const auto v : row) sum += v * v;
  const double length = std::sqrt(sum);
  for (auto& v : row) v /= length;
}

namespace dense_detail {

inline constexpr std::size_t tile_rows = 4;
inline constexpr std::size_t panel_rows = 8;

using wide = double __attribute__((vector_size(8 * panel_rows)));

/// A feature of the rows of a panel. Aligned as the widest vectors require: the alignment of `wide` itself depends on
/// the processor that a function is compiled for.
struct alignas(sizeof(wide)) panel_column {
  double of_row[panel_rows];
  [[nodiscard]] __attribute__((always_inline)) wide load() const {
    wide w;
    __builtin_memcpy(&w, of_row, sizeof w);
    return w;
  }
};

/// Clamps a cosine that rounding may have made slightly larger than 1. NaN is kept.
inline __attribute__((always_inline)) double in_range(double s) { return s > 1 ? 1 : s < -1 ? -1 : s; }

/// out[r * stride + c] = a row r . panel row c, for `Rows` rows of a (at most 4), which are `width` apart.
template <std::size_t Rows>
inline __attribute__((always_inline)) void tile(const double* a, const panel_column* panel, std::size_t width,
                                                double* out, std::size_t stride) {
  wide sum[Rows] = {};
  for (std::size_t k = 0; k < width; ++k) {
    for (std::size_t r = 0; r < Rows; ++r) sum[r] += a[r * width + k] * panel[k].load();
  }
  for (std::size_t r = 0; r < Rows; ++r) {
    for (std::size_t c = 0; c < panel_rows; ++c) out[r * stride + c] = in_range(sum[r][c]);
  }
}

/// All rows of `a` with all panels. Defined in dense_kernel.cpp, because it is compiled in several versions.
void block_product(const double* a, std::size_t rows, const panel_column* panels, std::size_t panel_count,
                   std::size_t width, double* out);

}  // namespace dense_detail

/// Products of blocks of rows.
/// Thread-safety: none, because of its buffers
/// Cost: width multiplications and additions a pair, 0.5 to 4 ns with 64 features; about 300 KB.
class dense_kernel {
 public:
  explicit dense_kernel(std::size_t width) : width_(width) {}

  /// Calls f(i, j, similarities) with those of row i of `a` and the rows j, j + 1, ... of `b`, for all pairs, a block
  /// at a time. With `own` both are the same matrix and each pair i <= j occurs once; some pairs i > j occur too.
  template <class F>
  void product(std::span<const double> a, std::span<const double> b, bool own, F&& f) {
    if (width_ == 0) return;
    const std::size_t rows_a = a.size() / width_;
    const std::size_t rows_b = b.size() / width_;
    // Panels of 128 KB stay in the level 2 cache during the pass over the rows of `a`.
    const std::size_t block = std::clamp<std::size_t>((std::size_t{1} << 14U) / width_ / 8 * 8, 8, 512);
    for (std::size_t j = 0; j < rows_b; j += block) {
      const std::size_t count = std::min(block, rows_b - j);
      pack(b.subspan(j * width_, count * width_));
      const std::size_t end = own ? std::min(rows_a, j + count) : rows_a;
      const std::size_t stride = panels_.size() / width_ * dense_detail::panel_rows;
      constexpr std::size_t step = 32;
      out_.resize(step * stride);
      for (std::size_t i = 0; i < end; i += step) {
        const std::size_t n = std::min(step, end - i);
        dense_detail::block_product(&a[i * width_], n, panels_.data(), panels_.size() / width_, width_, out_.data());
        for (std::size_t r = 0; r < n; ++r) f(i + r, j, std::span<const double>(out_).subspan(r * stride, count));
      }
    }
  }

 private:
  void pack(std::span<const double> rows) {
    const std::size_t count = rows.size() / width_;
    const std::size_t panels = (count + dense_detail::panel_rows - 1) / dense_detail::panel_rows;
    panels_.assign(panels * width_, dense_detail::panel_column{});
    for (std::size_t r = 0; r < count; ++r) {
      for (std::size_t k = 0; k < width_; ++k) {
        panels_[r / dense_detail::panel_rows * width_ + k].of_row[r % dense_detail::panel_rows] = rows[r * width_ + k];
      }
    }
  }

  std::size_t width_;
  std::vector<dense_detail::panel_column> panels_;
  std::vector<double> out_;
};

}  // namespace paracel::alg
