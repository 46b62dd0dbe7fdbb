// SPDX-License-Identifier: BSD-3-Clause
//
// Products with rows of samples, sparse or dense.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <paracel/optim_losses.hpp>
#include <paracel/samples.hpp>

#include "optim/vectors.hpp"

namespace paracel::optim {

/// Throws: error when rows and options do not fit.
void check_rows(const sample_rows& rows, std::size_t columns, const linear_options& options);

/// objective::curvature_scale of a loss of `width` margins a row, of this greatest curvature; of every `stride`-th row.
void add_squares(const sample_rows& rows, const linear_options& options, double curvature, std::size_t width,
                 std::span<double> sums, std::span<double> weights, std::uint64_t stride = 1);
/// The stride of objective::sampled_curvature_scale; 1: no sample.
std::uint64_t sample_stride(const sample_rows& rows) noexcept;

/// `visit(column, value)` for each entry of a row; a dense row has all.
template <class F>
void visit_row(const sample_rows& rows, std::size_t i, F&& visit) {
  if (rows.dense) {
    const double* x = rows.value.data() + i * rows.columns;
    for (std::size_t j = 0; j < rows.columns; ++j) visit(j, x[j]);
    return;
  }
  for (std::size_t k = rows.row_begin[i]; k < rows.row_begin[i + 1]; ++k)
    visit(static_cast<std::size_t>(rows.column[k]), rows.value[k]);
}

inline double row_dot(const sample_rows& rows, std::size_t i, const double* w) {
  if (rows.dense) return dot(rows.dense_row(i), {w, rows.columns});
  const std::size_t begin = rows.row_begin[i];
  const std::size_t count = rows.row_begin[i + 1] - begin;
  const std::uint32_t* column = rows.column.data() + begin;
  const double* value = rows.value.data() + begin;
  // Four partial sums: with one, each addition would wait for the previous one.
  double lane[4] = {};
  std::size_t k = 0;
  for (; k + 4 <= count; k += 4) {
    for (std::size_t l = 0; l < 4; ++l) lane[l] += value[k + l] * w[column[k + l]];
  }
  for (; k < count; ++k) lane[0] += value[k] * w[column[k]];
  return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

/// to += times * x_i
inline void add_scaled_row(const sample_rows& rows, std::size_t i, double times, double* to) {
  if (rows.dense) return add_scaled(times, rows.dense_row(i), {to, rows.columns});
  const std::size_t begin = rows.row_begin[i];
  const std::size_t count = rows.row_begin[i + 1] - begin;
  const std::uint32_t* __restrict column = rows.column.data() + begin;
  const double* __restrict value = rows.value.data() + begin;
  std::size_t k = 0;
  // The columns of a row are distinct: four can be read before the first is written.
  for (; k + 4 <= count; k += 4) {
    double sum[4];
    for (std::size_t l = 0; l < 4; ++l) sum[l] = to[column[k + l]] + times * value[k + l];
    for (std::size_t l = 0; l < 4; ++l) to[column[k + l]] = sum[l];
  }
  for (; k < count; ++k) to[column[k]] += times * value[k];
}

}  // namespace paracel::optim
