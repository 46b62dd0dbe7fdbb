// SPDX-License-Identifier: BSD-3-Clause
//
// Error feedback: what quantised updates of rows have not sent is kept here and added to the next update of the same
// row, so that the sum of what is sent stays within one rounding of the sum of what was asked for.
//
// Source: Seide et al., "1-bit stochastic gradient descent and its application to data-parallel distributed training of
// speech DNNs", Interspeech 2014; Karimireddy et al., "Error feedback fixes SignSGD and other gradient compression
// schemes", ICML 2019, algorithm 1: there with a vector, here with those of its rows that have been updated.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <paracel/detail/value.hpp>
#include <paracel/detail/wire_format.hpp>

#include "net/row_codec.hpp"
#include "net/row_values.hpp"

namespace paracel {

/// Rows of numbers by id or by name, with zeros to begin with. Open addressing; freed rows are used again.
/// Thread-safety: none. Key: std::uint64_t or std::string.
template <class Key>
class residual_rows {
 public:
  using key_view = std::conditional_t<std::is_same_v<Key, std::string>, std::string_view, std::uint64_t>;

  explicit residual_rows(std::size_t row_bytes) : row_bytes_(row_bytes) {}

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// An upper bound for the memory of the rows that exist.
  [[nodiscard]] std::size_t bytes() const noexcept { return size_ * bytes_a_row() + text_bytes_; }
  /// Of one that is made, without the text of its name.
  [[nodiscard]] std::size_t bytes_a_row() const noexcept { return row_bytes_ + 2 * sizeof(Key) + most_index_bytes; }

  /// For a batch: the slot some time before the row is looked for.
  void prefetch(std::uint64_t hash) const noexcept {
    if (!slots_.empty()) __builtin_prefetch(&slots_[hash & mask()]);
  }
  /// The row, or null. Its address is fixed until it is erased.
  [[nodiscard]] std::byte* find(std::uint64_t hash, key_view key) const noexcept {
    const auto at = place_of(hash, key);
    return at == nowhere ? nullptr : row_at(number_of(slots_[at]));
  }
  /// The row, made if it is missing. Throws: std::bad_alloc; nothing has changed.
  std::byte* make(std::uint64_t hash, key_view key) {
    if (auto* row = find(hash, key)) return row;
    if ((size_ + 1) * 4 > slots_.size() * 3) grow();
    if (free_.empty()) add_rows();
    keys_[free_.back()] = key;
    const auto number = free_.back();
    free_.pop_back();
    insert(hash << 32U | (number + slot{1}));
    ++size_;
    if constexpr (std::is_same_v<Key, std::string>) text_bytes_ += key.size();
    std::memset(row_at(number), 0, row_bytes_);
    return row_at(number);
  }
  void erase(std::uint64_t hash, key_view key) noexcept {
    auto gap = place_of(hash, key);
    if (gap == nowhere) return;
    const auto number = number_of(slots_[gap]);
    if constexpr (std::is_same_v<Key, std::string>) {
      text_bytes_ -= keys_[number].size();
      keys_[number] = {};
    }
    free_.push_back(number);  // has room: `add_rows` has seen to it
    --size_;
    // Close the gap: a later slot moves up when its home is not between the gap and itself.
    for (auto i = (gap + 1) & mask(); slots_[i] != 0; i = (i + 1) & mask()) {
      if (((i - (slots_[i] >> 32U)) & mask()) < ((i - gap) & mask())) continue;
      slots_[gap] = slots_[i];
      gap = i;
    }
    slots_[gap] = 0;
  }
  /// Erases all, with their memory.
  void clear() noexcept { *this = residual_rows(row_bytes_); }
  /// f(key, row) for each, in no particular order; it may not make or erase any.
  template <class F>
  void for_each(const F& f) const {
    for (const auto s : slots_)
      if (s != 0) f(key_view(keys_[number_of(s)]), row_at(number_of(s)));
  }

 private:
  using slot = std::uint64_t;  // upper half: of the hash, its lower half; lower half: number of the row + 1; 0: empty
  static constexpr std::size_t nowhere = static_cast<std::size_t>(-1);
  static constexpr std::size_t most_index_bytes =
      32;  // slots at 3/8 and the list of free rows, just after they have grown
  static constexpr std::size_t chunk_bytes = std::size_t{64} << 10;

  [[nodiscard]] std::size_t mask() const noexcept { return slots_.size() - 1; }
  static std::uint32_t number_of(slot s) noexcept { return static_cast<std::uint32_t>(s) - 1; }
  [[nodiscard]] std::size_t rows_a_chunk() const noexcept {
    return row_bytes_ < chunk_bytes ? chunk_bytes / row_bytes_ : 1;
  }
  [[nodiscard]] std::byte* row_at(std::uint32_t number) const noexcept {
    return chunks_[number / rows_a_chunk()].get() + number % rows_a_chunk() * row_bytes_;
  }
  [[nodiscard]] std::size_t place_of(std::uint64_t hash, key_view key) const noexcept {
    if (slots_.empty()) return nowhere;
    const auto print = hash & 0xffffffffU;
    for (auto i = print & mask(); slots_[i] != 0; i = (i + 1) & mask())
      if (slots_[i] >> 32U == print && keys_[number_of(slots_[i])] == key) return i;
    return nowhere;
  }
  void insert(slot s) noexcept {
    auto i = (s >> 32U) & mask();
    while (slots_[i] != 0) i = (i + 1) & mask();
    slots_[i] = s;
  }
  void grow() {
    std::vector<slot> old(slots_.empty() ? 16 : slots_.size() * 2);
    old.swap(slots_);
    for (const auto s : old)
      if (s != 0) insert(s);
  }
  void add_rows() {
    const auto more = rows_a_chunk();
    const auto first = keys_.size();
    if (free_.capacity() < first + more) free_.reserve(std::max(2 * free_.capacity(), first + more));
    keys_.resize(first + more);
    try {
      chunks_.push_back(std::make_unique<std::byte[]>(more * row_bytes_));
    } catch (...) {
      keys_.resize(first);
      throw;
    }
    for (auto i = more; i-- > 0;) free_.push_back(static_cast<std::uint32_t>(first + i));
  }

