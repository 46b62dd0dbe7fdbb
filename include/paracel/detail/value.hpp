// SPDX-License-Identifier: BSD-3-Clause
//
// A value as everything below the typed interface sees it: bytes and a one-byte type tag. Numbers and arrays of numbers
// are raw little-endian, so that a server can change them in place; every other type is MessagePack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

namespace paracel {

/// Type tag of a value. Bit 4 says array; the low nibble is the element. The numbers are part of the wire format.
enum class value_tag : std::uint8_t {
  none = 0x00,  ///< no value
  i32 = 0x01,   ///< one number, 4 bytes
  i64 = 0x02,
  f32 = 0x03,
  f64 = 0x04,
  packed = 0x0f,  ///< one MessagePack object
  i32_array = 0x11,
  i64_array = 0x12,
  f32_array = 0x13,
  f64_array = 0x14,
};

/// True for the tags known to this version.
constexpr bool is_known(value_tag t) noexcept {
  switch (t) {
    case value_tag::none:
    case value_tag::i32:
    case value_tag::i64:
    case value_tag::f32:
    case value_tag::f64:
    case value_tag::packed:
    case value_tag::i32_array:
    case value_tag::i64_array:
    case value_tag::f32_array:
    case value_tag::f64_array:
      return true;
  }
  return false;
}
constexpr bool is_array(value_tag t) noexcept { return (static_cast<unsigned>(t) & 0x10U) != 0; }
constexpr bool is_numeric(value_tag t) noexcept { return t != value_tag::none && t != value_tag::packed; }
/// The tag of one element of `t`; `t` itself when it is not an array.
constexpr value_tag element_of(value_tag t) noexcept {
  return static_cast<value_tag>(static_cast<unsigned>(t) & 0x0fU);
}
/// Bytes of one element: 4 or 8; 1 for packed, 0 for none.
constexpr std::size_t element_bytes(value_tag t) noexcept {
  switch (element_of(t)) {
    case value_tag::i32:
    case value_tag::f32:
      return 4;
    case value_tag::i64:
    case value_tag::f64:
      return 8;
    case value_tag::packed:
      return 1;
    default:
      return 0;
  }
}
/// The name used in error texts: "f64 array", "packed", ...
const char* name_of(value_tag t) noexcept;

/// The number types that are stored raw.
template <class T>
concept raw_number = std::is_same_v<T, float> || std::is_same_v<T, double> ||
    (std::is_integral_v<T>&& std::is_signed_v<T> && !std::is_same_v<T, char> && !std::is_same_v<T, bool> &&
     (sizeof(T) == 4 || sizeof(T) == 8));

/// The tag under which one T is stored raw.
template <raw_number T>
constexpr value_tag tag_of() noexcept {
  if constexpr (std::is_same_v<T, float>) return value_tag::f32;
  else if constexpr (std::is_same_v<T, double>) return value_tag::f64;
  else if constexpr (sizeof(T) == 4) return value_tag::i32;
  else return value_tag::i64;
}
template <raw_number T>
constexpr value_tag array_tag_of() noexcept {
  return static_cast<value_tag>(static_cast<unsigned>(tag_of<T>()) | 0x10U);
}

/// A non-owning view of a value: the bytes belong to the creator of the view and need not be aligned.
struct value_view {
  value_tag tag = value_tag::none;
  std::span<const std::byte> bytes;
};

/// Where an arriving value is stored: `put(target, value)`.
struct value_sink {
  void* target = nullptr;
  void (*put)(void* target, const value_view& value) = nullptr;
};

/// Whether `v` is well formed: a known tag and a length that fits it.
constexpr bool is_well_formed(const value_view& v) noexcept {
  if (!is_known(v.tag)) return false;
  if (v.tag == value_tag::none) return v.bytes.empty();
  if (v.tag == value_tag::packed) return !v.bytes.empty();
  const auto width = element_bytes(v.tag);
  return is_array(v.tag) ? v.bytes.size() % width == 0 : v.bytes.size() == width;
}

inline const char* name_of(value_tag t) noexcept {
  switch (t) {
    case value_tag::none:
      return "none";
    case value_tag::i32:
      return "i32";
    case value_tag::i64:
      return "i64";
    case value_tag::f32:
      return "f32";
    case value_tag::f64:
      return "f64";
    case value_tag::packed:
      return "packed";
    case value_tag::i32_array:
      return "i32 array";
    case value_tag::i64_array:
      return "i64 array";
    case value_tag::f32_array:
      return "f32 array";
    case value_tag::f64_array:
      return "f64 array";
  }
  return "unknown";
}

}  // namespace paracel
