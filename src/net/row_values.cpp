// SPDX-License-Identifier: BSD-3-Clause
#include "net/row_values.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include <paracel/detail/bytes.hpp>

#include "core/half.hpp"

namespace paracel::net {

namespace {

/// The greatest absolute value; not finite if one of them is not. As integers, since the bits of positive numbers are
/// in the order of the numbers: compilers vectorise this without -ffast-math.
template <class T>
[[gnu::always_inline]] inline T magnitude_of_row(const T* row, std::size_t width) noexcept {
  using bits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  bits greatest = 0;
  for (std::size_t j = 0; j < width; ++j) {
    const auto magnitude = std::bit_cast<bits>(row[j]) & std::numeric_limits<bits>::max();
    greatest = magnitude > greatest ? magnitude : greatest;
  }
  return std::bit_cast<T>(greatest);
}

template <class T>
[[gnu::always_inline]] inline void scale_to_i8(const T* row, std::size_t width, T inverse, std::int8_t* out) noexcept {
  // Adding 1.5 * 2^23 rounds a small float to the nearest integer, which is then in its lowest bits.
  constexpr float rounding = 0x1.8p23F;
  constexpr auto limit = static_cast<float>(greatest_i8);
  for (std::size_t j = 0; j < width; ++j) {
    auto q = static_cast<float>(row[j] * inverse);
    if constexpr (std::is_same_v<T, double>) {  // of floats the scale is never limited
      q = q > limit ? limit : q;
      q = q < -limit ? -limit : q;
    }
    out[j] =
        static_cast<std::int8_t>(std::bit_cast<std::int32_t>(q + rounding) - std::bit_cast<std::int32_t>(rounding));
  }
}

template <class T>
[[gnu::always_inline]] inline void scale_from_i8(const std::int8_t* q, std::size_t width, T scale, T* row) noexcept {
  for (std::size_t j = 0; j < width; ++j) row[j] = scale * static_cast<T>(q[j]);
}

// The same for floats by wider vectors. Without FMA, so that the bits are those of other processors.
#if defined(__x86_64__)
const bool uses_avx2 = [] {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") != 0;
}();
[[gnu::target("avx2")]] float magnitude_avx2(const float* row, std::size_t width) noexcept {
  return magnitude_of_row(row, width);
}
[[gnu::target("avx2")]] void to_i8_avx2(const float* row, std::size_t width, float inverse, std::int8_t* out) noexcept {
  scale_to_i8(row, width, inverse, out);
}
[[gnu::target("avx2")]] void from_i8_avx2(const std::int8_t* q, std::size_t width, float scale, float* row) noexcept {
  scale_from_i8(q, width, scale, row);
}
#else
constexpr bool uses_avx2 = false;
float magnitude_avx2(const float* row, std::size_t width) noexcept { return magnitude_of_row(row, width); }
void to_i8_avx2(const float*, std::size_t, float, std::int8_t*) noexcept {}
void from_i8_avx2(const std::int8_t*, std::size_t, float, float*) noexcept {}
#endif

template <class T>
T greatest_magnitude(const T* row, std::size_t width) noexcept {
  if constexpr (std::is_same_v<T, float>)
    if (uses_avx2) return magnitude_avx2(row, width);
  return magnitude_of_row(row, width);
}

template <class T>
void to_f16(const T* row, std::size_t width, std::byte* to) noexcept {
  to_halves(row, width, to);
  if (greatest_magnitude(row, width) < static_cast<T>(half_overflow)) return;
  constexpr std::uint16_t greatest_half = 0x7bff;
  for (std::size_t j = 0; j < width; ++j) {
    if (!std::isfinite(row[j]) || std::abs(row[j]) < static_cast<T>(half_overflow)) continue;
    const auto h = static_cast<std::uint16_t>(greatest_half | (std::signbit(row[j]) ? 0x8000U : 0U));
    store_fields(to + j * sizeof h, h);
  }
}

/// Of a row with this greatest absolute value.
template <class T>
float scale_for(T greatest) noexcept {
  if (!std::isfinite(greatest)) return std::numeric_limits<float>::quiet_NaN();
  const auto scale = greatest / greatest_i8;
  if (scale > static_cast<T>(std::numeric_limits<float>::max())) return std::numeric_limits<float>::max();
  // Below it a float has fewer bits, and its inverse may overflow.
  if (scale < static_cast<T>(std::numeric_limits<float>::min())) return 0;
  const auto rounded = static_cast<float>(scale);
  return std::isfinite(static_cast<T>(rounded) * greatest_i8) ? rounded : std::nextafter(rounded, 0.0F);
}

template <class T>
void to_i8(const T* row, std::size_t width, std::byte* to) noexcept {
  const auto scale = scale_for(greatest_magnitude(row, width));
  auto* numbers = store_fields(to, scale);
  if (!(scale > 0)) {
    std::memset(numbers, 0, width);
    return;
  }
  const auto inverse = static_cast<T>(1) / static_cast<T>(scale);
  auto* out = reinterpret_cast<std::int8_t*>(numbers);
  if constexpr (std::is_same_v<T, float>)
    if (uses_avx2) return to_i8_avx2(row, width, inverse, out);
  scale_to_i8(row, width, inverse, out);
}

template <class T>
void from_i8(const std::byte* from, std::size_t width, T* row) noexcept {
  float scale = 0;
  load_fields(from, scale);
  const auto* q = reinterpret_cast<const std::int8_t*>(from + sizeof scale);
  if constexpr (std::is_same_v<T, float>)
    if (uses_avx2) return from_i8_avx2(q, width, scale, row);
  scale_from_i8(q, width, static_cast<T>(scale), row);
}

}  // namespace

void quantise(wire_format f, value_tag element, const std::byte* row, std::size_t width, std::byte* to) noexcept {
  with_real(element, [&]<class T>(T) {
    const auto* numbers = reinterpret_cast<const T*>(row);
    if (f == wire_format::f16) to_f16(numbers, width, to);
    else to_i8(numbers, width, to);
  });
}

void dequantise(wire_format f, value_tag element, const std::byte* from, std::size_t count, std::size_t width,
                std::byte* rows) noexcept {
  with_real(element, [&]<class T>(T) {
    auto* numbers = reinterpret_cast<T*>(rows);
    if (f == wire_format::f16) return from_halves(from, count * width, numbers);
    const auto bytes = wire_bytes(f, element, width);
    for (std::size_t i = 0; i < count; ++i) from_i8(from + i * bytes, width, numbers + i * width);
  });
}

std::optional<double> beyond(wire_format f, value_tag element, const std::byte* row, std::size_t width) noexcept {
  std::optional<double> found;
  with_real(element, [&]<class T>(T) {
    const auto* numbers = reinterpret_cast<const T*>(row);
    // The greatest scale is the greatest float.
    const auto end = f == wire_format::f16 ? half_overflow : 0x1p128 * greatest_i8;
    if (static_cast<double>(greatest_magnitude(numbers, width)) < end) return;
    for (std::size_t j = 0; j < width; ++j) {
      const auto x = static_cast<double>(numbers[j]);
      if (!std::isfinite(x) || std::abs(x) < end) continue;
      found = x;
      return;
    }
  });
  return found;
}

}  // namespace paracel::net
