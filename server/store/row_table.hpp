// SPDX-License-Identifier: BSD-3-Clause
//
// The rows of a typed table in one shard. A row is stored in a slab, at a fixed address while it exists:
//
//     u64 id, or the place of its name | values | state of the optimizer | u32 steps (if they are counted)
//
// Each partition has an index of its own, open addressing with linear probing, whose slots are 8 bytes: 32 bits of the
// row's hash, which settle nearly every comparison, and its number. So a row access is one cache line of slots and the
// row itself, and a batch prefetches slots and rows some time before it reaches them.
//
// Memory of a row: stride + 8 bytes / load factor (0.44 to 0.875, some 14 bytes on average over many partitions);
// row_table_test.cpp keeps a row of floats below width * 4 * (1 + states) + 32 bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include <paracel/detail/bytes.hpp>
#include <paracel/detail/value.hpp>

#include "server/store/arena.hpp"
#include "server/store/growing_slots.hpp"
#include "server/store/slot_pool.hpp"

namespace paracel::srv {

struct row_layout {
  value_tag element = value_tag::f32;
  std::uint32_t width = 1;
  std::uint32_t states = 0;  ///< numbers of state per element
  bool counts_steps = false;

  static constexpr std::size_t value_at = 8;
  [[nodiscard]] std::size_t value_bytes() const noexcept { return width * element_bytes(element); }
  [[nodiscard]] std::size_t state_at() const noexcept { return value_at + value_bytes(); }
  [[nodiscard]] std::size_t state_bytes() const noexcept { return states * value_bytes(); }
  [[nodiscard]] std::size_t steps_at() const noexcept { return state_at() + state_bytes(); }
  [[nodiscard]] std::size_t row_bytes() const noexcept {
    return steps_at() + (counts_steps ? sizeof(std::uint32_t) : 0);
  }
  /// From row to row: elements stay aligned.
  [[nodiscard]] std::size_t stride() const noexcept {
    const auto step = element_bytes(element);
    return (row_bytes() + step - 1) / step * step;
  }
};

/// Rows by 64-bit id or by name; one row_table has only one kind.
///
/// A hash is XXH3-64 of id or name; its low 32 bits are used here. Partitions are numbered within the shard.
/// Thread-safety: owned by the shard thread.
/// Cost: indexes grow separately, at 7/8; one of more than 65,536 slots moves 16 of them with each new row
/// (growing_slots.hpp).
class row_table {
 public:
  row_table(const row_layout& layout, std::uint32_t partitions, bool named);
  row_table(const row_table&) = delete;
  row_table& operator=(const row_table&) = delete;
  ~row_table();

