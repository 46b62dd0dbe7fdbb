// SPDX-License-Identifier: BSD-3-Clause
#include "dense_product.hpp"

#include "cpu_dispatch.hpp"

namespace paracel::alg {

namespace {

// One AVX-512 register, two of AVX, four of SSE2; loads and stores may be unaligned.
typedef double lanes __attribute__((vector_size(64), aligned(8), may_alias));

struct operands {
  const double* a;
  std::size_t a_row;
  std::size_t a_step;
  const double* b;
  std::size_t b_row;
  double* out;
  std::size_t out_row;
  std::size_t rows;
  std::size_t columns;
  std::size_t depth;
  bool upper;
};

template <int Rows>
PARACEL_INLINE void add_tile(const operands& o, std::size_t i, std::size_t j) {
  lanes sum[Rows] = {};
  const double* a = o.a + i * o.a_row;
  const double* b = o.b + j;
  for (std::size_t t = 0; t < o.depth; ++t, a += o.a_step, b += o.b_row) {
    const lanes y = *reinterpret_cast<const lanes*>(b);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) sum[r] += a[static_cast<std::size_t>(r) * o.a_row] * y;
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
    *reinterpret_cast<lanes*>(o.out + (i + static_cast<std::size_t>(r)) * o.out_row + j) += sum[r];
  }
}

template <int Rows>
PARACEL_INLINE void add_tiles(const operands& o) {
  for (std::size_t j = 0; j < o.columns; j += product_width) {
    const std::size_t end = o.upper && j + product_width < o.rows ? j + product_width : o.rows;
    std::size_t i = 0;
    for (; i + Rows <= end; i += Rows) add_tile<Rows>(o, i, j);
    for (; i + 2 <= end; i += 2) add_tile<2>(o, i, j);
    for (; i < end; ++i) add_tile<1>(o, i, j);
  }
}

// Rows of a tile: as many as leave room for a row of B in 16 registers of 2 or 4 numbers, or 32 of 8.
void add_plain(const operands& o) { add_tiles<2>(o); }
#if defined(__x86_64__)
PARACEL_AVX2 void add_avx2(const operands& o) { add_tiles<6>(o); }
[[gnu::target("avx512f,avx512dq,avx512vl,avx2,fma")]] void add_avx512(const operands& o) { add_tiles<12>(o); }
#endif

using product_function = void (*)(const operands&);

product_function widest() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return add_avx512;
  if (has_avx2()) return add_avx2;
#endif
  return add_plain;
}

}  // namespace

void add_product(const double* a, std::size_t a_row, std::size_t a_step, const double* b, std::size_t b_row,
                 double* out, std::size_t out_row, std::size_t rows, std::size_t columns, std::size_t depth,
                 bool upper) {
  static const product_function add = widest();
  add({a, a_row, a_step, b, b_row, out, out_row, rows, columns, depth, upper});
}

}  // namespace paracel::alg
