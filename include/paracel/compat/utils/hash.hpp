// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel 0.3's hash of values, `hash_type`. The framework does not use it: keys are placed by XXH3-64 (for entries see
// graph_loading.hpp), so owners that a program computes with it are not the actual ones.
#pragma once

#include "../standard_headers.hpp"

namespace paracel {
namespace utils {

/// Mixes two hashes; the order matters.
inline std::uint64_t hash_value_combine(std::uint64_t x, std::uint64_t y) {
  std::uint64_t z = x + 0x9e3779b97f4a7c15ULL * (y + 1);  // a step of splitmix64
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31U);
}

template <class T>
struct hash {
  std::size_t operator()(const T& value) const { return std::hash<T>()(value); }
};
template <class T>
std::size_t hash_combine(std::size_t seed, const T& value) {
  return hash_value_combine(hash<T>()(value), seed);
}
template <class T>
struct hash<std::vector<T>> {
  std::size_t operator()(const std::vector<T>& values) const {
    std::size_t h = values.size();
    for (const auto& v : values) h = hash_combine(h, static_cast<const T&>(v));
    return h;
  }
};
template <class A, class B>
struct hash<std::pair<A, B>> {
  std::size_t operator()(const std::pair<A, B>& value) const {
    return hash_combine(hash<A>()(value.first), value.second);
  }
};
struct meta_hash {
  template <class T>
  std::size_t operator()(const T& value) const {
    return hash<T>()(value);
  }
};

}  // namespace utils
}  // namespace paracel
