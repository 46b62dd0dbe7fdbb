// SPDX-License-Identifier: BSD-3-Clause
//
// IEEE 754 binary16, "half precision": a sign, 5 bits of exponent, 10 of mantissa. Rounded to nearest, ties to even, as
// the instructions of the F16C extension do; these are used where the processor has them, with the same bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace paracel {

/// Finite numbers from here on are rounded to infinity; below it, to at most 65504.
inline constexpr double half_overflow = 65520;

/// The nearest half. A NaN stays one, with the upper bits of its payload.
constexpr std::uint16_t half_of(float f) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(f);
  const auto sign = static_cast<std::uint16_t>(bits >> 16U & 0x8000U);
  const auto exponent = bits >> 23U & 0xffU;
  const auto fraction = bits & 0x7fffffU;
  if (exponent == 0xff && fraction != 0) return static_cast<std::uint16_t>(sign | 0x7e00U | fraction >> 13U);
  if (exponent >= 143) return static_cast<std::uint16_t>(sign | 0x7c00U);  // 2^16 and more
  // f = mantissa * 2^(exponent - 150); halves below 2^-14 (exponent 113) are multiples of 2^-24.
  const auto excess = exponent < 113 ? 126 - exponent : 13;  // bits of the mantissa that a half has no room for
  if (excess > 24) return sign;                              // below 2^-25
  const auto mantissa = fraction | 0x800000U;
  const auto rest = mantissa & ((1U << excess) - 1);
  const auto tie = 1U << (excess - 1);
  auto kept = mantissa >> excess;
  if (rest > tie || (rest == tie && (kept & 1U) != 0)) ++kept;
  // A carry out of the mantissa is one into the exponent, and at its greatest yields infinity.
  return static_cast<std::uint16_t>(sign | (exponent < 113 ? kept : ((exponent - 113) << 10U) + kept));
}

/// The same of a double, without rounding twice: a float that is not exact gets an odd mantissa on the way, so it is
/// never a tie.
constexpr std::uint16_t half_of(double d) noexcept {
  const auto f = static_cast<float>(d);
  const auto bits = std::bit_cast<std::uint32_t>(f);
  if (static_cast<double>(f) == d || d != d || (bits & 1U) != 0 || (bits & 0x7fffffffU) == 0x7f800000U)
    return half_of(f);
  const auto magnitude = [](double x) { return x < 0 ? -x : x; };
  return half_of(std::bit_cast<float>(magnitude(d) > magnitude(f) ? bits + 1 : bits - 1));
}

/// Exact.
constexpr float float_of_half(std::uint16_t h) noexcept {
  const auto sign = static_cast<std::uint32_t>(h & 0x8000U) << 16U;
  const auto exponent = static_cast<std::uint32_t>(h >> 10U & 31U);
  const auto fraction = static_cast<std::uint32_t>(h & 0x3ffU);
  if (exponent == 31) {
    const auto quiet = fraction != 0 ? 0x400000U : 0U;
    return std::bit_cast<float>(sign | 0x7f800000U | quiet | fraction << 13U);
  }
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23U | fraction << 13U);
  const auto magnitude = static_cast<float>(fraction) * 0x1p-24F;
  return sign != 0 ? -magnitude : magnitude;
}

/// Arrays of them. The halves may have any alignment. Cost: with F16C under half a nanosecond a float.
void to_halves(const float* from, std::size_t count, std::byte* to) noexcept;
void to_halves(const double* from, std::size_t count, std::byte* to) noexcept;
void from_halves(const std::byte* from, std::size_t count, float* to) noexcept;
void from_halves(const std::byte* from, std::size_t count, double* to) noexcept;

/// The same by the functions above, on any processor.
void to_halves_portably(const float* from, std::size_t count, std::byte* to) noexcept;
void from_halves_portably(const std::byte* from, std::size_t count, float* to) noexcept;

}  // namespace paracel
