// SPDX-License-Identifier: BSD-3-Clause
#include "word2vec_kernel.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "alg/common/solvers/cpu_dispatch.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace paracel::alg {

namespace {

constexpr std::size_t block = 8;  // numbers that are updated at once

/// What a step works on. `products` has room for inputs * outputs numbers, rounded up to a multiple of 8.
struct small_step {
  float* const* x;
  std::size_t inputs;
  float* const* y;
  std::size_t outputs;
  std::size_t stride;
  float* products;
  float* moves;
};

// ---- for any processor

void products_plain(const small_step& s) {
  for (std::size_t m = 0; m < s.inputs; ++m) {
    for (std::size_t k = 0; k < s.outputs; ++k) {
      const float* __restrict x = s.x[m];
      const float* __restrict y = s.y[k];
      float lane[block] = {};  // so that the compiler can vectorise without reordering additions
      for (std::size_t j = 0; j < s.stride; j += block) {
        for (std::size_t l = 0; l < block; ++l) lane[l] += x[j + l] * y[j + l];
      }
      s.products[m * s.outputs + k] =
          ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
    }
  }
}

/// products = -alpha sigma(products)
void slopes_plain(const small_step& s, float alpha) {
  for (std::size_t i = 0; i < s.inputs * s.outputs; ++i) s.products[i] = -alpha / (1 + std::exp(-s.products[i]));
}

/// Moves are added at the end, so that all are computed from the rows before the step.
void update_plain(const small_step& s) {
  for (std::size_t j = 0; j < s.stride; j += block) {
    std::fill(s.moves, s.moves + s.inputs * block, 0.0F);
    for (std::size_t k = 0; k < s.outputs; ++k) {
      float* y = s.y[k] + j;
      float move[block] = {};
      for (std::size_t m = 0; m < s.inputs; ++m) {
        const float g = s.products[m * s.outputs + k];
        const float* x = s.x[m] + j;
        float* __restrict to = s.moves + m * block;
        for (std::size_t l = 0; l < block; ++l) {
          to[l] += g * y[l];
          move[l] += g * x[l];
        }
      }
      for (std::size_t l = 0; l < block; ++l) s.moves[(s.inputs + k) * block + l] = move[l];
    }
    for (std::size_t k = 0; k < s.outputs; ++k) {
      for (std::size_t l = 0; l < block; ++l) s.y[k][j + l] += s.moves[(s.inputs + k) * block + l];
    }
    for (std::size_t m = 0; m < s.inputs; ++m) {
      for (std::size_t l = 0; l < block; ++l) s.x[m][j + l] += s.moves[m * block + l];
    }
  }
}

#if defined(__x86_64__)
PARACEL_AVX2_INLINE float sum_of_lanes(__m256 v) {
  const auto four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const auto two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/// Rows x Columns products at once: each number is loaded once, and the sums stay in registers.
template <int Rows, int Columns>
PARACEL_AVX2_INLINE void products_tile(float* const* x, float* const* y, std::size_t stride, float* to,
                                       std::size_t outputs) {
  __m256 sum[Rows][Columns];
#pragma GCC unroll 8
  for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 8
    for (int k = 0; k < Columns; ++k) sum[m][k] = _mm256_setzero_ps();
  }
  for (std::size_t j = 0; j < stride; j += block) {
    __m256 a[Rows];
#pragma GCC unroll 8
    for (int m = 0; m < Rows; ++m) a[m] = _mm256_load_ps(x[m] + j);
#pragma GCC unroll 8
    for (int k = 0; k < Columns; ++k) {
      const auto b = _mm256_load_ps(y[k] + j);
#pragma GCC unroll 8
      for (int m = 0; m < Rows; ++m) sum[m][k] = _mm256_fmadd_ps(a[m], b, sum[m][k]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 8
    for (int k = 0; k < Columns; ++k)
      to[static_cast<std::size_t>(m) * outputs + static_cast<std::size_t>(k)] = sum_of_lanes(sum[m][k]);
  }
}

template <int Columns>
PARACEL_AVX2 void products_of(const small_step& s, std::size_t first) {
  std::size_t m = 0;
  for (; m + 2 <= s.inputs; m += 2)
    products_tile<2, Columns>(s.x + m, s.y + first, s.stride, s.products + m * s.outputs + first, s.outputs);
  if (m < s.inputs)
    products_tile<1, Columns>(s.x + m, s.y + first, s.stride, s.products + m * s.outputs + first, s.outputs);
}

PARACEL_AVX2 void products_wide(const small_step& s) {
  std::size_t k = 0;
  for (; k + 6 <= s.outputs; k += 6) products_of<6>(s, k);
  switch (s.outputs - k) {
    case 5:
      return products_of<5>(s, k);
    case 4:
      return products_of<4>(s, k);
    case 3:
      return products_of<3>(s, k);
    case 2:
      return products_of<2>(s, k);
    case 1:
      return products_of<1>(s, k);
    default:
      return;
  }
}

/// exp(x) for x in [-87, 87], to 2e-7 relative. Source: a polynomial on [-log(2)/2, log(2)/2], Cephes' expf.
PARACEL_AVX2_INLINE __m256 exp_wide(__m256 x) {
  const auto n =
      _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504F)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  auto r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375F), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4F), r);
  auto p = _mm256_set1_ps(1.9875691500e-4F);
  for (const float c : {1.3981999507e-3F, 8.3334519073e-3F, 4.1665795894e-2F, 1.6666665459e-1F, 5.0000001201e-1F})
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(c));
  p = _mm256_fmadd_ps(_mm256_mul_ps(p, r), r, _mm256_add_ps(r, _mm256_set1_ps(1)));
  const auto power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(p, _mm256_castsi256_ps(power));
}

