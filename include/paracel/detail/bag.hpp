// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <paracel/codec.hpp>

namespace paracel {

/// A bag: an unordered collection. It can be a value.
template <class T>
class bag_type {
 public:
  using iterator = typename std::vector<T>::iterator;
  using const_iterator = typename std::vector<T>::const_iterator;

  bag_type() = default;
  bag_type(std::vector<T> items) : items_(std::move(items)) {}  // NOLINT(google-explicit-constructor): as in 0.3

  iterator begin() { return items_.begin(); }
  iterator end() { return items_.end(); }
  const_iterator begin() const { return items_.begin(); }
  const_iterator end() const { return items_.end(); }
  const_iterator cbegin() const { return items_.cbegin(); }
  const_iterator cend() const { return items_.cend(); }

  void put(const T& item) { items_.push_back(item); }
  [[nodiscard]] bool is_empty() const { return items_.empty(); }
  [[nodiscard]] std::size_t size() const { return items_.size(); }
  [[nodiscard]] bag_type get() const { return *this; }
  [[nodiscard]] std::vector<T> get_vec() const { return items_; }
  template <class F>
  void traverse(F&& func) {
    for (auto& item : items_) func(item);
  }

 private:
  std::vector<T> items_;

 public:
  MSGPACK_DEFINE(items_)
};

}  // namespace paracel
