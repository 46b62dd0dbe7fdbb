// SPDX-License-Identifier: BSD-3-Clause
//
// Error feedback: what quantised updates of rows have not sent is kept here and added to the next update of the same
// row, so that the sum of what is sent stays within one rounding of the sum of what was asked for.
//
// Source: Seide et al., "1-bit stochastic gradient descent and its application to data-parallel distributed training of
// speech DNNs", Interspeech 2014; Karimireddy et al., "Error feedback fixes SignSGD and other gradient compression
// schemes", ICML 2019, algorithm 1: there with a vector, here with those of its rows that have been updated.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <paracel/detail/bytes.hpp>
#include <paracel/detail/value.hpp>
#include <paracel/detail/wire_format.hpp>

#include "core/large_pages.hpp"
#include "net/row_codec.hpp"
#include "net/row_values.hpp"

namespace paracel {

/// Rows of numbers by id or by name, with zeros to begin with. A slot of the index has 32 bits of the row's hash and
/// its number; the rows are in slabs, each after its id, or after nothing if it has a name. Those of erased rows are
/// used again. Thread-safety: none. Key: std::uint64_t or std::string.
template <class Key>
class residual_rows {
 public:
  static constexpr bool is_named = std::is_same_v<Key, std::string>;
  using key_view = std::conditional_t<is_named, std::string_view, std::uint64_t>;

