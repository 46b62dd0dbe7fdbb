// SPDX-License-Identifier: BSD-3-Clause
#include "core/half.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace paracel {

namespace {

// Halves of doubles are converted through floats, so many at a time.
constexpr std::size_t halves_at_once = 64;

#if defined(__x86_64__)

bool has_f16c() noexcept {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx") == 0) return false;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;  // not every __builtin_cpu_supports knows it
}

const bool uses_f16c = has_f16c();

[[gnu::target("avx,f16c")]] void to_halves_f16c(const float* from, std::size_t count, std::byte* to) noexcept {
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * 2), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), nearest));
  if (i == count) return;
  std::array<float, 8> last{};
  std::copy(from + i, from + count, last.begin());
  const auto halves = _mm256_cvtps_ph(_mm256_loadu_ps(last.data()), nearest);
  std::memcpy(to + i * 2, &halves, (count - i) * 2);
}

[[gnu::target("avx,f16c")]] void from_halves_f16c(const std::byte* from, std::size_t count, float* to) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * 2))));
  if (i == count) return;
  auto halves = _mm_setzero_si128();
  std::memcpy(&halves, from + i * 2, (count - i) * 2);
  std::array<float, 8> last{};
  _mm256_storeu_ps(last.data(), _mm256_cvtph_ps(halves));
  std::copy_n(last.begin(), count - i, to + i);
}

#else

constexpr bool uses_f16c = false;
void to_halves_f16c(const float*, std::size_t, std::byte*) noexcept {}
void from_halves_f16c(const std::byte*, std::size_t, float*) noexcept {}

#endif

}  // namespace

void to_halves_portably(const float* from, std::size_t count, std::byte* to) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const auto h = half_of(from[i]);
    std::memcpy(to + i * sizeof h, &h, sizeof h);
  }
}

void from_halves_portably(const std::byte* from, std::size_t count, float* to) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t h = 0;
    std::memcpy(&h, from + i * sizeof h, sizeof h);
    to[i] = float_of_half(h);
  }
}

void to_halves(const float* from, std::size_t count, std::byte* to) noexcept {
  if (uses_f16c) to_halves_f16c(from, count, to);
  else to_halves_portably(from, count, to);
}

void from_halves(const std::byte* from, std::size_t count, float* to) noexcept {
  if (uses_f16c) from_halves_f16c(from, count, to);
  else from_halves_portably(from, count, to);
}

void to_halves(const double* from, std::size_t count, std::byte* to) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const auto h = half_of(from[i]);
    std::memcpy(to + i * sizeof h, &h, sizeof h);
  }
}

void from_halves(const std::byte* from, std::size_t count, double* to) noexcept {
  std::array<float, halves_at_once> some;
  for (std::size_t i = 0; i < count; i += some.size()) {
    const auto n = std::min(some.size(), count - i);
    from_halves(from + i * 2, n, some.data());
    std::copy_n(some.begin(), n, to + i);
  }
}

}  // namespace paracel