PARACEL_AVX2 void slopes_wide(const small_step& s, float alpha) {
  const auto one = _mm256_set1_ps(1);
  for (std::size_t i = 0; i < s.inputs * s.outputs; i += block) {
    auto x = _mm256_loadu_ps(s.products + i);
    x = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-80)), _mm256_set1_ps(80));
    const auto e = exp_wide(_mm256_sub_ps(_mm256_setzero_ps(), x));
    _mm256_storeu_ps(s.products + i, _mm256_div_ps(_mm256_set1_ps(-alpha), _mm256_add_ps(one, e)));
  }
}

/// Eight numbers of all rows, for the outputs from `first` on.
template <int Columns>
PARACEL_AVX2 void update_of(const small_step& s, std::size_t first, std::size_t j) {
  __m256 y[Columns];
  __m256 move[Columns];
#pragma GCC unroll 8
  for (int k = 0; k < Columns; ++k) {
    y[k] = _mm256_load_ps(s.y[first + static_cast<std::size_t>(k)] + j);
    move[k] = _mm256_setzero_ps();
  }
  for (std::size_t m = 0; m < s.inputs; ++m) {
    const float* g = s.products + m * s.outputs + first;
    const auto x = _mm256_load_ps(s.x[m] + j);
    auto to = first == 0 ? _mm256_setzero_ps() : _mm256_loadu_ps(s.moves + m * block);
#pragma GCC unroll 8
    for (int k = 0; k < Columns; ++k) {
      const auto slope = _mm256_broadcast_ss(g + k);
      to = _mm256_fmadd_ps(slope, y[k], to);
      move[k] = _mm256_fmadd_ps(slope, x, move[k]);
    }
    _mm256_storeu_ps(s.moves + m * block, to);
  }
#pragma GCC unroll 8
  for (int k = 0; k < Columns; ++k)
    _mm256_storeu_ps(s.moves + (s.inputs + first + static_cast<std::size_t>(k)) * block, move[k]);
}

PARACEL_AVX2 void update_wide(const small_step& s) {
  for (std::size_t j = 0; j < s.stride; j += block) {
    std::size_t k = 0;
    for (; k + 6 <= s.outputs; k += 6) update_of<6>(s, k, j);
    switch (s.outputs - k) {
      case 5:
        update_of<5>(s, k, j);
        break;
      case 4:
        update_of<4>(s, k, j);
        break;
      case 3:
        update_of<3>(s, k, j);
        break;
      case 2:
        update_of<2>(s, k, j);
        break;
      case 1:
        update_of<1>(s, k, j);
        break;
      default:
        break;
    }
    for (std::size_t m = 0; m < s.inputs; ++m)
      _mm256_store_ps(s.x[m] + j, _mm256_add_ps(_mm256_load_ps(s.x[m] + j), _mm256_loadu_ps(s.moves + m * block)));
    for (k = 0; k < s.outputs; ++k)
      _mm256_store_ps(s.y[k] + j,
                      _mm256_add_ps(_mm256_load_ps(s.y[k] + j), _mm256_loadu_ps(s.moves + (s.inputs + k) * block)));
  }
}
#endif

struct step_functions {
  void (*products)(const small_step&) = products_plain;
  void (*slopes)(const small_step&, float) = slopes_plain;
  void (*update)(const small_step&) = update_plain;
};

step_functions functions_here() {
#if defined(__x86_64__)
  if (has_avx2()) return {products_wide, slopes_wide, update_wide};
#endif
  return {};
}

/// -log sigma(x)
double minus_log_sigma(double x) { return std::log1p(std::exp(-std::abs(x))) + std::max(-x, 0.0); }

}  // namespace

void padded_rows::set(std::span<const float> rows) {
  const auto count = rows.size() / width_;
  if (memory_.size() < count * stride_ + lanes) {
    memory_.assign(count * stride_ + lanes, 0.0F);
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.data()) / sizeof(float);
    begin_ = memory_.data() + (lanes - at % lanes) % lanes;
  }
  for (std::size_t i = 0; i < count; ++i) std::copy_n(rows.data() + i * width_, width_, row(i));
}

double word2vec_kernel::step(std::span<float* const> inputs, std::span<float* const> outputs,
                             std::span<const float> labels, float alpha, bool measure) {
  static const step_functions here = functions_here();
  const auto pairs = inputs.size() * outputs.size();
  if (products_.size() < pairs + block) products_.resize(pairs + block);
  if (moves_.size() < (inputs.size() + outputs.size()) * block) moves_.resize((inputs.size() + outputs.size()) * block);
  const small_step s{inputs.data(), inputs.size(),    outputs.data(), outputs.size(),
                     stride_,       products_.data(), moves_.data()};
  here.products(s);
  double loss = 0;
  if (measure) {
    for (std::size_t i = 0; i < pairs; ++i)
      loss += minus_log_sigma(labels[i % outputs.size()] > 0 ? products_[i] : -products_[i]);
  }
  here.slopes(s, alpha);
  for (std::size_t m = 0; m < inputs.size(); ++m) {
    for (std::size_t k = 0; k < outputs.size(); ++k) products_[m * outputs.size() + k] += alpha * labels[k];
  }
  here.update(s);
  return loss;
}

}  // namespace paracel::alg
