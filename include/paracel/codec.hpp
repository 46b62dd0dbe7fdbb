// SPDX-License-Identifier: BSD-3-Clause
//
// From C++ types to values and back. Numbers (int32, int64, float, double) and contiguous lists of them are stored raw;
// everything else that MessagePack supports, users' types with MSGPACK_DEFINE included, is packed.
//
// Reading converts only when lossless:
//   number to number     by type: i32 to i64 and f64, f32 to f64, i32 or i64 to an unsigned type at least as wide (a
//                        negative one is refused); lists element by element. Anything narrower is a type_error.
//   packed to number     MessagePack does not keep the width of an integer, so by value: it must fit. A float keeps its
//                        width: f64 is not read as f32.
//   one number and a list are never converted into each other.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <paracel/detail/codec_packed.hpp>
#include <paracel/detail/value.hpp>
#include <paracel/error.hpp>

namespace paracel {

static_assert(std::endian::native == std::endian::little, "values are stored little-endian");

namespace codec_detail {

// ---- which C++ types are stored raw -----------------------------------------------------------------------------

template <class T>
struct list_traits {
  static constexpr bool raw = false;
};
template <raw_number T>
struct raw_list_traits {
  static constexpr bool raw = true;
  using element = T;
};
template <raw_number T, class A>
struct list_traits<std::vector<T, A>> : raw_list_traits<T> {};
template <raw_number T, std::size_t N>
struct list_traits<std::array<T, N>> : raw_list_traits<T> {};
template <class T, std::size_t N>
requires raw_number<std::remove_const_t<T>>
struct list_traits<std::span<T, N>> : raw_list_traits<std::remove_const_t<T>> {
};

template <class T>
concept raw_list = list_traits<T>::raw;

/// Integers that are packed when written (raw_number covers the signed ones of 4 and 8 bytes).
template <class T>
concept wide_unsigned = std::is_integral_v<T> && std::is_unsigned_v<T> && !std::is_same_v<T, bool> && sizeof(T) >= 4;

template <class T>
inline constexpr bool is_wide_unsigned_list = false;
template <wide_unsigned T, class A>
inline constexpr bool is_wide_unsigned_list<std::vector<T, A>> = true;

// ---- names for error texts --------------------------------------------------------------------------------------

template <class T>
struct type_text {
  static std::string get() {
    if constexpr (raw_number<T>) return name_of(tag_of<T>());
    else if constexpr (raw_list<T>) return name_of(array_tag_of<typename list_traits<T>::element>());
    else if constexpr (std::is_same_v<T, bool>) return "bool";
    else if constexpr (std::is_same_v<T, char>) return "char";
    else if constexpr (std::is_integral_v<T>)
      return std::string(std::is_signed_v<T> ? "i" : "u").append(std::to_string(sizeof(T) * 8));
    else if constexpr (std::is_convertible_v<T, std::string_view>) return "string";
    else return "a user type";
  }
};
template <class... T>
std::string type_texts() {
  std::string all;
  ((all += (all.empty() ? "" : ", ") + type_text<std::remove_cvref_t<T>>::get()), ...);
  return all;
}
template <class T, class A>
requires(!raw_number<T>) struct type_text<std::vector<T, A>> {
  static std::string get() { return "list<" + type_texts<T>() + ">"; }
};
template <class T, std::size_t N>
requires(!raw_number<T>) struct type_text<std::array<T, N>> {
  static std::string get() { return "list<" + type_texts<T>() + ">"; }
};
template <class T, class... More>
struct type_text<std::set<T, More...>> {
  static std::string get() { return "set<" + type_texts<T>() + ">"; }
};
template <class T, class... More>
struct type_text<std::unordered_set<T, More...>> {
  static std::string get() { return "set<" + type_texts<T>() + ">"; }
};
template <class K, class V, class... More>
struct type_text<std::map<K, V, More...>> {
  static std::string get() { return "dict<" + type_texts<K, V>() + ">"; }
};
template <class K, class V, class... More>
struct type_text<std::unordered_map<K, V, More...>> {
  static std::string get() { return "dict<" + type_texts<K, V>() + ">"; }
};
template <class A, class B>
struct type_text<std::pair<A, B>> {
  static std::string get() { return "pair<" + type_texts<A, B>() + ">"; }
};
template <class... T>
struct type_text<std::tuple<T...>> {
  static std::string get() { return "tuple<" + type_texts<T...>() + ">"; }
};
template <class T>
struct type_text<std::optional<T>> {
  static std::string get() { return "optional<" + type_texts<T>() + ">"; }
};

inline const char* packed_kind(std::span<const std::byte> bytes) noexcept {
  if (bytes.empty()) return "packed";
  const auto b = std::to_integer<unsigned>(bytes[0]);
  if (b <= 0x7f || b >= 0xe0 || (b >= 0xcc && b <= 0xd3)) return "packed integer";
  if (b <= 0x8f || b == 0xde || b == 0xdf) return "packed map";
  if (b <= 0x9f || b == 0xdc || b == 0xdd) return "packed list";
  if (b <= 0xbf || (b >= 0xd9 && b <= 0xdb)) return "packed string";
  if (b == 0xc0) return "packed nil";
  if (b == 0xc2 || b == 0xc3) return "packed bool";
  if (b >= 0xc4 && b <= 0xc6) return "packed bytes";
  if (b == 0xca) return "packed f32";
  if (b == 0xcb) return "packed f64";
  return "packed extension";
}

inline std::string describe(const value_view& v) {
  return v.tag == value_tag::packed ? packed_kind(v.bytes) : name_of(v.tag);
}

template <class T>
[[noreturn]] void refuse(const value_view& v, std::string_view detail = {}) {
  std::string text = "value is " + describe(v) + ", asked for " + type_text<T>::get();
  if (!detail.empty()) text.append(": ").append(detail);
  throw type_error(text);
}

// ---- raw -----------------------------------------------------------------------------------------------------------

/// True: every number of type `From` is exactly representable in type `To`.
template <raw_number From, raw_number To>
inline constexpr bool widens = std::is_same_v<From, To> ||
                               (std::is_integral_v<From> == std::is_integral_v<To>
                                    ? sizeof(From) <= sizeof(To)
                                    : std::is_integral_v<From> && sizeof(From) == 4 && sizeof(To) == 8);

template <class From, class To>
void convert_elements(const std::byte* from, std::size_t count, To* to) {
  if constexpr (sizeof(From) == sizeof(To) && std::is_integral_v<From> == std::is_integral_v<To>) {
    if (count != 0) std::memcpy(to, from, count * sizeof(To));
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      From x;
      std::memcpy(&x, from + i * sizeof(From), sizeof(From));
      to[i] = static_cast<To>(x);
    }
  }
}

/// Calls `f` with a null pointer of the element type of numeric tag `t`.
template <class F>
bool with_element(value_tag t, F&& f) {
  switch (element_of(t)) {
    case value_tag::i32:
      return f(static_cast<const std::int32_t*>(nullptr));
    case value_tag::i64:
      return f(static_cast<const std::int64_t*>(nullptr));
    case value_tag::f32:
      return f(static_cast<const float*>(nullptr));
    case value_tag::f64:
      return f(static_cast<const double*>(nullptr));
    default:
      return false;
  }
}

/// Writes the elements of `v` to `to`, widened. False, with nothing written: they do not widen to To.
template <raw_number To>
bool widen(const value_view& v, To* to) {
  return with_element(v.tag, [&](auto* p) {
    using from_type = std::remove_const_t<std::remove_pointer_t<decltype(p)>>;
    if constexpr (widens<from_type, To>) {
      convert_elements<from_type>(v.bytes.data(), v.bytes.size() / sizeof(from_type), to);
      return true;
    } else {
      return false;
    }
  });
}

template <raw_number To>
bool can_widen(value_tag from) {
  return with_element(from,
                      [](auto* p) { return widens<std::remove_const_t<std::remove_pointer_t<decltype(p)>>, To>; });
}

/// As `widen` for unsigned targets: at least as wide, and no negative element.
template <class Asked, wide_unsigned To>
void to_unsigned(const value_view& v, To* to) {
  const bool right = with_element(v.tag, [&](auto* p) {
    using from_type = std::remove_const_t<std::remove_pointer_t<decltype(p)>>;
    if constexpr (std::is_integral_v<from_type> && sizeof(from_type) <= sizeof(To)) {
      for (std::size_t i = 0; i < v.bytes.size() / sizeof(from_type); ++i) {
        from_type x;
        std::memcpy(&x, v.bytes.data() + i * sizeof(from_type), sizeof(from_type));
        if (x < 0) refuse<Asked>(v, "it is " + std::to_string(x));
        to[i] = static_cast<To>(x);
      }
      return true;
    } else {
      return false;
    }
  });
  if (!right) refuse<Asked>(v);
}

// ---- packed --------------------------------------------------------------------------------------------------------

template <class T>
void unpack(const value_view& v, T& out) {
  check_packed(v.bytes);
  try {
    msgpack::zone zone;
    std::size_t offset = 0;
    // Strings stay in the value until they are converted.
    const auto object = msgpack::unpack(zone, reinterpret_cast<const char*>(v.bytes.data()), v.bytes.size(), offset,
                                        [](msgpack::type::object_type, std::size_t, void*) { return true; });
    if constexpr (exactness<T>::matters)
      if (const char* problem = exactness<T>::problem(object)) refuse<T>(v, problem);
    object.convert(out);
  } catch (const msgpack::type_error&) {
    refuse<T>(v);
  } catch (const msgpack::unpack_error& e) {
    throw protocol_error(std::string("packed value: ") + e.what());
  }
}

}  // namespace codec_detail

