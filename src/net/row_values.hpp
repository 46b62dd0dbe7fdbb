// SPDX-License-Identifier: BSD-3-Clause
//
// Rows of numbers in fewer bits than they are stored with (paracel::wire_format), as requests with flag_f16 or flag_i8
// and the replies to them carry them:
//
//   f16    width * binary16
//   i8     f32 scale | width * int8      a number is scale * int8
//
// The scale of i8 is a 127th of the row's greatest absolute value, the norm that 8-bit quantisation uses most
// (Dettmers, "8-bit approximations for parallelism in deep learning", ICLR 2016; with it as the norm, the quantiser of
// Alistarh et al., "QSGD", NIPS 2017, rounded to nearest). A row with a NaN or an infinity has a NaN as its scale, and
// is one of NaN; with f16 these are sent number by number. i8 sends a row whose greatest absolute value is
// below 1.5e-36 as zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <paracel/detail/value.hpp>
#include <paracel/detail/wire_format.hpp>

#include "net/protocol.hpp"

namespace paracel::net {

/// The greatest absolute value of an int8 that is sent.
inline constexpr int greatest_i8 = 127;

constexpr const char* name_of(wire_format f) noexcept {
  return f == wire_format::f16 ? "f16" : f == wire_format::i8 ? "i8" : "full";
}
constexpr std::uint16_t flag_of(wire_format f) noexcept {
  return f == wire_format::f16 ? flag_f16 : f == wire_format::i8 ? flag_i8 : std::uint16_t{0};
}
/// Nothing: the flags contradict each other.
constexpr std::optional<wire_format> format_of(std::uint16_t flags) noexcept {
  switch (flags & (flag_f16 | flag_i8)) {
    case 0:
      return wire_format::full;
    case flag_f16:
      return wire_format::f16;
    case flag_i8:
      return wire_format::i8;
    default:
      return {};
  }
}
constexpr bool can_be_quantised(value_tag element) noexcept {
  return element == value_tag::f32 || element == value_tag::f64;
}
/// Calls f with a float or, for any other element, a double.
template <class F>
void with_real(value_tag element, const F& f) {
  if (element == value_tag::f32) f(float{});
  else f(double{});
}
/// Bytes of a row.
constexpr std::size_t wire_bytes(wire_format f, value_tag element, std::size_t width) noexcept {
  switch (f) {
    case wire_format::f16:
      return width * 2;
    case wire_format::i8:
      return sizeof(float) + width;
    default:
      return width * element_bytes(element);
  }
}

/// Writes a row of floats or doubles, aligned as such, as f16 or i8; `to` may have any alignment. Numbers beyond what
/// the format can hold become its greatest one.
void quantise(wire_format f, value_tag element, const std::byte* row, std::size_t width, std::byte* to) noexcept;
/// The reverse, of `count` rows. The same bytes give the same numbers on both sides.
void dequantise(wire_format f, value_tag element, const std::byte* from, std::size_t count, std::size_t width,
                std::byte* rows) noexcept;
/// The first number of a row that the format cannot hold, though it is finite; nothing: there is none.
std::optional<double> beyond(wire_format f, value_tag element, const std::byte* row, std::size_t width) noexcept;

}  // namespace paracel::net
