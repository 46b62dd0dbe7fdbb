// SPDX-License-Identifier: BSD-3-Clause
//
// The ids that one worker sees, each with a 32-bit index, so that an entry is a pair of indices whatever its ids are.
//
//     dense     numbers that are small for the size of the input: the index is the number, without a lookup
//     numbers   open addressing, 16 bytes per slot: key | index + 1; at most 5 of 8 slots used
//     names     string_interner
//
// It starts dense. Conversions keep the contents: see leave_dense.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "load/ids/string_interner.hpp"
#include "paracel/id_list.hpp"

namespace paracel {

/// Whether `text` is what std::to_string would write for an unsigned 64-bit number, and which one.
bool canonical_number(std::string_view text, std::uint64_t& out) noexcept;

/// Thread-safety: none
class id_interner {
 public:
  enum class kind { dense, numbers, names };

  /// `dense_below`: numbers below it may be their own indices. It costs a byte for each of them,
  /// and 4 in the end.
  explicit id_interner(std::uint64_t dense_below = 0) : dense_below_(dense_below) {
    if (dense_below == 0) kind_ = kind::numbers;
  }

  [[nodiscard]] kind what() const noexcept { return kind_; }
  [[nodiscard]] bool numeric() const noexcept { return kind_ != kind::names; }
  /// Whether these numbers have an index without leave_dense.
  [[nodiscard]] bool accepts(std::uint64_t greatest) const noexcept {
    return kind_ != kind::dense || greatest < dense_below_;
  }

  /// The index of each number, or name. Throws: error beyond 2^32 - 1 ids.
  void index(std::span<const std::uint64_t> numbers, std::uint32_t* to);
  void index(std::span<const std::string_view> names, std::uint32_t* to) { names_.index(names, to); }
  std::uint32_t index(std::uint64_t number);
  std::uint32_t index(std::string_view name) { return names_.index(name); }
  /// Adds the ids [begin, end).
  void mention(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    if (kind_ == kind::dense) ranges_.push_back({begin, end});
    else
      for (auto n = begin; n < end; ++n) index(n);
  }

  /// New ids get the next index from now on. The caller converts those that it holds: old index i to index(i).
  void leave_dense();
  /// Numbers become names, as they were read; indices do not change. Not while dense.
  void make_names();

  /// All ids ascending, and the place of each index among them (empty: i is at place i). Consumes the dictionary.
  struct sorted_ids {
    id_list ids;
    std::vector<std::uint32_t> place;
  };
  sorted_ids take_sorted();

 private:
  struct slot {
    std::uint64_t key = 0;
    std::uint64_t index_and_one = 0;  // 0: empty
  };
  /// Adds a dense id.
  void see(std::uint64_t number) {
    if (number >= seen_.size()) seen_.resize(number + 1 + seen_.size() / 2);
    seen_[number] = 1;
  }
  static std::uint64_t place_of(std::uint64_t key) noexcept;
  void reserve_one();
  sorted_ids take_sorted_numbers();
  sorted_ids take_sorted_names();
  sorted_ids take_sorted_dense();

  kind kind_ = kind::dense;
  std::uint64_t dense_below_;
  std::vector<unsigned char> seen_;                              // 1 for dense ids in use,
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges_;  // except those that were added as a range
  std::vector<slot> slots_;                                      // of numbers: a power of two of them
  std::size_t count_ = 0;
  string_interner names_;
};

}  // namespace paracel
