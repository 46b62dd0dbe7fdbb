// SPDX-License-Identifier: BSD-3-Clause
//
// An array that its copies share. Copies, slices and casts cost no copy of the elements; the memory lives as long as
// one of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ps/internal/utils.h"
#include "ps/range.h"

namespace ps {

/// Kept for programs that name devices; only CPU memory is supported.
enum DeviceType { UNK, CPU, GPU };

/// V: trivially copyable. Thread-safety: as of a std::shared_ptr.
template <class V>
class SArray {
  static_assert(std::is_trivially_copyable_v<V>);

 public:
  SArray() = default;
  explicit SArray(std::size_t size, V value = V()) { resize(size, value); }
  SArray(const SArray&) = default;
  SArray(SArray&& other) noexcept
      : size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)),
        ptr_(std::move(other.ptr_)) {}
  SArray& operator=(const SArray&) = default;
  SArray& operator=(SArray&& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
    ptr_ = std::move(other.ptr_);
    return *this;
  }
  ~SArray() = default;

  /// The same bytes as another type. Throws: dmlc::Error when they are no whole number of V.
  template <class W>
  explicit SArray(const SArray<W>& other) {
    *this = other;
  }
  template <class W>
  void operator=(const SArray<W>& other) {
    const std::size_t bytes = other.size() * sizeof(W);
    CHECK_EQ(bytes % sizeof(V), 0U) << "cannot be divided into elements of " << sizeof(V) << " bytes";
    ptr_ = std::shared_ptr<V>(other.ptr(), reinterpret_cast<V*>(other.data()));
    size_ = bytes / sizeof(V);
    capacity_ = other.capacity() * sizeof(W) / sizeof(V);
  }

  /// The caller's memory: it must outlive the array, or, with `deletable`, be from new[], and is deleted.
  SArray(V* data, std::size_t size, bool deletable = false) {
    if (deletable) reset(data, size, [](V* p) { delete[] p; });
    else reset(data, size, [](V*) {});
  }
  SArray(V* data, std::size_t size, DeviceType /*from*/, int /*from_id*/, DeviceType /*to*/, int /*to_id*/,
         bool deletable = false)
      : SArray(data, size, deletable) {}
  explicit SArray(const std::vector<V>& v) { CopyFrom(v.data(), v.size()); }
  /// Without a copy.
  explicit SArray(const std::shared_ptr<std::vector<V>>& v)
      : size_(v->size()), capacity_(v->size()), ptr_(v, v->data()) {}
  template <class W>
  SArray(const std::initializer_list<W>& list) {
    CopyFrom(list.begin(), list.end());
  }
  template <class W>
  void operator=(const std::initializer_list<W>& list) {
    CopyFrom(list.begin(), list.end());
  }

  /// Into the memory that it has and shares, if that is large enough.
  void CopyFrom(const V* data, std::size_t size) {
    const SArray kept = *this;  // the data may be its own
    if (size > capacity_) reset(new V[size], size, [](V* p) { delete[] p; });
    size_ = size;
    if (size > 0) std::memmove(this->data(), data, size * sizeof(V));
  }
  void CopyFrom(const SArray& other) {
    if (this != &other) CopyFrom(other.data(), other.size());
  }
  template <class Iterator>
  void CopyFrom(const Iterator& first, const Iterator& last) {
    const auto size = static_cast<std::size_t>(std::distance(first, last));
    SArray made;
    made.reset(new V[size], size, [](V* p) { delete[] p; });
    std::transform(first, last, made.data(), [](const auto& x) { return static_cast<V>(x); });
    *this = std::move(made);
  }
  template <class Deleter>
  void reset(V* data, std::size_t size, Deleter deleter, DeviceType = CPU, int = 0, DeviceType = CPU, int = 0) {
    ptr_.reset(data, deleter);
    size_ = capacity_ = size;
  }

  /// Within the capacity the memory stays, and is still shared; beyond it the array gets its own.
  void resize(std::size_t size, V value = V()) {
    const auto before = size_;
    if (size > capacity_) grow(size);
    size_ = size;
    if (size > before) std::fill(data() + before, data() + size, value);
  }
  void reserve(std::size_t size) {
    if (size > capacity_) grow(size);
  }
  void clear() {
    ptr_.reset();
    size_ = capacity_ = 0;
  }

  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }
  V* begin() { return data(); }
  const V* begin() const { return data(); }
  V* end() { return data() + size_; }
  const V* end() const { return data() + size_; }
  V* data() const { return ptr_.get(); }
  std::shared_ptr<V>& ptr() { return ptr_; }
  const std::shared_ptr<V>& ptr() const { return ptr_; }
  V back() const {
    CHECK(!empty());
    return data()[size_ - 1];
  }
  V front() const {
    CHECK(!empty());
    return data()[0];
  }
  V& operator[](std::size_t i) { return data()[i]; }
  const V& operator[](std::size_t i) const { return data()[i]; }

  void push_back(const V& value) {
    const V copy = value;  // it may be an element
    if (size_ == capacity_) grow(size_ * 2 + 5);
    data()[size_++] = copy;
  }
  void pop_back() {
    if (size_ > 0) --size_;
  }
  void append(const SArray& other) {
    if (other.empty()) return;
    const SArray kept = other;  // it may be this one
    const auto before = size_;
    if (before + kept.size() > capacity_) grow(before + kept.size());
    size_ = before + kept.size();
    std::memmove(data() + before, kept.data(), kept.size() * sizeof(V));
  }

  /// Elements [begin, end), without a copy. Throws: dmlc::Error when they are not there.
  SArray segment(std::size_t begin, std::size_t end) const {
    CHECK_GE(end, begin);
    CHECK_LE(end, size());
    SArray part;
    part.ptr_ = std::shared_ptr<V>(ptr_, data() + begin);
    part.size_ = part.capacity_ = end - begin;
    return part;
  }

  std::string DebugString() const { return "[data_size=" + std::to_string(size()) + "]"; }

 private:
  void grow(std::size_t capacity) {
    V* to = new V[capacity];
    if (size_ > 0) std::memcpy(to, data(), size_ * sizeof(V));
    ptr_.reset(to, [](V* p) { delete[] p; });
    capacity_ = capacity;
  }

  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
  std::shared_ptr<V> ptr_;
};

/// The indices of the values in [lower, upper) of a sorted array. Cost: O(log size).
template <class V>
Range FindRange(const SArray<V>& sorted, V lower, V upper) {
  if (upper <= lower) return {0, 0};
  const auto at = [&](V value) {
    return static_cast<std::uint64_t>(std::lower_bound(sorted.begin(), sorted.end(), value) - sorted.begin());
  };
  return {at(lower), at(upper)};
}

/// `[10]: 1 2 3 4 5 ... 6 7 8 9 10`: the first and the last m.
template <class V>
std::string DebugStr(const V* data, int n, int m = 5) {
  std::ostringstream text;
  text << '[' << n << "]: ";
  for (int i = 0; i < n; ++i) {
    if (n >= 2 * m && i == m) {
      text << "... ";
      i = n - m;
    }
    text << data[i] << ' ';
  }
  return text.str();
}

template <class V>
std::ostream& operator<<(std::ostream& out, const SArray<V>& a) {
  return out << DebugStr(a.data(), static_cast<int>(std::min<std::size_t>(a.size(), std::numeric_limits<int>::max())));
}

}  // namespace ps
