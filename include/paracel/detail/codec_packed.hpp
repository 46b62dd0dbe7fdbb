// SPDX-License-Identifier: BSD-3-Clause
//
// MessagePack in packed values: a packer that keeps a float a float, a check before unpacking, and a test for what a
// conversion to a C++ type would lose.
#pragma once

#ifndef MSGPACK_NO_BOOST
#define MSGPACK_NO_BOOST
#endif
#include <msgpack.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <paracel/error.hpp>

namespace paracel::codec_detail {

/// The output of msgpack::packer.
struct byte_writer {
  std::vector<std::byte>& out;
  void write(const char* data, std::size_t size) {
    const auto* p = reinterpret_cast<const std::byte*>(data);
    out.insert(out.end(), p, p + size);
  }
};

/// A MessagePack float: its type byte, then the bits in big-endian order.
template <class Bits, class Float>
std::array<char, 1 + sizeof(Bits)> float_bytes(unsigned first, Float x) noexcept {
  std::array<char, 1 + sizeof(Bits)> bytes;
  bytes[0] = static_cast<char>(first);
  const auto bits = std::bit_cast<Bits>(x);
  for (std::size_t i = 0; i < sizeof(Bits); ++i) bytes[1 + i] = static_cast<char>(bits >> (8 * (sizeof(Bits) - 1 - i)));
  return bytes;
}

}  // namespace paracel::codec_detail

// msgpack-c 4 packs a float without a fraction as an integer, which loses its type, its width and the sign of zero (and
// is undefined for 2^64). Our packer keeps a float a float.
template <>
inline msgpack::packer<paracel::codec_detail::byte_writer>&
msgpack::packer<paracel::codec_detail::byte_writer>::pack_float(float x) {
  const auto bytes = paracel::codec_detail::float_bytes<std::uint32_t>(0xca, x);
  append_buffer(bytes.data(), bytes.size());
  return *this;
}
template <>
inline msgpack::packer<paracel::codec_detail::byte_writer>&
msgpack::packer<paracel::codec_detail::byte_writer>::pack_double(double x) {
  const auto bytes = paracel::codec_detail::float_bytes<std::uint64_t>(0xcb, x);
  append_buffer(bytes.data(), bytes.size());
  return *this;
}

