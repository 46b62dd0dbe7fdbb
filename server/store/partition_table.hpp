// SPDX-License-Identifier: BSD-3-Clause
//
// The keys of one partition. A slot of the table is 8 bytes: 48 bits of address and the low 16 bits of the key's hash,
// which place the entry and reject nearly every mismatch without touching it. Key and value are stored together in one
// block of the shard's arena:
//
//     u64 version | u32 value_bytes | u16 key_bytes | u8 tag | u8 large | key, padded to 8 | value, padded to 8
//
// A value above 64 KiB is not in the block but in a shared_buffer, usually the very message it arrived in; the block
// then ends with the pointer to it. Replies share the shared_buffer, and a change in place copies it first while it is
// still shared.
//
// Measured, 1 M keys of 20 characters with one double in 16,384 partitions: see
// test/unit/store/partition_table_test.cpp, which keeps the bytes a key below 80.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <paracel/detail/bytes.hpp>
#include <paracel/detail/value.hpp>

#include "core/shared_buffer.hpp"
#include "net/protocol.hpp"
#include "server/store/arena.hpp"
#include "server/store/growing_slots.hpp"
#include "server/store/slot_pool.hpp"

namespace paracel::srv {

/// A key and its value, in place. Values begin at a multiple of 8.
class entry {
 public:
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }
  [[nodiscard]] value_tag tag() const noexcept { return tag_; }
  [[nodiscard]] std::string_view key() const noexcept { return {reinterpret_cast<const char*>(this + 1), key_bytes_}; }
  [[nodiscard]] bool is_large() const noexcept { return large_; }
  [[nodiscard]] std::span<const std::byte> value() const noexcept {
    return large_ ? std::span<const std::byte>{control()->data, control()->size}
                  : std::span<const std::byte>{place(), value_bytes_};
  }
  [[nodiscard]] value_view view() const noexcept { return {tag_, value()}; }
  /// Type and size of the value, and whether it is large: entries are compared by it at once.
  [[nodiscard]] std::uint64_t kind() const noexcept {
    constexpr std::uint64_t key_bits = 0xffff'0000'0000;
    return load_field<std::uint64_t>(reinterpret_cast<const std::byte*>(&value_bytes_)) & ~key_bits;
  }
  /// The bytes of a value whose tag says that it is one number, which is never large.
  [[nodiscard]] const std::byte* scalar() const noexcept { return place(); }
  /// Another reference to a large value; it keeps these bytes alive whatever happens to the entry.
  [[nodiscard]] shared_buffer share() const noexcept {
    control()->refs.fetch_add(1, std::memory_order_relaxed);
    return shared_buffer::adopt(control());
  }
  /// In the arena, for its scan; excluding a large value.
  [[nodiscard]] std::size_t block_bytes() const noexcept {
    return sizeof(entry) + key_room() + (large_ ? sizeof(shared_buffer::control*) : arena::rounded(value_bytes_));
  }

 private:
  friend class table;
  entry() = default;
  [[nodiscard]] std::size_t key_room() const noexcept { return arena::rounded(key_bytes_); }
  [[nodiscard]] std::byte* place() noexcept { return reinterpret_cast<std::byte*>(this + 1) + key_room(); }
  [[nodiscard]] const std::byte* place() const noexcept {
    return reinterpret_cast<const std::byte*>(this + 1) + key_room();
  }
  [[nodiscard]] shared_buffer::control* control() const noexcept {
    shared_buffer::control* c = nullptr;
    load_fields(place(), c);
    return c;
  }

  std::uint64_t version_ = 0;
  std::uint32_t value_bytes_ = 0;
  std::uint16_t key_bytes_ = 0;
  value_tag tag_ = value_tag::none;
  bool large_ = false;  // where the arena marks a free block
};
static_assert(sizeof(entry) == arena::smallest);

/// Memory for the slots of a shard's tables. Thread-safety: owned by the shard thread.
class slot_memory {
 public:
  /// Zeros. Throws: std::bad_alloc.
  std::uint64_t* allocate(std::size_t count);
  /// `given_back`: bytes of its front (`large_slots::give_back`).
  void free(std::uint64_t* slots, std::size_t count, std::size_t given_back = 0) noexcept;
  [[nodiscard]] chunk_pool& chunks() noexcept { return chunks_; }
  [[nodiscard]] const chunk_pool& chunks() const noexcept { return chunks_; }

 private:
  chunk_pool chunks_;
  arena short_{chunks_};
  slot_pool long_;
};

/// State shared by the tables of a shard.
struct table_stats {
  std::uint64_t last_version = 0;  ///< versions are unique in a shard, so that they increase within every partition
  std::uint64_t moves = 0;  ///< increases whenever an entry is removed, or its value changes address, size or type
  std::size_t replaced_bytes = 0;  ///< of arrays of slots whose tables are being moved to others
  slot_memory slots;
};

/// The table of one partition: open addressing with linear probing.
///
/// Thread-safety: owned by the shard thread.
/// Lifetime: arena and family must outlive it.
/// Cost: an access is one hash (the caller's), one cache line of slots and one of the entry; while a large table grows
/// it may be a second line of slots. An empty table allocates nothing. Growth takes no longer than 0.5 ms of an
/// insertion: a table of more than 65,536 slots moves 16 of them with each (growing_slots.hpp).
class table {
 public:
  table() = default;
  table(arena& memory, table_stats& family) noexcept : memory_(&memory), family_(&family) {}
  table(table&& other) noexcept;
  table& operator=(table&& other) noexcept;
  ~table() { clear(); }

