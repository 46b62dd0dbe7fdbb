// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel's text form of results. Numbers are written with as many digits as needed to read back the same bits.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace paracel {

template <class T>
requires std::is_arithmetic_v<T>
void append_text(std::string& out, T value) {
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  out.append(digits, end);
}
inline void append_text(std::string& out, bool value) { out += value ? '1' : '0'; }
inline void append_text(std::string& out, const std::string& value) { out += value; }
inline void append_text(std::string& out, const char* value) { out += value; }  // or it would be a bool

template <class T>
void append_text(std::string& out, const std::vector<T>& values);
template <class A, class B>
void append_text(std::string& out, const std::pair<A, B>& value);
template <class A, class B, class C>
void append_text(std::string& out, const std::tuple<A, B, C>& value);

/// "a,b,c"
template <class T>
void append_text(std::string& out, const std::vector<T>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    append_text(out, values[i]);
  }
}
/// "first:second"
template <class A, class B>
void append_text(std::string& out, const std::pair<A, B>& value) {
  append_text(out, value.first);
  out += ':';
  append_text(out, value.second);
}
/// "a,b,c"
template <class A, class B, class C>
void append_text(std::string& out, const std::tuple<A, B, C>& value) {
  append_text(out, std::get<0>(value));
  out += ',';
  append_text(out, std::get<1>(value));
  out += ',';
  append_text(out, std::get<2>(value));
}

/// A line of a dumped dictionary without its line end: key, `sep`, value; list elements are separated by |.
template <class K, class V>
void append_row(std::string& out, const K& key, const std::string& sep, const V& value) {
  append_text(out, key);
  out += sep;
  append_text(out, value);
}
template <class K, class T>
void append_row(std::string& out, const K& key, const std::string& sep, const std::vector<T>& values) {
  append_text(out, key);
  out += sep;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += '|';
    append_text(out, values[i]);
  }
}

}  // namespace paracel
