// SPDX-License-Identifier: BSD-3-Clause
//
// Copies and comparisons of keys and numbers: of a few bytes nearly always, for which a call costs more than the work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace paracel {

namespace short_bytes_detail {

template <class T>
T load(const void* from) noexcept {
  T v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
/// Both ends, which overlap unless n is twice the size.
template <class T>
void copy_ends(void* to, const void* from, std::size_t n) noexcept {
  const auto first = load<T>(from);
  const auto last = load<T>(static_cast<const std::byte*>(from) + n - sizeof(T));
  std::memcpy(to, &first, sizeof first);
  std::memcpy(static_cast<std::byte*>(to) + n - sizeof last, &last, sizeof last);
}
template <class T>
bool equal_ends(const void* a, const void* b, std::size_t n) noexcept {
  const auto last = n - sizeof(T);
  return load<T>(a) == load<T>(b) &&
         load<T>(static_cast<const std::byte*>(a) + last) == load<T>(static_cast<const std::byte*>(b) + last);
}

}  // namespace short_bytes_detail

/// As memcpy; without a call for 4 to 16 bytes. An address may be null if n is 0.
inline void copy_short(void* to, const void* from, std::size_t n) noexcept {
  using namespace short_bytes_detail;
  if (n >= 8 && n <= 16) copy_ends<std::uint64_t>(to, from, n);
  else if (n >= 4 && n < 8) copy_ends<std::uint32_t>(to, from, n);
  else if (n != 0) std::memcpy(to, from, n);
}

/// Whether the bytes are the same.
inline bool equal_short(const void* a, const void* b, std::size_t n) noexcept {
  using namespace short_bytes_detail;
  if (n >= 8 && n <= 16) return equal_ends<std::uint64_t>(a, b, n);
  if (n >= 4 && n < 8) return equal_ends<std::uint32_t>(a, b, n);
  return n == 0 || std::memcmp(a, b, n) == 0;
}

}  // namespace paracel