  std::size_t row_bytes_;
  std::vector<slot> slots_;
  std::vector<Key> keys_;  // by number
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::vector<std::uint32_t> free_;
  std::size_t size_ = 0;
  std::size_t text_bytes_ = 0;
};

/// What a table's client has not sent of its updates.
///
/// Thread-safety: none; owned by the client.
/// Cost: for each row that has been updated, its numbers as they are stored and 48 bytes, or 96 and its name.
class row_residuals {
 public:
  row_residuals(wire_format format, value_tag element, std::size_t width, std::size_t most_bytes)
      : format_(format),
        element_(element),
        width_(width),
        most_bytes_(most_bytes),
        by_id_(row_bytes()),
        by_name_(row_bytes()) {
    sent_.resize(width_);
  }

  /// Whether all of these rows can be kept. Cost: O(1) unless most of the memory is in use.
  template <class Keys>
  [[nodiscard]] bool has_room(const Keys& keys) const {
    using key = std::remove_cvref_t<decltype(keys[0])>;
    const auto& rows = of<key>();
    std::size_t bytes = by_id_.bytes() + by_name_.bytes() + keys.size() * rows.bytes_a_row();
    if constexpr (!std::is_same_v<key, std::uint64_t>)
      for (const auto& k : keys) bytes += k.size();
    if (bytes <= most_bytes_) return true;
    bytes = by_id_.bytes() + by_name_.bytes();
    for (const auto& k : keys) {
      if (rows.find(net::hash_row(k), k) != nullptr) continue;
      bytes += rows.bytes_a_row();
      if constexpr (!std::is_same_v<key, std::uint64_t>) bytes += k.size();
    }
    return bytes <= most_bytes_;
  }
  template <class Key>
  void prefetch(const Key& key) const noexcept {
    of<Key>().prefetch(net::hash_row(key));
  }
  /// Adds what is kept of the row to `row`, an update of it, aligned as its numbers; writes that quantised to `to`, and
  /// keeps the difference. A number that is not finite is sent, and nothing of it kept. Throws: std::bad_alloc.
  template <class Key>
  void quantise(const Key& key, std::byte* row, std::byte* to) {
    settle(of<Key>().make(net::hash_row(key), key), row, to);
  }
  /// Adds what is kept of the row to `row`, and keeps nothing of it.
  template <class Key>
  void release(const Key& key, std::byte* row) noexcept {
    const auto hash = net::hash_row(key);
    const auto* kept = of<Key>().find(hash, key);
    if (kept == nullptr) return;
    add(kept, row);
    of<Key>().erase(hash, key);
  }
  template <class Key>
  void forget(const Key& key) noexcept {
    of<Key>().erase(net::hash_row(key), key);
  }
  void clear() noexcept {
    by_id_.clear();
    by_name_.clear();
  }
  [[nodiscard]] std::size_t size() const noexcept { return by_id_.size() + by_name_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return by_id_.bytes() + by_name_.bytes(); }
  /// All that is kept, for a checkpoint of the worker; the same for the same rows. Cost: their bytes, sorted by key.
  [[nodiscard]] std::string encode() const;
  /// Replaces what is kept by what `encode` has returned. Returns: what is wrong, and nothing has changed; null if
  /// valid.
  [[nodiscard]] const char* decode(std::string_view from);
  /// The rows of which something is kept that is not zero.
  [[nodiscard]] std::vector<std::uint64_t> ids() const;
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  [[nodiscard]] std::size_t row_bytes() const noexcept { return width_ * element_bytes(element_); }
  template <class Key>
  [[nodiscard]] auto& of() noexcept {
    if constexpr (std::is_same_v<std::remove_cvref_t<Key>, std::uint64_t>) return by_id_;
    else return by_name_;
  }
  template <class Key>
  [[nodiscard]] const auto& of() const noexcept {
    return const_cast<row_residuals*>(this)->of<Key>();
  }
  void settle(std::byte* kept, std::byte* row, std::byte* to) noexcept;
  void add(const std::byte* kept, std::byte* row) const noexcept;
  [[nodiscard]] bool is_zero(const std::byte* kept) const noexcept;

  wire_format format_;
  value_tag element_;
  std::size_t width_;
  std::size_t most_bytes_;
  residual_rows<std::uint64_t> by_id_;
  residual_rows<std::string> by_name_;
  std::vector<double> sent_;  // a row, as the servers will read it
};

}  // namespace paracel
