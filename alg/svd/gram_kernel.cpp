// SPDX-License-Identifier: BSD-3-Clause
#include "gram_kernel.hpp"

#include <algorithm>

#include "alg/common/solvers/cpu_dispatch.hpp"

namespace paracel::alg {

namespace {

// Four columns. Rows of a block are only aligned to 8 bytes.
using four = double __attribute__((vector_size(32), aligned(8), may_alias));

struct gram_operands {
  std::span<const std::uint64_t> begin;
  const std::uint32_t* column;
  const double* value;
  const double* v;
  double* w;
  std::size_t stride;
};

/// For 4 Fours columns: their sums stay in registers.
template <int Fours>
PARACEL_INLINE void add_columns(const gram_operands& o) {
  for (std::size_t i = 0; i + 1 < o.begin.size(); ++i) {
    four sum[Fours] = {};
    for (std::uint64_t e = o.begin[i]; e < o.begin[i + 1]; ++e) {
      const auto* from = reinterpret_cast<const four*>(o.v + o.column[e] * 2 * o.stride);
      const double x = o.value[e];
#pragma GCC unroll 8
      for (int c = 0; c < Fours; ++c) sum[c] += x * from[c];
    }
    for (std::uint64_t e = o.begin[i]; e < o.begin[i + 1]; ++e) {
      auto* to = reinterpret_cast<four*>(o.w + o.column[e] * 2 * o.stride);
      const double x = o.value[e];
#pragma GCC unroll 8
      for (int c = 0; c < Fours; ++c) to[c] += x * sum[c];
    }
  }
}

/// Processes the columns strip by strip; six sums leave registers for the rest.
PARACEL_INLINE void add_strips(gram_operands o) {
  for (std::size_t left = o.stride; left > 0;) {
    const std::size_t strip = std::min<std::size_t>(left, 24);
    switch (strip / 4) {
      case 1:
        add_columns<1>(o);
        break;
      case 2:
        add_columns<2>(o);
        break;
      case 3:
        add_columns<3>(o);
        break;
      case 4:
        add_columns<4>(o);
        break;
      case 5:
        add_columns<5>(o);
        break;
      default:
        add_columns<6>(o);
    }
    left -= strip;
    o.v += strip;
    o.w += strip;
  }
}

auto* const add_gram_here = compiled_for<add_strips>::this_cpu();

}  // namespace

void add_gram_product(std::span<const std::uint64_t> begin, std::span<const std::uint32_t> column,
                      std::span<const double> value, double* both, std::size_t stride) {
  const gram_operands o{begin, column.data(), value.data(), both, both + stride, stride};
  add_gram_here(o);
}

}  // namespace paracel::alg
