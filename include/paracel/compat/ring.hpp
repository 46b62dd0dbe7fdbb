// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel 0.3's consistent hashing, for programs that use it themselves. The framework places keys with a ring of its
// own, with bounded load.
#pragma once

#include <cstddef>
#include <map>
#include <sstream>

#include <paracel/error.hpp>

#include "paracel_types.hpp"
#include "utils/hash.hpp"

namespace paracel {
inline namespace compat {

/// T: names of servers, anything that can be printed. Thread-safety: const-concurrent
template <class T>
class ring {
 public:
  explicit ring(const list_type<T>& names, int replicas = 32) : replicas_(replicas) {
    for (const auto& name : names) add_server(name);
  }

  void add_server(const T& name) {
    for (int i = 0; i < replicas_; ++i) points_[point(name, i)] = name;
  }
  void remove_server(const T& name) {
    for (int i = 0; i < replicas_; ++i) {
      const auto at = points_.find(point(name, i));
      if (at != points_.end() && at->second == name) points_.erase(at);
    }
  }
  /// The server of the first point at or after the key's. Throws: error when there is none.
  template <class Key>
  [[nodiscard]] T get_server(const Key& key) const {
    if (points_.empty()) throw error("the ring has no servers, so it has none for a key");
    const auto at = points_.lower_bound(spread(hash_type<Key>()(key)));
    return at == points_.end() ? points_.begin()->second : at->second;
  }

 private:
  /// std::hash of a small number is that number: keys would all be adjacent.
  static hash_return_type spread(hash_return_type h) { return utils::hash_value_combine(h, 0); }
  static hash_return_type point(const T& name, int i) {
    std::ostringstream text;
    text << name << ':' << i;
    return spread(hash_type<str_type>()(text.str()));
  }

  int replicas_;
  std::map<hash_return_type, T> points_;
};

}  // namespace compat
}  // namespace paracel
