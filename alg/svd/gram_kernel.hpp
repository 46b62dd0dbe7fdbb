// SPDX-License-Identifier: BSD-3-Clause
//
// Products with A'A in one pass over the rows of a sparse A.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace paracel::alg {

/// Numbers of v in a row of the block below: at least `width`; the further ones are zeros.
constexpr std::size_t gram_stride(std::size_t width) noexcept { return (width + 3) / 4 * 4; }

/// w += A'(A v): for each row A_i computes p = A_i v, and adds A_i' p to w while the row's entries are in the cache.
/// Row i has entries [begin[i], begin[i + 1]) of column and value. Shape: `both` has a row for each column of A, first
/// `stride` numbers (gram_stride) of v, then as many of w, since an entry needs both; it is fastest if it begins at a
/// cache line. Cost: 2 stride multiplications and additions an entry; with AVX2 where available, so bits depend on the
/// processor.
void add_gram_product(std::span<const std::uint64_t> begin, std::span<const std::uint32_t> column,
                      std::span<const double> value, double* both, std::size_t stride);

}  // namespace paracel::alg
