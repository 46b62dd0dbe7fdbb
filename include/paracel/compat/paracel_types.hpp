// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel 0.3's names of types. Needs neither MPI nor the framework's library, so that plug-ins may include it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <paracel/types.hpp>
#include <paracel/update.hpp>

namespace paracel {

template <class T>
using deque_type = std::deque<T>;
template <class T = std::string>
using set_type = std::set<T>;

/// An edge or a rating: two ids and a weight.
using triple_type = std::tuple<std::string, std::string, double>;
using compact_triple_type = std::tuple<std::uint64_t, std::uint64_t, double>;

using hash_return_type = std::size_t;
using filter_with_key_result = filter_result;

template <bool Condition, class T = void>
using Enable_if = std::enable_if_t<Condition, T>;
template <bool Condition, class T = void>
using Disable_if = std::enable_if_t<!Condition, T>;
template <class T>
using kernel_type = std::remove_cvref_t<T>;

/// A bag: things put in, in no promised order. It can be a value.
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
