// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace paracel {

/// Calls `f` with the width as a constant where it is a common one: copies are single instructions then.
template <class F>
void with_constant_width(std::size_t bytes, const F& f) {
  if (bytes == 4) f(std::integral_constant<std::size_t, 4>());
  else if (bytes == 8) f(std::integral_constant<std::size_t, 8>());
  else if (bytes != 0) f(bytes);
}

/// Values of `bytes` bytes each, those selected by `order`, contiguously.
inline void gather_values(std::byte* to, const std::byte* from, std::span<const std::uint32_t> order,
                          std::size_t bytes) {
  with_constant_width(bytes, [&](auto width) {
    for (const auto i : order) {
      std::memcpy(to, from + i * width, width);
      to += width;
    }
  });
}

/// The same for ascending indices. With a single shard they are consecutive, and this is a plain copy.
inline void gather_ascending(std::byte* to, const std::byte* from, std::span<const std::uint32_t> order,
                             std::size_t bytes) {
  if (order.empty() || bytes == 0) return;
  if (order.back() - order.front() + std::size_t{1} != order.size()) return gather_values(to, from, order, bytes);
  std::memcpy(to, from + order.front() * bytes, order.size() * bytes);
}

/// The reverse: writes contiguous values to the places that `order` selects.
inline void scatter_values(std::byte* to, const std::byte* from, std::span<const std::uint32_t> order,
                           std::size_t bytes) {
  with_constant_width(bytes, [&](auto width) {
    for (const auto i : order) {
      std::memcpy(to + i * width, from, width);
      from += width;
    }
  });
}

}  // namespace paracel