/// A C++ object as a value, for as long as this object lives.
///
/// Lifetime: of vectors, arrays and spans of raw numbers only the address is kept: the numbers must outlive the views.
/// Cost: nothing is copied for those; 8 bytes for a number; everything else is packed once into a buffer of its own.
template <class T>
class encoded {
 public:
  explicit encoded(const T& object) {
    if constexpr (raw_number<T>) {
      stored_ = object;
    } else if constexpr (codec_detail::raw_list<T>) {
      stored_ = stored_type(object.data(), object.size());
    } else {
      codec_detail::byte_writer writer{stored_};
      msgpack::pack(writer, object);
    }
  }

  /// A view of an expiring array would dangle.
  explicit encoded(const T&& object) requires(codec_detail::raw_list<T> && !std::ranges::borrowed_range<T>) = delete;

  [[nodiscard]] value_view view() const noexcept {
    if constexpr (raw_number<T>) {
      return {tag_of<T>(), std::as_bytes(std::span<const T, 1>(&stored_, 1))};
    } else if constexpr (codec_detail::raw_list<T>) {
      return {array_tag_of<typename codec_detail::list_traits<T>::element>(), std::as_bytes(stored_)};
    } else {
      return {value_tag::packed, stored_};
    }
  }

 private:
  template <class U>
  struct storage {
    using type = std::vector<std::byte>;
  };
  template <raw_number U>
  struct storage<U> {
    using type = U;
  };
  template <codec_detail::raw_list U>
  struct storage<U> {
    using type = std::span<const typename codec_detail::list_traits<U>::element>;
  };
  using stored_type = typename storage<T>::type;
  stored_type stored_{};
};