  /// The entry of `key`, whose hash is `hash`, or nullptr. Valid until the next store, erase or clear.
  [[nodiscard]] entry* find(std::uint64_t hash, std::string_view key) const noexcept;
  /// Sets the value and gives it a new version. `value` must not lie in this table. Above `net::tail_threshold_bytes`
  /// it becomes a shared_buffer. Throws: std::bad_alloc; the table is unchanged.
  entry& store(std::uint64_t hash, std::string_view key, const value_view& value);
  /// The same with bytes that are moved in when they are large, and copied once if they are not aligned to 8.
  entry& store(std::uint64_t hash, std::string_view key, value_tag tag, shared_buffer value);
  /// True if it existed.
  bool erase(std::uint64_t hash, std::string_view key) noexcept;
  void clear() noexcept;

  /// Moves the entries that lie in the old chunks of the arena (`arena::begin_moving`). Throws: std::bad_alloc; some
  /// are moved, and the table is the same.
  void move_entries();
  /// Shrinks a table that has become much too large, or goes on moving it, in steps. Returns: whether there is more to
  /// be done. Throws: std::bad_alloc; it is unchanged.
  bool fit();
  /// Whether it is between two arrays of slots.
  [[nodiscard]] bool is_moving() const noexcept { return moving_ != 0; }

  /// The bytes of `e` for a change in place. Copies a large value first while a reply still holds it.
  std::span<std::byte> open(entry& e);
  /// The same of a value that is not large.
  static std::byte* place_of(entry& e) noexcept { return e.place(); }
  /// Marks the end of a change in place: a new version.
  void changed(entry& e) noexcept { e.version_ = ++family_->last_version; }
  /// The same with a version that was reserved beforehand (`key_store::take_versions`).
  static void set_version(entry& e, std::uint64_t version) noexcept { e.version_ = version; }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// For a batch of keys: prefetch the slots of all, then the entries of all, then access them. The cache misses of
  /// different keys then overlap.
  void prefetch_slot(std::uint64_t hash) const noexcept {
    if (slots_ != nullptr) __builtin_prefetch(&slots_[hash & mask_]);
    if (moving_ != 0) [[unlikely]]
      prefetch_replaced(hash);
  }
  /// The first entry whose slot fits the hash, or null. Its key is another one in one of 65,536 cases.
  [[nodiscard]] entry* guess(std::uint64_t hash) const noexcept {
    if (slots_ == nullptr) return nullptr;
    const auto wanted = hash & 0xffffU;
    for (std::size_t i = hash & mask_; slots_[i] != 0; i = (i + 1) & mask_)
      if (slots_[i] >> address_bits == wanted) return entry_of(slots_[i]);
    return moving_ != 0 ? guess_replaced(hash) : nullptr;
  }

  /// Calls f(const entry&) for each whose low 16 bits of the hash are in [first, first + width), in no particular
  /// order. These bits never change while an entry exists, so that a range always denotes the same part of the table.
  /// Cost:
  /// O(slots * width / 65536), and O(slots) in a table of more than 65,536 of them.
  template <class F>
  void for_each(std::uint32_t first, std::uint32_t width, const F& f) const {
    if (slots_ == nullptr) return;
    const auto visit = [&](slot s) {
      if (const auto low = static_cast<std::uint32_t>(s >> address_bits); low - first < width) {
        f(*static_cast<const entry*>(entry_of(s)));
      }
    };
    if (moving_ != 0) replaced().for_each(visit);
    // Narrower than the table: the homes of the range are adjacent, and displaced entries follow up to a gap.
    const bool narrow = mask_ <= 0xffffU && width <= mask_;
    const std::size_t homes = narrow ? width : mask_ + 1UL;
    const std::size_t begin = narrow ? first : 0;
    for (std::size_t i = 0; i <= mask_; ++i) {
      const auto s = slots_[(begin + i) & mask_];
      if (s == 0) {
        if (i >= homes) return;
        continue;
      }
      visit(s);
    }
  }

 private:
  using slot = std::uint64_t;  // 0: empty
  static constexpr unsigned address_bits = 48;

  static entry* entry_of(slot s) noexcept { return reinterpret_cast<entry*>(s & ((slot{1} << address_bits) - 1)); }
  static slot slot_of(const entry* e, std::uint64_t hash) noexcept {
    return (hash << address_bits) | reinterpret_cast<std::uintptr_t>(e);
  }
  [[nodiscard]] static std::size_t home_of(slot s, std::size_t mask) noexcept;
  [[nodiscard]] slot* locate(std::uint64_t hash, std::string_view key) const noexcept;
  slot& place_for(std::uint64_t hash, std::string_view key);
  entry* make(std::string_view key, value_tag tag, std::size_t value_bytes, bool large);
  void release(entry* e) noexcept;
  void count_bytes(std::size_t bytes, bool comes) noexcept {
    memory_->count_bytes(comes ? static_cast<std::ptrdiff_t>(bytes) : -static_cast<std::ptrdiff_t>(bytes));
  }
  entry& put(slot& s, std::uint64_t hash, entry* fresh) noexcept;
  void rehash(std::size_t slots);
  void free_slots() noexcept;
  [[nodiscard]] replaced_slots& replaced() const noexcept { return large_slots::front_of(slots_).old; }
  void prefetch_replaced(std::uint64_t hash) const noexcept;
  [[nodiscard]] entry* guess_replaced(std::uint64_t hash) const noexcept;
  void settle(slot s) noexcept;
  void move_some(std::size_t slots) noexcept;
  void free_replaced() noexcept;

  arena* memory_ = nullptr;
  table_stats* family_ = nullptr;
  slot* slots_ = nullptr;
  std::uint32_t mask_ = 0;
  std::uint32_t size_ : 31 = 0;
  std::uint32_t moving_ : 1 = 0;  // the slots are being moved from `replaced`
};
static_assert(sizeof(table) == 32);  // never in two cache lines

}  // namespace paracel::srv
