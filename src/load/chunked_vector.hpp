// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>

namespace paracel {

/// Pairs of row and column, optionally with a value each, in blocks: it grows without copying, and blocks that were
/// read can be freed while their result grows. A pair of a full block is kept in as few bytes as the greatest row and
/// column of the block need, so that an edge between a million vertices takes 5 bytes instead of 8. Thread-safety: none
/// Cost: at most 8 bytes (12 with 64-bit columns) for an entry, 8 more with values, and the last block as it is.
template <class Column>
class basic_entry_store {
 public:
  /// Entries of a block. `value` is null without values.
  struct view {
    std::uint32_t* row = nullptr;
    Column* column = nullptr;
    double* value = nullptr;
    std::size_t size = 0;
  };
  /// Memory for the pairs of one block.
  struct room {
    std::unique_ptr<std::uint32_t[]> row;
    std::unique_ptr<Column[]> column;
  };
  static constexpr std::size_t large = std::size_t{1} << 17U;

  explicit basic_entry_store(bool valued = false, std::size_t block_entries = large)
      : valued_(valued), capacity_(block_entries) {}
  basic_entry_store(basic_entry_store&&) noexcept = default;
  basic_entry_store& operator=(basic_entry_store&&) noexcept = default;
  basic_entry_store(const basic_entry_store&) = delete;
  basic_entry_store& operator=(const basic_entry_store&) = delete;
  ~basic_entry_store() = default;

  [[nodiscard]] bool valued() const noexcept { return valued_; }
  [[nodiscard]] std::size_t size() const noexcept { return full_.size() * capacity_ + last_size_; }
  /// The number of blocks. All but the last one are full.
  [[nodiscard]] std::size_t blocks() const noexcept { return full_.size() + (last_size_ > 0 ? 1 : 0); }

  void push(std::uint32_t row, Column column, double value) {
    if (last_size_ == last_capacity_) grow();
    last_.row[last_size_] = row;
    last_.column[last_size_] = column;
    if (valued_) last_value_[last_size_] = value;
    ++last_size_;
  }
  /// Pushes n entries. `value` is not used without values.
  void append(const std::uint32_t* row, const Column* column, const double* value, std::size_t n) {
    for (std::size_t done = 0; done < n;) {
      if (last_size_ == last_capacity_) grow();
      const auto some = std::min(n - done, last_capacity_ - last_size_);
      std::copy_n(row + done, some, last_.row.get() + last_size_);
      std::copy_n(column + done, some, last_.column.get() + last_size_);
      if (valued_) std::copy_n(value + done, some, last_value_.get() + last_size_);
      last_size_ += some;
      done += some;
    }
  }
  /// Block i of those that are left. Lifetime: until the next push, drop or call with this room.
  [[nodiscard]] view block(std::size_t i, room& to) {
    if (i == full_.size()) return {last_.row.get(), last_.column.get(), last_value_.get(), last_size_};
    if (to.row == nullptr) make(to);
    unpack(full_[i], to.row.get(), to.column.get());
    return {to.row.get(), to.column.get(), full_[i].value.get(), capacity_};
  }
  /// Calls f(view) for each block.
  template <class F>
  void each_block(F&& f) {
    room to;
    for (std::size_t i = 0; i < blocks(); ++i) f(block(i, to));
  }
  /// The same; f may change rows and columns.
  template <class F>
  void change_blocks(F&& f) {
    room to;
    for (std::size_t i = 0; i < blocks(); ++i) {
      f(block(i, to));
      if (i < full_.size()) full_[i] = packed(to, std::move(full_[i].value));
    }
  }
  /// Calls f(view) for each block, and frees it. Nothing may be pushed afterwards.
  template <class F>
  void drain_blocks(F&& f) {
    room to;
    for (; blocks() > 0; drop_front()) f(block(0, to));
  }
  /// The same for arrays that have size() elements; `value` is not used without values.
  void drain_to(std::uint32_t* row, Column* column, double* value) {
    for (; !full_.empty(); full_.pop_front(), row += capacity_, column += capacity_) {
      unpack(full_.front(), row, column);
      if (valued_) value = std::copy_n(full_.front().value.get(), capacity_, value);
    }
    std::copy_n(last_.row.get(), last_size_, row);
    std::copy_n(last_.column.get(), last_size_, column);
    if (valued_) std::copy_n(last_value_.get(), last_size_, value);
    drop_front();
  }
  /// Frees the first block. Nothing may be pushed afterwards.
  void drop_front() {
    if (!full_.empty()) return full_.pop_front();
    last_ = room();
    last_value_.reset();
    last_size_ = last_capacity_ = 0;
  }

