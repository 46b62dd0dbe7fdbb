// SPDX-License-Identifier: BSD-3-Clause
//
// value + delta, element by element: what most update functions do. For a plug-in that exports it under a name of its
// own:
//
//   extern "C" { extern paracel::update_result my_add; }
//   paracel::update_result my_add = paracel::additive(paracel::update_in_place<double>(paracel::add_elements()));
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

namespace paracel {

/// For update_in_place of any number and update_in_place_any. Integers add modulo 2^n: an overflow in a server gives a
/// wrong number, never undefined behaviour. Cost: a loop that the compiler vectorises.
struct add_elements {
  template <class T>
  void operator()(std::span<T> value, std::span<const std::type_identity_t<T>> delta) const noexcept {
    T* __restrict v = value.data();
    const T* __restrict d = delta.data();
    for (std::size_t i = 0; i < value.size(); ++i) {
      if constexpr (std::is_integral_v<T>) {
        using bits = std::make_unsigned_t<T>;
        v[i] = static_cast<T>(static_cast<bits>(v[i]) + static_cast<bits>(d[i]));
      } else {
        v[i] += d[i];
      }
    }
  }
};

}  // namespace paracel
