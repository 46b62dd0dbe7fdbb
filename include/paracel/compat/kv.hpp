// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel 0.3's in-memory table. It belongs to the program; servers have tables of their own.
#pragma once

#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>

#include "paracel_types.hpp"
#include "utils.hpp"

namespace paracel {
inline namespace compat {

/// Thread-safety: none
template <class K, class V>
struct kvs {
  virtual ~kvs() = default;

  [[nodiscard]] bool contains(const K& key) const { return values_.count(key) != 0; }
  void set(const K& key, const V& value) { values_[key] = value; }
  void set_multi(const dict_type<K, V>& values) {
    for (const auto& [key, value] : values) set(key, value);
  }

  [[nodiscard]] std::optional<V> get(const K& key) const {
    const auto at = values_.find(key);
    return at == values_.end() ? std::nullopt : std::optional<V>(at->second);
  }
  bool get(const K& key, V& value) const {
    const auto at = values_.find(key);
    if (at == values_.end()) return false;
    value = at->second;
    return true;
  }
  /// Throws: std::out_of_range when a key does not exist.
  [[nodiscard]] list_type<V> get_multi(const list_type<K>& keys) const {
    list_type<V> values;
    get_multi(keys, values);
    return values;
  }
  void get_multi(const list_type<K>& keys, list_type<V>& values) const {
    for (const auto& key : keys) values.push_back(values_.at(key));
  }
  /// Only those that exist.
  void get_multi(const list_type<K>& keys, dict_type<K, V>& values) const {
    values.clear();
    for (const auto& key : keys)
      if (const auto at = values_.find(key); at != values_.end()) values[key] = at->second;
  }

  /// Adds to a number, or to each element of a list of the same length. Returns: false, with nothing changed, when that
  /// is impossible.
  template <class T>
  bool incr(const K& key, const T& delta) {
    const auto at = values_.find(key);
    if (at == values_.end()) return false;
    if constexpr (std::is_arithmetic_v<T>) {
      at->second += delta;
    } else {
      if (at->second.size() != delta.size()) return false;
      for (std::size_t i = 0; i < delta.size(); ++i) at->second[i] += delta[i];
    }
    return true;
  }

  /// The value and a number that identifies it in `cas`.
  [[nodiscard]] std::optional<std::pair<V, hash_return_type>> gets(const K& key) const {
    const auto value = get(key);
    if (!value) return std::nullopt;
    return std::pair<V, hash_return_type>(*value, hash_type<V>()(*value));
  }
  /// Sets the value if it is still the one that `unique` identifies, or does not exist.
  bool cas(const K& key, const V& value, hash_return_type unique) {
    const auto now = gets(key);
    if (now && now->second != unique) return false;
    set(key, value);
    return true;
  }

  bool del(const K& key) { return values_.erase(key) != 0; }
  void clean() { values_.clear(); }
  [[nodiscard]] dict_type<K, V> getall() const { return values_; }

 private:
  dict_type<K, V> values_;
};

}  // namespace compat
}  // namespace paracel
