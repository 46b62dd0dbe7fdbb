// SPDX-License-Identifier: BSD-3-Clause
//
// The ids of rows, columns and vertices of an input: all of them 64-bit numbers, or all of them names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace paracel {

/// A list of ids. Names are stored contiguously in one buffer.
/// Thread-safety: const-concurrent
/// Cost: 8 bytes per id, plus the bytes of names.
class id_list {
 public:
  id_list() = default;
  explicit id_list(std::vector<std::uint64_t> numbers) : numbers_(std::move(numbers)) {}
  explicit id_list(const std::vector<std::string>& names) : numeric_(false) {
    for (const auto& n : names) push_back(n);
  }
  /// An empty list of numbers, or of names.
  static id_list empty(bool numeric) {
    id_list l;
    l.numeric_ = numeric;
    return l;
  }

  [[nodiscard]] bool numeric() const noexcept { return numeric_; }
  [[nodiscard]] std::size_t size() const noexcept { return numbers_.size(); }
  /// For a list of numbers.
  [[nodiscard]] std::uint64_t number(std::size_t i) const { return numbers_[i]; }
  [[nodiscard]] const std::vector<std::uint64_t>& numbers() const noexcept { return numbers_; }
  /// For a list of names. Lifetime: until the list changes.
  [[nodiscard]] std::string_view name(std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : numbers_[i - 1];
    return std::string_view(bytes_).substr(begin, numbers_[i] - begin);
  }
  [[nodiscard]] std::string text(std::size_t i) const {
    return numeric_ ? std::to_string(numbers_[i]) : std::string(name(i));
  }
  /// The id as a number (so too a name that is a decimal number), otherwise a 64-bit hash of the name. It seeds a row's
  /// random numbers, and is its id in a `table`.
  [[nodiscard]] std::uint64_t key(std::size_t i) const;

  void push_back(std::uint64_t number) { numbers_.push_back(number); }
  void push_back(std::string_view name) {
    numeric_ = false;
    bytes_ += name;
    numbers_.push_back(bytes_.size());
  }
  /// Total bytes of all names.
  [[nodiscard]] std::size_t name_bytes() const noexcept { return bytes_.size(); }
  /// Reserves memory for `n` ids, and for the bytes of names.
  void reserve(std::size_t n, std::size_t bytes_of_names = 0) {
    numbers_.reserve(n);
    bytes_.reserve(bytes_of_names);
  }

  /// The index of an id, in an ascending list (names by their bytes). Cost: O(log n)
  [[nodiscard]] std::optional<std::size_t> find(std::uint64_t number) const;
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const;
  /// Sorts ascending and drops duplicates. Cost: O(n log n)
  void sort_unique();

  bool operator==(const id_list&) const = default;

  /// Calls parts(member) for each member, to store a list and to read it back. `self`: const or not.
  template <class Parts, class Self>
  static void visit_parts(Parts&& parts, Self& self) {
    parts(self.numbers_);
    parts(self.bytes_);
    parts(self.numeric_);
  }

 private:
  std::vector<std::uint64_t> numbers_;  // or the end of each name in bytes_
  std::string bytes_;
  bool numeric_ = true;
};

}  // namespace paracel