namespace paracel {

/// How deep packed lists and maps may nest.
inline constexpr std::size_t max_packed_depth = 64;

namespace codec_detail {

/// Checks that `bytes` is exactly one MessagePack object before anything is allocated for it. Each item has at least
/// one byte, so the number of items announced and still to come may never exceed the remaining bytes.
/// Throws: protocol_error.
inline void check_packed(std::span<const std::byte> bytes) {
  std::array<std::uint64_t, max_packed_depth + 1> left;  // items to come at each level of nesting
  std::size_t depth = 0;
  left[0] = 1;
  std::uint64_t pending = 1;
  std::size_t at = 0;

  const auto remaining = [&] { return bytes.size() - at; };
  const auto length = [&](std::size_t width) {
    if (remaining() < width) throw protocol_error("packed value is cut short");
    std::uint64_t n = 0;
    for (std::size_t i = 0; i < width; ++i) n = n << 8 | std::to_integer<std::uint64_t>(bytes[at + i]);
    at += width;
    return n;
  };
  const auto skip = [&](std::uint64_t n) {
    if (n > remaining()) throw protocol_error("packed value is cut short");
    at += static_cast<std::size_t>(n);
  };

  while (pending != 0) {
    const auto b = static_cast<unsigned>(length(1));
    --pending;
    --left[depth];
    std::uint64_t items = 0;
    if (b <= 0x7f || b >= 0xe0) {
    } else if (b <= 0x8f) items = 2 * (b & 0x0f);
    else if (b <= 0x9f) items = b & 0x0f;
    else if (b <= 0xbf) skip(b & 0x1f);
    else switch (b) {
        case 0xc0:
        case 0xc2:
        case 0xc3:
          break;
        case 0xc4:
        case 0xd9:
          skip(length(1));
          break;
        case 0xc5:
        case 0xda:
          skip(length(2));
          break;
        case 0xc6:
        case 0xdb:
          skip(length(4));
          break;
        case 0xc7:
          skip(length(1) + 1);
          break;
        case 0xc8:
          skip(length(2) + 1);
          break;
        case 0xc9:
          skip(length(4) + 1);
          break;
        case 0xcc:
        case 0xd0:
          skip(1);
          break;
        case 0xcd:
        case 0xd1:
        case 0xd4:
          skip(2);
          break;
        case 0xd5:
          skip(3);
          break;
        case 0xca:
        case 0xce:
        case 0xd2:
          skip(4);
          break;
        case 0xd6:
          skip(5);
          break;
        case 0xcb:
        case 0xcf:
        case 0xd3:
          skip(8);
          break;
        case 0xd7:
          skip(9);
          break;
        case 0xd8:
          skip(17);
          break;
        case 0xdc:
          items = length(2);
          break;
        case 0xdd:
          items = length(4);
          break;
        case 0xde:
          items = 2 * length(2);
          break;
        case 0xdf:
          items = 2 * length(4);
          break;
        default:
          throw protocol_error("packed value has the unused MessagePack byte 0xc1");
      }
    if (items != 0) {
      pending += items;
      if (pending > remaining()) throw protocol_error("packed value announces more items than it has bytes");
      if (depth == max_packed_depth)
        throw protocol_error("packed value nests deeper than " + std::to_string(max_packed_depth));
      left[++depth] = items;
    }
    while (depth != 0 && left[depth] == 0) --depth;
  }
  if (at != bytes.size())
    throw protocol_error(std::to_string(bytes.size() - at) + " bytes follow the end of a packed value");
}

// msgpack-c silently reads f64 as f32, any integer as a float, and short lists as tuples. `exactness` scans the
// standard containers beforehand and says what would be lost; users' own types are not inspected.

template <class T>
struct exactness {
  static constexpr bool matters = std::is_floating_point_v<T>;
  static const char* problem(const msgpack::object& o) {
    if constexpr (std::is_floating_point_v<T>) {
      // The number of bits from the first to the last set bit; other writers pack 1e18 as an integer.
      const auto fits = [](std::uint64_t x) {
        return x == 0 || std::bit_width(x) - std::countr_zero(x) <= std::numeric_limits<T>::digits;
      };
      switch (o.type) {
        case msgpack::type::FLOAT64:
          return sizeof(T) < 8 ? "a packed f64 may not fit f32" : nullptr;
        case msgpack::type::POSITIVE_INTEGER:
          return fits(o.via.u64) ? nullptr : "an integer has too many digits";
        case msgpack::type::NEGATIVE_INTEGER:
          return fits(0 - static_cast<std::uint64_t>(o.via.i64)) ? nullptr : "an integer has too many digits";
        default:
          return nullptr;
      }
    }
    return nullptr;
  }
};

template <class T>
struct list_exactness {
  static constexpr bool matters = exactness<T>::matters;
  static const char* problem(const msgpack::object& o) {
    if constexpr (matters) {
      if (o.type != msgpack::type::ARRAY) return nullptr;
      for (std::uint32_t i = 0; i < o.via.array.size; ++i)
        if (const char* p = exactness<T>::problem(o.via.array.ptr[i])) return p;
    }
    return nullptr;
  }
};
template <class K, class V>
struct map_exactness {
  static constexpr bool matters = exactness<K>::matters || exactness<V>::matters;
  static const char* problem(const msgpack::object& o) {
    if constexpr (matters) {
      if (o.type != msgpack::type::MAP) return nullptr;
      for (std::uint32_t i = 0; i < o.via.map.size; ++i) {
        if (const char* p = exactness<K>::problem(o.via.map.ptr[i].key)) return p;
        if (const char* p = exactness<V>::problem(o.via.map.ptr[i].val)) return p;
      }
    }
    return nullptr;
  }
};
template <class... T>
struct tuple_exactness {
  static constexpr bool matters = true;
  static const char* problem(const msgpack::object& o) {
    if (o.type != msgpack::type::ARRAY) return nullptr;
    if (o.via.array.size != sizeof...(T)) return "it has another number of elements";
    [[maybe_unused]] const auto* item = o.via.array.ptr;
    const char* first = nullptr;
    ((first = first != nullptr ? first : exactness<std::remove_cvref_t<T>>::problem(*item), ++item), ...);
    return first;
  }
};
template <class T, class A>
struct exactness<std::vector<T, A>> : list_exactness<T> {};
template <class T, class... More>
struct exactness<std::set<T, More...>> : list_exactness<T> {};
template <class T, class... More>
struct exactness<std::unordered_set<T, More...>> : list_exactness<T> {};
template <class K, class V, class... More>
struct exactness<std::map<K, V, More...>> : map_exactness<K, V> {};
template <class K, class V, class... More>
struct exactness<std::unordered_map<K, V, More...>> : map_exactness<K, V> {};
template <class A, class B>
struct exactness<std::pair<A, B>> : tuple_exactness<A, B> {};
template <class... T>
struct exactness<std::tuple<T...>> : tuple_exactness<T...> {};
template <class T>
struct exactness<std::optional<T>> : exactness<T> {};
template <class T, std::size_t N>
struct exactness<std::array<T, N>> {
  static constexpr bool matters = true;
  static const char* problem(const msgpack::object& o) {
    if (o.type == msgpack::type::ARRAY && o.via.array.size != N) return "it has another number of elements";
    return list_exactness<T>::problem(o);
  }
};

}  // namespace codec_detail

}  // namespace paracel
