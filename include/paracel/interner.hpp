// SPDX-License-Identifier: BSD-3-Clause
//
// From ids (64-bit numbers or names) to indices 0, 1, 2, ... and back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <paracel/error.hpp>

namespace paracel {

/// Ids and an insert-only hash table, open addressing and linear probing, of indices into them.
/// Thread-safety: const-concurrent
/// Cost: the ids and 6 to 12 bytes each.
template <class T>
class interner {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  /// The argument of `find` and `intern`: names without a copy.
  using view = std::conditional_t<std::is_convertible_v<const T&, std::string_view>, std::string_view, const T&>;

  [[nodiscard]] std::size_t size() const noexcept { return ids_.size(); }
  [[nodiscard]] const std::vector<T>& ids() const noexcept { return ids_; }
  [[nodiscard]] const T& operator[](std::size_t i) const { return ids_[i]; }
  void clear() { *this = {}; }

  /// The index of `id`, or `none`.
  [[nodiscard]] std::uint32_t find(view id) const {
    if (slots_.empty()) return none;
    for (auto s = hash(id) & mask();; s = (s + 1) & mask()) {
      if (slots_[s] == none || ids_[slots_[s]] == id) return slots_[s];
    }
  }
  /// The index of `id`; a new one is appended. Throws: error beyond 2^32 - 1 ids.
  std::uint32_t intern(view id) {
    if (ids_.size() * 3 >= slots_.size() * 2) grow();
    auto s = hash(id) & mask();
    for (; slots_[s] != none; s = (s + 1) & mask()) {
      if (ids_[slots_[s]] == id) return slots_[s];
    }
    if (ids_.size() == none) throw error("an index has more than 4294967295 ids");
    slots_[s] = static_cast<std::uint32_t>(ids_.size());
    ids_.emplace_back(id);
    return slots_[s];
  }

  /// Sorts the ids ascending. Returns: the new index of each old one; empty when they were already sorted.
  /// Cost: O(n log n)
  std::vector<std::uint32_t> sort() {
    if (std::is_sorted(ids_.begin(), ids_.end())) return {};
    std::vector<std::uint32_t> order(ids_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return ids_[a] < ids_[b]; });
    std::vector<T> sorted;
    sorted.reserve(ids_.size());
    std::vector<std::uint32_t> now(ids_.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      sorted.push_back(std::move(ids_[order[i]]));
      now[order[i]] = static_cast<std::uint32_t>(i);
    }
    ids_ = std::move(sorted);
    for (auto& s : slots_)
      if (s != none) s = now[s];
    return now;
  }

 private:
  static std::size_t hash(view id) {
    std::uint64_t x = 0;
    if constexpr (std::is_integral_v<T>) x = static_cast<std::uint64_t>(id);
    else x = std::hash<std::remove_cvref_t<view>>()(id);
    // The finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return static_cast<std::size_t>(x ^ (x >> 31U));
  }
  [[nodiscard]] std::size_t mask() const noexcept { return slots_.size() - 1; }
  void grow() {
    std::vector<std::uint32_t> wider(std::max<std::size_t>(16, slots_.size() * 2), none);
    slots_.swap(wider);
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      auto s = hash(ids_[i]) & mask();
      while (slots_[s] != none) s = (s + 1) & mask();
      slots_[s] = static_cast<std::uint32_t>(i);
    }
  }

  std::vector<T> ids_;
  std::vector<std::uint32_t> slots_;  // a power of two of them, at most two thirds full
};

}  // namespace paracel
