// SPDX-License-Identifier: BSD-3-Clause
#include "core/reduction.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include <paracel/error.hpp>

namespace paracel {

namespace {

template <class T>
void fold_elements(std::span<std::byte> into, std::span<const std::byte> from, reduce_op op) {
  if (into.size() != from.size() || into.size() % sizeof(T) != 0)
    throw error("cannot reduce " + std::to_string(from.size()) + " bytes into " + std::to_string(into.size()) +
                ", elements of " + std::to_string(sizeof(T)));
  // Loads and stores through memcpy: contributions have any alignment. The compiler still vectorises them.
  const auto each = [&](auto combine) {
    for (std::size_t at = 0; at < into.size(); at += sizeof(T)) {
      T a;
      T b;
      std::memcpy(&a, into.data() + at, sizeof(T));
      std::memcpy(&b, from.data() + at, sizeof(T));
      a = combine(a, b);
      std::memcpy(into.data() + at, &a, sizeof(T));
    }
  };
  const auto is_nan = [](T v) { return v != v; };
  switch (op) {
    case reduce_op::sum:
      if constexpr (std::is_integral_v<T>) {
        using U = std::make_unsigned_t<T>;
        each([](T a, T b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); });
      } else {
        each([](T a, T b) { return a + b; });
      }
      break;
    case reduce_op::max:
      each([&](T a, T b) { return is_nan(a) || a >= b ? a : b; });
      break;
    case reduce_op::min:
      each([&](T a, T b) { return is_nan(a) || a <= b ? a : b; });
      break;
  }
}

}  // namespace

void fold(value_tag element, std::span<std::byte> into, std::span<const std::byte> from, reduce_op op) {
  switch (element) {
    case value_tag::i32:
      return fold_elements<std::int32_t>(into, from, op);
    case value_tag::i64:
      return fold_elements<std::int64_t>(into, from, op);
    case value_tag::f32:
      return fold_elements<float>(into, from, op);
    case value_tag::f64:
      return fold_elements<double>(into, from, op);
    default:
      throw error(std::string("there is no reduction for ") + name_of(element));
  }
}

}  // namespace paracel