/// Decodes `v` into `out`, whose capacity is reused. `v` may lie at any address.
///
/// Throws: type_error when the types do not fit without loss, protocol_error when the bytes are not a value; `out`
///         is then unchanged if the value was a number or a list of numbers, and otherwise valid but unspecified.
/// Cost: one copy; lists of another width one conversion. Packed values use memory in proportion to their bytes,
///       whatever lengths they announce.
template <class T>
void decode_into(const value_view& v, T& out) {
  if (!is_well_formed(v))
    throw protocol_error(std::string("value of ") + std::to_string(v.bytes.size()) + " bytes cannot be " +
                         name_of(v.tag));
  if (v.tag == value_tag::none) codec_detail::refuse<T>(v);
  if (v.tag == value_tag::packed) return codec_detail::unpack(v, out);

  if constexpr (raw_number<T>) {
    if (is_array(v.tag) || !codec_detail::widen(v, &out)) codec_detail::refuse<T>(v);
  } else if constexpr (codec_detail::raw_list<T>) {
    using element = typename codec_detail::list_traits<T>::element;
    if (!is_array(v.tag) || !codec_detail::can_widen<element>(v.tag)) codec_detail::refuse<T>(v);
    const auto count = v.bytes.size() / element_bytes(v.tag);
    if constexpr (requires { out.resize(count); }) {
      out.resize(count);
    } else {
      if (out.size() != count)
        codec_detail::refuse<T>(v, "it has " + std::to_string(count) + " elements, not " + std::to_string(out.size()));
    }
    (void)codec_detail::widen(v, out.data());
  } else if constexpr (codec_detail::wide_unsigned<T>) {
    if (is_array(v.tag)) codec_detail::refuse<T>(v);
    codec_detail::to_unsigned<T>(v, &out);
  } else if constexpr (codec_detail::is_wide_unsigned_list<T>) {
    if (!is_array(v.tag)) codec_detail::refuse<T>(v);
    T numbers(v.bytes.size() / element_bytes(v.tag));
    codec_detail::to_unsigned<T>(v, numbers.data());
    out = std::move(numbers);
  } else {
    codec_detail::refuse<T>(v);
  }
}

/// As decode_into, but returns a new object.
template <class T>
[[nodiscard]] T decode(const value_view& v) {
  T out{};
  decode_into(v, out);
  return out;
}

}  // namespace paracel
