// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

namespace paracel {

/// Pairs of row and column, optionally with a value each, in blocks: it grows without copying, and blocks that were
/// read can be freed while their result grows. Cost: 8 bytes per entry (12 with 64-bit columns), 8 more with values,
/// and one block.
template <class Column>
class basic_entry_store {
 public:
  struct block {
    std::unique_ptr<std::uint32_t[]> row;
    std::unique_ptr<Column[]> column;
    std::unique_ptr<double[]> value;
    std::size_t size = 0;
  };
  /// A megabyte of pairs: malloc returns such blocks to the system.
  static constexpr std::size_t large = std::size_t{1} << 17;

  explicit basic_entry_store(bool valued = false, std::size_t block_entries = large)
      : valued_(valued), capacity_(block_entries) {}
  basic_entry_store(basic_entry_store&&) noexcept = default;
  basic_entry_store& operator=(basic_entry_store&&) noexcept = default;
  basic_entry_store(const basic_entry_store&) = delete;
  basic_entry_store& operator=(const basic_entry_store&) = delete;
  ~basic_entry_store() = default;

  [[nodiscard]] bool valued() const noexcept { return valued_; }
  /// The blocks, all but the last one full.
  [[nodiscard]] std::deque<block>& blocks() noexcept {
    if (!blocks_.empty()) blocks_.back().size = capacity_ - left_;
    return blocks_;
  }
  [[nodiscard]] std::size_t size() noexcept {
    std::size_t n = 0;
    for (const auto& b : blocks()) n += b.size;
    return n;
  }

  void push(std::uint32_t row, Column column, double value) {
    if (left_ == 0) grow();
    *row_++ = row;
    *column_++ = column;
    if (valued_) *value_++ = value;
    --left_;
  }
  /// Frees the first block. Nothing may be pushed afterwards.
  void drop_front() { blocks().pop_front(); }

 private:
  void grow() {
    block b;
    b.row = std::make_unique_for_overwrite<std::uint32_t[]>(capacity_);
    b.column = std::make_unique_for_overwrite<Column[]>(capacity_);
    if (valued_) b.value = std::make_unique_for_overwrite<double[]>(capacity_);
    row_ = b.row.get();
    column_ = b.column.get();
    value_ = b.value.get();
    left_ = b.size = capacity_;
    blocks_.push_back(std::move(b));
  }

  bool valued_;
  std::size_t capacity_;
  std::size_t left_ = 0;  // in the last block
  std::uint32_t* row_ = nullptr;
  Column* column_ = nullptr;
  double* value_ = nullptr;
  std::deque<block> blocks_;
};

/// Indices of an id_interner.
using chunked_vector = basic_entry_store<std::uint32_t>;

}  // namespace paracel