  [[nodiscard]] const row_layout& layout() const noexcept { return layout_; }
  [[nodiscard]] bool named() const noexcept { return named_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// While it is unchanged no row has been erased, and each has kept its address.
  [[nodiscard]] std::uint64_t erasures() const noexcept { return erasures_; }
  [[nodiscard]] std::size_t memory_bytes() const noexcept;

  /// The row, or null. Its address is fixed until it is erased.
  template <class Key>
  [[nodiscard]] std::byte* find(std::uint32_t partition, std::uint64_t hash, Key key) const noexcept {
    const auto& p = partitions_[partition];
    if (p.slots == nullptr) return nullptr;
    const auto* s = locate(p, print_of(hash), key);
    return s == nullptr ? nullptr : row_at(number_of(*s));
  }
  /// A new row of zeros; it must not exist.
  /// Throws: std::bad_alloc; nothing has changed.
  std::byte* make(std::uint32_t partition, std::uint64_t hash, std::uint64_t id);
  std::byte* make(std::uint32_t partition, std::uint64_t hash, std::string_view name);
  /// True if it existed.
  bool erase(std::uint32_t partition, std::uint64_t hash, std::uint64_t id) noexcept;
  bool erase(std::uint32_t partition, std::uint64_t hash, std::string_view name) noexcept;
  /// Erases all rows. Cost: O(partitions + slabs + bytes of names / 16 KiB); `tidy`, and new rows, release their
  /// memory.
  void clear() noexcept;
  /// Erases the rows of one partition. Cost: O(its slots).
  void clear(std::uint32_t partition) noexcept;
  /// Whether `tidy` is not done, or enough rows have been erased since it last began, or indexes that grow hold much.
  [[nodiscard]] bool wants_tidying() const noexcept {
    constexpr std::uint64_t few = 64;
    return tidying_ || !cleared_.empty() || erasures_ - tidied_erasures_ > few + size_ / 16 ||
           replaced_bytes_ > large_page_bytes + memory_bytes() / 16;
  }
  /// Gives back memory that erased rows have left, step by step until `over()`: indexes are shrunk, those that grow are
  /// moved to the end, and slabs without rows released. Rows are not moved. Returns: whether there is more to be done.
  bool tidy(const std::function<bool()>& over) noexcept;
  [[nodiscard]] std::uint32_t size(std::uint32_t partition) const noexcept { return partitions_[partition].size; }
  /// Whether its index is between two arrays of slots.
  [[nodiscard]] bool is_moving(std::uint32_t partition) const noexcept { return partitions_[partition].moving != 0; }
  /// Calls f(row) for each row of the partition, in no particular order.
  template <class F>
  void for_each(std::uint32_t partition, const F& f) const {
    const auto& p = partitions_[partition];
    if (p.size == 0) return;
    if (p.moving != 0) replaced(p).for_each([&](slot s) { f(row_at(number_of(s))); });
    for (std::size_t i = 0; i <= p.mask; ++i) {
      if (p.slots[i] != 0) f(row_at(number_of(p.slots[i])));
    }
  }

  /// For a batch: first prefetch the slot, later the result of `guess`, which is usually the row.
  void prefetch_slot(std::uint32_t partition, std::uint64_t hash) const noexcept {
    const auto& p = partitions_[partition];
    if (p.slots != nullptr) __builtin_prefetch(&p.slots[print_of(hash) & p.mask]);
    if (p.moving != 0) [[unlikely]]
      prefetch_replaced(p, print_of(hash));
  }
  /// The first row with the same 32 bits of hash, or null. Its id is not compared.
  [[nodiscard]] std::byte* guess(std::uint32_t partition, std::uint64_t hash) const noexcept {
    const auto& p = partitions_[partition];
    if (p.slots == nullptr) return nullptr;
    const auto print = print_of(hash);
    for (std::size_t i = print & p.mask; p.slots[i] != 0; i = (i + 1) & p.mask) {
      if (p.slots[i] >> 32U == print) return row_at(number_of(p.slots[i]));
    }
    return p.moving != 0 ? guess_replaced(p, print) : nullptr;
  }
  [[nodiscard]] static bool is(const std::byte* row, std::uint64_t id) noexcept { return id_of(row) == id; }
  [[nodiscard]] static bool is(const std::byte* row, std::string_view name) noexcept { return name_of(row) == name; }
  [[nodiscard]] static std::uint64_t id_of(const std::byte* row) noexcept {
    std::uint64_t id = 0;
    load_fields(row, id);
    return id;
  }
  [[nodiscard]] static std::string_view name_of(const std::byte* row) noexcept {
    const std::byte* block = nullptr;
    load_fields(row, block);
    std::uint32_t bytes = 0;
    load_fields(block, bytes);
    return {reinterpret_cast<const char*>(block) + sizeof bytes, bytes};
  }

  /// The next row at or after `position`, which is advanced past it; null at the end. Rows that exist throughout are
  /// visited once, whatever is created or erased between the calls.
  [[nodiscard]] const std::byte* next(std::uint64_t& position) const noexcept;

 private:
  using slot = std::uint64_t;  // upper half: 32 bits of the hash; lower half: number of the row + 1; 0: empty
  struct index {
    slot* slots = nullptr;
    std::uint32_t mask = 0;
    std::uint32_t size : 31 = 0;
    std::uint32_t moving : 1 = 0;  // the slots are being moved from `replaced`
  };
  static_assert(sizeof(index) == 16);
  static constexpr std::size_t first_slots = 8;
  static constexpr std::uint32_t none = 0xffffffffU;

  static std::uint64_t print_of(std::uint64_t hash) noexcept { return hash & 0xffffffffU; }
  static std::uint32_t number_of(slot s) noexcept { return static_cast<std::uint32_t>(s) - 1; }
  /// The use of a slab, which is memory for `slab_mask_ + 1` rows with consecutive numbers.
  struct slab_use {
    std::uint32_t used = 0;
    std::uint32_t begun = 0;    // rows that have ever been used
    std::uint32_t free = none;  // freed numbers: a list linked through the rows
    std::uint32_t next = none;  // of the slabs with room, or of the released ones
    std::uint32_t previous = none;
  };
  [[nodiscard]] std::byte* row_at(std::uint32_t number) const noexcept {
    return slabs_[number >> slab_shift_] + (number & slab_mask_) * stride_;
  }
  static replaced_slots& replaced(const index& p) noexcept { return large_slots::front_of(p.slots).old; }
  /// The slot of a row in one of the arrays of its partition, which has one, or null.
  template <class Key>
  [[nodiscard]] slot* locate(const index& p, std::uint64_t print, Key key) const noexcept {
    const auto is_of_key = [&](slot s) { return s >> 32U == print && is(row_at(number_of(s)), key); };
    for (std::size_t i = print & p.mask; p.slots[i] != 0; i = (i + 1) & p.mask) {
      if (is_of_key(p.slots[i])) return &p.slots[i];
    }
    if (p.moving == 0) return nullptr;
    const auto& old = replaced(p);
    return old.find(print & (old.count - 1), is_of_key);
  }
  static void prefetch_replaced(const index& p, std::uint64_t print) noexcept;
  [[nodiscard]] std::byte* guess_replaced(const index& p, std::uint64_t print) const noexcept;
  template <class Key>
  bool erase_key(std::uint32_t partition, std::uint64_t hash, Key key) noexcept;
  std::byte* make_row(index& p, std::uint64_t hash, std::uint64_t front);
  void grow(index& p);
  void rehash(index& p, std::size_t slots);
  static void settle(index& p, slot s) noexcept;
  void move_some(index& p, std::size_t slots) noexcept;
  bool fit(index& p);
  slot* take_slots(std::size_t count);
  void free_slots(slot* slots, std::size_t count) noexcept;
  void free_slots(index& p) noexcept;
  void free_replaced(index& p) noexcept;
  std::uint32_t take_number();
  void free_number(std::uint32_t number) noexcept;
  void add_slab();
  void link(std::uint32_t slab) noexcept;
  void unlink(std::uint32_t slab) noexcept;
  void release_slab(std::uint32_t slab) noexcept;
  void unmap(std::byte* slab) const noexcept;
  static std::size_t name_block_bytes(std::size_t text) noexcept {
    return std::max(arena::smallest, arena::rounded(sizeof(std::uint32_t) + text));
  }

  row_layout layout_;
  std::size_t stride_;
  unsigned slab_shift_;
  std::uint32_t slab_mask_;
  std::size_t slab_bytes_;
  bool named_;
  chunk_pool chunks_;
  arena memory_{chunks_};  // short indexes and names
  slot_pool pool_;         // other indexes
  std::vector<index> partitions_;
  std::vector<std::byte*> slabs_;    // null: released; its numbers are used again when there is a new one
  std::vector<std::byte*> cleared_;  // slabs of rows that `clear` has erased, to be released
  std::vector<slab_use> uses_;       // of each slab; apart, since looking up a row reads only the addresses
  std::uint32_t open_ = none;        // slabs with room: a list, linked through them
  std::uint32_t released_ = none;    // likewise
  std::deque<std::uint64_t> alive_;  // a bit a row; a deque grows without being copied
  std::uint64_t begun_ = 0;          // rows in the slabs that have ever been used
  std::uint64_t size_ = 0;
  std::uint64_t erasures_ = 0;
  std::size_t replaced_bytes_ = 0;     // of slots that are being moved to others
  std::uint64_t tidied_erasures_ = 0;  // when `tidy` last began
  std::uint32_t tidied_ = 0;           // partitions that it has done
  bool tidying_ = false;               // it is not done
};

}  // namespace paracel::srv
