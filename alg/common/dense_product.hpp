// SPDX-License-Identifier: BSD-3-Clause
//
// The one product of small dense matrices behind k-means, ridge, lasso and lr_l1: out += A B, by tiles that stay in the
// processor's registers, with the widest vectors that the processor has.
//
// Source: the tiling is that of K. Goto, R. van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS
// 34(3), 2008; without its packing, because here one side is always small.
#pragma once

#include <cstddef>

namespace paracel::alg {

/// Columns of B and of out come in groups of so many.
inline constexpr std::size_t product_width = 8;
/// n rounded up to a multiple of that.
constexpr std::size_t product_padded(std::size_t n) noexcept {
  return (n + product_width - 1) / product_width * product_width;
}

/// out[i * out_row + j] += sum over t < depth of a[i * a_row + t * a_step] * b[t * b_row + j], for i < rows, j <
/// columns. Every sum runs over t in ascending order, so it does not depend on what else is computed. `columns` is a
/// multiple of product_width. `upper`: elements below the diagonal may or may not be computed. Cost: 2 rows * columns *
/// depth operations.
void add_product(const double* a, std::size_t a_row, std::size_t a_step, const double* b, std::size_t b_row,
                 double* out, std::size_t out_row, std::size_t rows, std::size_t columns, std::size_t depth,
                 bool upper = false);

}  // namespace paracel::alg
