// SPDX-License-Identifier: BSD-3-Clause
//
// Helpers for running out of memory: reserve before a change, so that nothing after the change can fail.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>
#include <string>
#include <string_view>
#include <vector>

namespace paracel::srv {

/// Reserves room for `n` more elements; the vector grows as by push_back. Throws: std::bad_alloc; nothing has changed.
template <class T>
void make_room(std::vector<T>& v, std::size_t n) {
  if (v.capacity() - v.size() < n) v.reserve(std::max(v.size() + n, v.capacity() * 2));
}
/// The same. Returns: whether there is room.
template <class T>
[[nodiscard]] bool try_room(std::vector<T>& v, std::size_t n) noexcept {
  try {
    make_room(v, n);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

/// A readable reason, or, if there is no memory for it, a shorter one that needs none.
[[nodiscard]] inline std::string told(std::string_view why) noexcept {
  try {
    return std::string(why);
  } catch (const std::exception&) {
    return "out of memory";  // short enough for the small-string buffer
  }
}
/// Likewise for the text composed by `text()`.
template <class F>
[[nodiscard]] std::string told_by(const F& text) noexcept {
  try {
    return text();
  } catch (const std::exception&) {
    return "out of memory";
  }
}

}  // namespace paracel::srv
