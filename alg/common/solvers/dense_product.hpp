// SPDX-License-Identifier: BSD-3-Clause
//
// The product of small dense matrices used by k-means, ridge, lasso and lr_l1: out += A B, in tiles that stay in
// registers, with the widest vectors that the processor supports.
//
// Source: the tiling is that of K. Goto, R. van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS
// 34(3), 2008; without its packing, because here one dimension is always small.
#pragma once

#include <cstddef>

namespace paracel::alg {

/// Columns of B and of out are padded to groups of this size.
inline constexpr std::size_t product_width = 8;
/// n rounded up to a multiple of product_width.
constexpr std::size_t product_padded(std::size_t n) noexcept {
  return (n + product_width - 1) / product_width * product_width;
}

/// out[i * out_row + j] += sum over t < depth of a[i * a_row + t * a_step] * b[t * b_row + j], for i < rows, j <
/// columns. Every sum is computed in ascending order of t, so it does not depend on the other rows and columns.
/// `columns` is a multiple of product_width. `upper`: elements below the diagonal are unspecified. Cost: 2 rows *
/// columns * depth operations.
void add_product(const double* a, std::size_t a_row, std::size_t a_step, const double* b, std::size_t b_row,
                 double* out, std::size_t out_row, std::size_t rows, std::size_t columns, std::size_t depth,
                 bool upper = false);

}  // namespace paracel::alg
