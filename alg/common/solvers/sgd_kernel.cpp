// SPDX-License-Identifier: BSD-3-Clause
#include "sgd_kernel.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "cpu_dispatch.hpp"
#include "factor_kernels.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace paracel::alg {

namespace {

/// The constants of a step in the type of the factors.
template <class Real>
struct sgd_numbers {
  explicit sgd_numbers(const sgd_step& s)
      : k(s.k),
        mean(static_cast<Real>(s.mean)),
        pull(static_cast<Real>(2 * s.alpha)),
        shrink(static_cast<Real>(s.alpha * s.beta)) {}
  std::size_t k;
  Real mean, pull, shrink;
};

// How many ratings of a user ahead item rows are prefetched.
constexpr std::size_t sgd_ahead = 2;

template <class Real>
[[gnu::always_inline]] inline void fetch_row(const Real* row, std::size_t k) {
  const auto* at = reinterpret_cast<const char*>(row);
  const auto* const end = reinterpret_cast<const char*>(row + row_width(k));
  for (; at < end; at += 64) __builtin_prefetch(at, 1);
}

/// The ratings of a user that are left.
template <class Real>
struct lane {
  Real* user;
  std::uint64_t at, end;
};

/// The ratings of a run may be anywhere in memory.
template <class Real>
[[gnu::always_inline]] inline void fetch_run(const sgd_runs<Real>& runs, std::size_t j) {
  if (j >= runs.user.size()) return;
  constexpr std::uint64_t line = 64;
  for (auto at = runs.begin[j]; at < runs.end[j]; at += line / sizeof(Real)) __builtin_prefetch(&runs.value[at]);
  for (auto at = runs.begin[j]; at < runs.end[j]; at += line / sizeof(std::uint32_t))
    __builtin_prefetch(&runs.column[at]);
}

/// Calls one(numbers, user's row, item's row, rating) for each rating, in the order of sgd_pass. Returns: the sum of
/// its squared results.
template <class Real, class Step>
[[gnu::always_inline]] inline double each_rating(const sgd_step& step, Real* users, Real* items,
                                                 const sgd_runs<Real>& runs, Step&& one) {
  const sgd_numbers<Real> numbers(step);
  const std::size_t width = row_width(step.k);
  const auto row = [&](std::uint64_t at) { return items + runs.slot[runs.column[at]] * width; };
  std::size_t next = 0;  // run
  const auto take = [&](lane<Real>& to) {
    if (next == runs.user.size()) return false;
    to = {users + runs.user[next] * width, runs.begin[next], runs.end[next]};
    fetch_run(runs, ++next + sgd_lanes);
    if (next < runs.user.size()) fetch_row(users + runs.user[next] * width, step.k);
    return true;
  };
  std::array<lane<Real>, sgd_lanes> lanes;
  std::size_t count = 0;
  while (count < sgd_lanes && take(lanes[count])) ++count;
  double loss = 0;
  while (count > 0) {
    for (std::size_t l = 0; l < count; ++l) {
      auto& here = lanes[l];
      fetch_row(row(std::min(here.at + sgd_ahead, here.end - 1)), step.k);
      const double e = one(numbers, here.user, row(here.at), runs.value[here.at]);
      loss += e * e;
      if (++here.at < here.end || take(here)) continue;
      std::copy(lanes.begin() + static_cast<std::ptrdiff_t>(l) + 1, lanes.begin() + static_cast<std::ptrdiff_t>(count),
                lanes.begin() + static_cast<std::ptrdiff_t>(l));
      --count;
      --l;
    }
  }
  return loss;
}

template <class Real>
Real step_plain(const sgd_numbers<Real>& s, Real* __restrict user, Real* __restrict row, Real value) {
  Real* __restrict w = user + factors_at;
  Real* __restrict h = row + factors_at;
  Real lane[8] = {};  // so that the compiler can vectorise without reordering additions
  std::size_t j = 0;
  for (; j + 8 <= s.k; j += 8) {
    for (std::size_t l = 0; l < 8; ++l) lane[l] += w[j + l] * h[j + l];
  }
  Real product = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  for (; j < s.k; ++j) product += w[j] * h[j];
  const Real e = value - s.mean - user[bias_at] - row[bias_at] - product;
  const Real pull = s.pull * e;
  for (j = 0; j < s.k; ++j) {
    const Real old_w = w[j];
    const Real old_h = h[j];
    w[j] = old_w - s.shrink * old_w + pull * old_h;
    h[j] = old_h - s.shrink * old_h + pull * old_w;
  }
  user[bias_at] += pull - s.shrink * user[bias_at];
  row[bias_at] += pull - s.shrink * row[bias_at];
  return e;
}

template <class Real>
double pass_plain(const sgd_step& step, Real* users, Real* items, const sgd_runs<Real>& runs) {
  return each_rating(step, users, items, runs, step_plain<Real>);
}

#if defined(__x86_64__)
// 32-byte registers of either type. From plain loops the compiler adds the lanes of a dot product through memory, on
// the critical path from one step to the next: with k 32 a step of floats took 27 ns that way, 20 ns like this.
PARACEL_AVX2_INLINE __m256 wide_load(const float* p) { return _mm256_loadu_ps(p); }
PARACEL_AVX2_INLINE __m256d wide_load(const double* p) { return _mm256_loadu_pd(p); }
PARACEL_AVX2_INLINE void wide_store(float* p, __m256 v) { _mm256_storeu_ps(p, v); }
PARACEL_AVX2_INLINE void wide_store(double* p, __m256d v) { _mm256_storeu_pd(p, v); }
PARACEL_AVX2_INLINE __m256 wide_all(float v) { return _mm256_set1_ps(v); }
PARACEL_AVX2_INLINE __m256d wide_all(double v) { return _mm256_set1_pd(v); }
PARACEL_AVX2_INLINE __m256 wide_add(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
PARACEL_AVX2_INLINE __m256d wide_add(__m256d a, __m256d b) { return _mm256_add_pd(a, b); }
/// a b + c
PARACEL_AVX2_INLINE __m256 wide_fma(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
PARACEL_AVX2_INLINE __m256d wide_fma(__m256d a, __m256d b, __m256d c) { return _mm256_fmadd_pd(a, b, c); }
/// c - a b
PARACEL_AVX2_INLINE __m256 wide_less(__m256 a, __m256 b, __m256 c) { return _mm256_fnmadd_ps(a, b, c); }
PARACEL_AVX2_INLINE __m256d wide_less(__m256d a, __m256d b, __m256d c) { return _mm256_fnmadd_pd(a, b, c); }
PARACEL_AVX2_INLINE float wide_sum(__m256 v) {
  const auto four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const auto two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
PARACEL_AVX2_INLINE double wide_sum(__m256d v) {
  const auto two = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

template <class Real>
PARACEL_AVX2 inline Real step_wide(const sgd_numbers<Real>& s, Real* user, Real* row, Real value) {
  constexpr std::size_t lanes = 32 / sizeof(Real);
  Real* const w = user + factors_at;
  Real* const h = row + factors_at;
  auto even = wide_all(Real{0});
  auto odd = even;
  std::size_t j = 0;
  for (; j + 2 * lanes <= s.k; j += 2 * lanes) {
    even = wide_fma(wide_load(w + j), wide_load(h + j), even);
    odd = wide_fma(wide_load(w + j + lanes), wide_load(h + j + lanes), odd);
  }
  if (j + lanes <= s.k) {
    even = wide_fma(wide_load(w + j), wide_load(h + j), even);
    j += lanes;
  }
  Real product = wide_sum(wide_add(even, odd));
  for (; j < s.k; ++j) product += w[j] * h[j];
  const Real e = value - s.mean - user[bias_at] - row[bias_at] - product;
  const Real pull = s.pull * e;
  const auto shrinks = wide_all(s.shrink);
  const auto pulls = wide_all(pull);
  for (j = 0; j + lanes <= s.k; j += lanes) {
    const auto old_w = wide_load(w + j);
    const auto old_h = wide_load(h + j);
    wide_store(w + j, wide_fma(pulls, old_h, wide_less(shrinks, old_w, old_w)));
    wide_store(h + j, wide_fma(pulls, old_w, wide_less(shrinks, old_h, old_h)));
  }
  for (; j < s.k; ++j) {
    const Real old_w = w[j];
    const Real old_h = h[j];
    w[j] = old_w - s.shrink * old_w + pull * old_h;
    h[j] = old_h - s.shrink * old_h + pull * old_w;
  }
  user[bias_at] += pull - s.shrink * user[bias_at];
  row[bias_at] += pull - s.shrink * row[bias_at];
  return e;
}

template <class Real>
PARACEL_AVX2 double pass_wide(const sgd_step& step, Real* users, Real* items, const sgd_runs<Real>& runs) {
  return each_rating(step, users, items, runs, step_wide<Real>);
}

#endif

template <class Real>
double (*pass_here())(const sgd_step&, Real*, Real*, const sgd_runs<Real>&) {
#if defined(__x86_64__)
  if (has_avx2()) return pass_wide<Real>;
#endif
  return pass_plain<Real>;
}

}  // namespace

template <class Real>
double sgd_pass(const sgd_step& step, Real* users, Real* items, const sgd_runs<Real>& runs) noexcept {
  static auto* const here = pass_here<Real>();
  return here(step, users, items, runs);
}

template double sgd_pass(const sgd_step&, float*, float*, const sgd_runs<float>&) noexcept;
template double sgd_pass(const sgd_step&, double*, double*, const sgd_runs<double>&) noexcept;

}  // namespace paracel::alg