 private:
  // The row in the low bits of a little-endian number, the column above it. Where that needs more than 8 bytes: all
  // rows, then all columns.
  struct packed_block {
    std::unique_ptr<std::byte[]> pairs;
    std::unique_ptr<double[]> value;
    unsigned row_bits = 0;
    unsigned pair_bytes = 0;
  };
  static constexpr std::size_t word = sizeof(std::uint64_t);

  void make(room& r) const {
    r.row = std::make_unique_for_overwrite<std::uint32_t[]>(capacity_);
    r.column = std::make_unique_for_overwrite<Column[]>(capacity_);
  }
  void grow() {
    if (last_capacity_ == 0) make(last_);
    else full_.push_back(packed(last_, std::move(last_value_)));
    if (valued_) last_value_ = std::make_unique_for_overwrite<double[]>(capacity_);
    last_size_ = 0;
    last_capacity_ = capacity_;
  }
  packed_block packed(const room& from, std::unique_ptr<double[]> value) const {
    const auto n = capacity_;
    const auto* const row = from.row.get();
    const auto* const column = from.column.get();
    std::uint32_t rows = 0;
    Column columns = 0;
    for (std::size_t k = 0; k < n; ++k) {
      rows |= row[k];
      columns |= column[k];
    }
    packed_block b;
    b.value = std::move(value);
    b.row_bits = static_cast<unsigned>(std::bit_width(rows));
    b.pair_bytes = (b.row_bits + static_cast<unsigned>(std::bit_width(columns)) + 7) / 8;
    if (b.pair_bytes > word) {
      b.pairs = std::make_unique_for_overwrite<std::byte[]>(n * (sizeof(std::uint32_t) + sizeof(Column)));
      std::memcpy(b.pairs.get(), row, n * sizeof(std::uint32_t));
      std::memcpy(b.pairs.get() + n * sizeof(std::uint32_t), column, n * sizeof(Column));
      return b;
    }
    // Each pair is written as a whole word, whose unused bytes the next one overwrites.
    b.pairs = std::make_unique_for_overwrite<std::byte[]>(n * b.pair_bytes + word);
    const auto bytes = b.pair_bytes;
    const auto shift = b.row_bits;
    auto* to = b.pairs.get();
    for (std::size_t k = 0; k < n; ++k, to += bytes) {
      const auto pair = row[k] | std::uint64_t{column[k]} << shift;
      std::memcpy(to, &pair, word);
    }
    return b;
  }
  void unpack(const packed_block& b, std::uint32_t* row, Column* column) const {
    const auto n = capacity_;
    const auto* from = b.pairs.get();
    if (b.pair_bytes > word) {
      std::memcpy(row, from, n * sizeof(std::uint32_t));
      std::memcpy(column, from + n * sizeof(std::uint32_t), n * sizeof(Column));
      return;
    }
    const auto bytes = b.pair_bytes;
    const auto shift = b.row_bits;
    const auto used = bytes == word ? ~std::uint64_t{0} : (std::uint64_t{1} << bytes * 8) - 1;
    const auto low = (std::uint64_t{1} << shift) - 1;
    for (std::size_t k = 0; k < n; ++k, from += bytes) {
      std::uint64_t pair = 0;
      std::memcpy(&pair, from, word);
      row[k] = static_cast<std::uint32_t>(pair & low);
      column[k] = static_cast<Column>((pair & used) >> shift);
    }
  }

  bool valued_;
  std::size_t capacity_;
  std::deque<packed_block> full_;
  room last_;  // the last block
  std::unique_ptr<double[]> last_value_;
  std::size_t last_size_ = 0;
  std::size_t last_capacity_ = 0;  // 0 until it has memory
};

/// Indices of an id_interner.
using chunked_vector = basic_entry_store<std::uint32_t>;

}  // namespace paracel