  explicit residual_rows(std::size_t row_bytes)
      : row_bytes_(row_bytes), stride_((row_at_front + row_bytes + 7) / 8 * 8) {
    const auto rows = std::bit_floor(std::max<std::size_t>(slab_target_bytes / stride_, 1));
    slab_shift_ = static_cast<unsigned>(std::countr_zero(rows));
    slab_bytes_ = (rows * stride_ + large_page_bytes - 1) / large_page_bytes * large_page_bytes;
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// An upper bound for the memory of the rows that exist, but for a slab that is not full.
  [[nodiscard]] std::size_t bytes() const noexcept { return size_ * bytes_a_row() + text_bytes_; }
  /// Of one that is made, without the text of its name.
  [[nodiscard]] std::size_t bytes_a_row() const noexcept {
    return stride_ + most_index_bytes + (is_named ? 2 * sizeof(std::string) : 0);
  }

  /// For a batch: first the slot, later the row, some time before it is looked for.
  void prefetch_slot(std::uint64_t hash) const noexcept {
    if (!slots_.empty()) __builtin_prefetch(&slots_[hash & mask()]);
  }
  void prefetch_row(std::uint64_t hash) const noexcept {
    if (slots_.empty()) return;
    const auto print = hash & 0xffffffffU;
    auto i = print & mask();
    while (slots_[i] != 0 && slots_[i] >> 32U != print) i = (i + 1) & mask();
    if (slots_[i] == 0) return;
    if constexpr (is_named) __builtin_prefetch(&names_[number_of(slots_[i])]);
    constexpr std::size_t line_bytes = 64, most_bytes = 512;  // beyond these the hardware prefetcher takes over
    const auto* front = front_of(number_of(slots_[i]));
    const auto bytes = std::min(stride_, most_bytes);
    for (std::size_t at = 0; at < bytes; at += line_bytes) __builtin_prefetch(front + at, 1);
    __builtin_prefetch(front + bytes - 1, 1);
  }
  /// The row, or null. Its address is fixed until it is erased.
  [[nodiscard]] std::byte* find(std::uint64_t hash, key_view key) const noexcept {
    const auto at = place_of(hash, key);
    return at == nowhere ? nullptr : row_of(number_of(slots_[at]));
  }
  /// The row, made if it is missing. Throws: std::bad_alloc; nothing has changed.
  std::byte* make(std::uint64_t hash, key_view key) {
    if (auto* row = find(hash, key)) return row;
    if ((size_ + 1) * 4 > slots_.size() * 3) grow();
    if (free_ == none && begun_ >> slab_shift_ == slabs_.size()) slabs_.emplace_back(slab_bytes_, !slabs_.empty());
    const auto number = free_ != none ? free_ : begun_;
    if constexpr (is_named) {
      if (number == names_.size()) names_.emplace_back();
      names_[number] = key;
      text_bytes_ += key.size();
    }
    if (free_ != none) load_fields(row_of(number), free_);
    else ++begun_;
    if constexpr (!is_named) store_fields(front_of(number), key);
    insert(hash << 32U | (number + slot{1}));
    ++size_;
    std::memset(row_of(number), 0, row_bytes_);
    return row_of(number);
  }
  void erase(std::uint64_t hash, key_view key) noexcept {
    auto gap = place_of(hash, key);
    if (gap == nowhere) return;
    const auto number = number_of(slots_[gap]);
    if constexpr (is_named) {
      text_bytes_ -= names_[number].size();
      names_[number] = {};
    }
    store_fields(row_of(number), free_);
    free_ = number;
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
      if (s != 0) f(key_of(number_of(s)), row_of(number_of(s)));
  }

 private:
  using slot = std::uint64_t;  // upper half: of the hash, its lower half; lower half: number of the row + 1; 0: empty
  static constexpr std::size_t nowhere = static_cast<std::size_t>(-1);
  static constexpr std::uint32_t none = 0xffffffffU;
  static constexpr std::size_t row_at_front = is_named ? 0 : sizeof(std::uint64_t);
  static constexpr std::size_t most_index_bytes = 24;  // 8 at 3/8, just after it has grown
  static constexpr std::size_t slab_target_bytes = std::size_t{8} << 20;

  struct slab {
    slab(std::size_t n, bool large_pages) : at(map_zeros(n, large_pages)), bytes(n) {}
    slab(slab&& other) noexcept : at(std::exchange(other.at, nullptr)), bytes(other.bytes) {}
    slab& operator=(slab&& other) noexcept {
      std::swap(at, other.at);
      std::swap(bytes, other.bytes);
      return *this;
    }
    ~slab() {
      if (at != nullptr) ::munmap(at, bytes);
    }
    std::byte* at;
    std::size_t bytes;
  };

  [[nodiscard]] std::size_t mask() const noexcept { return slots_.size() - 1; }
  static std::uint32_t number_of(slot s) noexcept { return static_cast<std::uint32_t>(s) - 1; }
  [[nodiscard]] std::byte* front_of(std::uint32_t number) const noexcept {
    return slabs_[number >> slab_shift_].at + (number & ((1U << slab_shift_) - 1)) * stride_;
  }
  [[nodiscard]] std::byte* row_of(std::uint32_t number) const noexcept { return front_of(number) + row_at_front; }
  [[nodiscard]] key_view key_of(std::uint32_t number) const noexcept {
    if constexpr (is_named) return names_[number];
    else return load_field<std::uint64_t>(front_of(number));
  }
  [[nodiscard]] std::size_t place_of(std::uint64_t hash, key_view key) const noexcept {
    if (slots_.empty()) return nowhere;
    const auto print = hash & 0xffffffffU;
    for (auto i = print & mask(); slots_[i] != 0; i = (i + 1) & mask())
      if (slots_[i] >> 32U == print && key_of(number_of(slots_[i])) == key) return i;
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

  std::size_t row_bytes_;
  std::size_t stride_;
  unsigned slab_shift_;
  std::size_t slab_bytes_;
  std::vector<slot> slots_;
  std::vector<slab> slabs_;
  std::vector<std::string> names_;  // by number
  std::uint32_t begun_ = 0;         // rows that have ever been used
  std::uint32_t free_ = none;       // erased ones: a list, linked through them
  std::size_t size_ = 0;
  std::size_t text_bytes_ = 0;
};

/// What a table's client has not sent of its updates.
///
/// Thread-safety: none; owned by the client.
/// Cost: for each row that has been updated, its numbers as they are stored and 32 bytes, or 88 and its name.
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
  void prefetch_slot(const Key& key) const noexcept {
    of<Key>().prefetch_slot(net::hash_row(key));
  }
  template <class Key>
  void prefetch_row(const Key& key) const noexcept {
    of<Key>().prefetch_row(net::hash_row(key));
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
