// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <paracel/detail/bytes.hpp>

#include "core/large_pages.hpp"

namespace paracel::srv {

/// Memory for the indexes of a table's partitions: blocks whose sizes are powers of two, cut from regions of one block
/// size each. All but the first region of a size request huge pages: 10 million rows by random ids in 16,384 partitions
/// have indexes of 8 KiB, 130 MB together; a row took 48 ns with them in small pages and 38 in huge ones.
///
///     region   | front | block | block | free | block | not yet used |     2 MiB, aligned; the front is in the
///                                                                          place of the first block
///     free     next free block of the region | ...
///
/// Thread-safety: owned by the shard thread. Cost: O(1); a region whose blocks are all free is released.
class slot_pool {
 public:
  static constexpr std::size_t smallest = 512;
  static constexpr std::size_t largest = std::size_t{64} << 10;

  slot_pool() = default;
  slot_pool(const slot_pool&) = delete;
  slot_pool& operator=(const slot_pool&) = delete;
  ~slot_pool() = default;  // the owner has freed all blocks

  [[nodiscard]] static constexpr bool serves(std::size_t bytes) noexcept {
    return bytes >= smallest && bytes <= largest && std::has_single_bit(bytes);
  }
  /// Throws: std::bad_alloc.
  void* allocate(std::size_t bytes) {
    auto& s = of(bytes);
    if (s.open == nullptr) {
      link(s, new (map_zeros(region_bytes, s.regions != 0)) region);
      ++s.regions;
    }
    auto* const r = s.open;
    void* block = r->free;
    if (block != nullptr) r->free = load_field<void*>(static_cast<const std::byte*>(block));
    else block = reinterpret_cast<std::byte*>(r) + ++r->begun * bytes;
    if (++r->used == blocks_of(bytes)) unlink(s, r);
    return block;
  }
  void free(void* block, std::size_t bytes) noexcept {
    auto& s = of(bytes);
    auto* const r = reinterpret_cast<region*>(reinterpret_cast<std::uintptr_t>(block) / region_bytes * region_bytes);
    if (r->used == blocks_of(bytes)) link(s, r);
    store_fields(static_cast<std::byte*>(block), r->free);
    r->free = block;
    if (--r->used != 0) return;
    unlink(s, r);
    --s.regions;
    ::munmap(r, region_bytes);
  }
  [[nodiscard]] std::size_t regions() const noexcept {
    std::size_t n = 0;
    for (const auto& s : sizes_) n += s.regions;
    return n;
  }

 private:
  static constexpr std::size_t region_bytes = large_page_bytes;
  struct region {
    region* next = nullptr;  // of those with free blocks
    region* previous = nullptr;
    void* free = nullptr;
    std::uint32_t used = 0;
    std::uint32_t begun = 0;  // blocks that have ever been used
  };
  static_assert(sizeof(region) <= smallest);
  struct size {
    region* open = nullptr;
    std::size_t regions = 0;
  };
  static constexpr std::size_t blocks_of(std::size_t bytes) noexcept { return region_bytes / bytes - 1; }

  size& of(std::size_t bytes) noexcept {
    return sizes_[static_cast<std::size_t>(std::countr_zero(bytes) - std::countr_zero(smallest))];
  }
  static void link(size& s, region* r) noexcept {
    r->previous = nullptr;
    r->next = s.open;
    if (s.open != nullptr) s.open->previous = r;
    s.open = r;
  }
  static void unlink(size& s, region* r) noexcept {
    (r->previous != nullptr ? r->previous->next : s.open) = r->next;
    if (r->next != nullptr) r->next->previous = r->previous;
  }

  std::array<size, std::countr_zero(largest) - std::countr_zero(smallest) + 1> sizes_;
};

}  // namespace paracel::srv
