// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>

#include "core/large_pages.hpp"

namespace paracel::srv {

/// Chunks of 16 KiB for arenas, cut from regions of 2 MiB in small pages. Unlike the memory of malloc, that of free
/// chunks can be returned to the system wherever they lie, and a little at a time. A page of the system that is larger
/// than a chunk is returned once all of its chunks are free.
///
///     region   | front | chunk | chunk | free | chunk | ...        2 MiB, aligned; the front is in the place of a
///     chunk
///
/// Thread-safety: owned by the shard thread. Cost: O(1).
class chunk_pool {
 public:
  static constexpr std::size_t chunk_bytes = std::size_t{16} << 10;

  /// `page_bytes`: a power of two, of the system's pages.
  explicit chunk_pool(std::size_t page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) noexcept
      : page_chunks_(std::clamp<std::size_t>(page_bytes / chunk_bytes, 1, chunks_of_region + 1)) {}
  chunk_pool(const chunk_pool&) = delete;
  chunk_pool& operator=(const chunk_pool&) = delete;
  /// All chunks have been freed.
  ~chunk_pool() {
    while (first_ != nullptr) drop(first_);
  }

  /// Throws: std::bad_alloc.
  void* allocate() {
    if (first_ == nullptr) add_region();
    auto* const r = first_;
    // One that still has its memory, if possible.
    std::size_t word = (r->free[0] & r->touched[0]) != 0 ? 0 : 1;
    auto bits = r->free[word] & r->touched[word];
    if (bits == 0) {
      word = r->free[0] != 0 ? 0 : 1;
      bits = r->free[word];
      r->touched[word] |= bits & -bits;
    } else {
      --free_touched_;
    }
    const auto bit = static_cast<unsigned>(std::countr_zero(bits));
    r->free[word] &= ~(std::uint64_t{1} << bit);
    if (++r->used == chunks_of_region) unlink(r);
    return reinterpret_cast<std::byte*>(r) + (word * 64 + bit) * chunk_bytes;
  }
  void free(void* chunk) noexcept {
    auto* const r = region_of(chunk);
    const auto [word, bit] = place_of(chunk);
    r->moving[word] &= ~bit;
    // To the front, so that those with memory to return come first.
    if (r->used-- != chunks_of_region) unlink(r);
    link_first(r);
    r->free[word] |= bit;
    ++free_touched_;
  }

  /// Returns the memory of free chunks to the system, those of one region. Returns: whether some is left.
  /// Cost: a system call for each run of them.
  bool release_some() noexcept {
    while (free_touched_ != 0) {
      auto* const r = first_;
      unlink(r);
      const auto some = r->free_touched();
      free_touched_ -= some;
      if (r->used == 0) {
        ::munmap(r, large_page_bytes);
        break;
      }
      if (some != 0) r->release_free(page_chunks_);
      link_last(r);
      if (some != 0) break;
    }
    return free_touched_ != 0;
  }
  /// Bytes of free chunks that `release_some` has not visited yet.
  [[nodiscard]] std::size_t idle_bytes() const noexcept { return free_touched_ * chunk_bytes; }

  /// A mark of an arena, on a chunk until it is freed: its blocks are being moved away.
  void mark_moving(void* chunk) noexcept {
    const auto [word, bit] = place_of(chunk);
    region_of(chunk)->moving[word] |= bit;
  }
  /// Whether the chunk of this block has the mark.
  [[nodiscard]] static bool is_moving(const void* block) noexcept {
    const auto [word, bit] = place_of(block);
    return (region_of(block)->moving[word] & bit) != 0;
  }

 private:
  static constexpr std::size_t chunks_of_region = large_page_bytes / chunk_bytes - 1;
  static_assert(chunks_of_region == 127);

  struct region {
    region* next = nullptr;  // of those with free chunks
    region* previous = nullptr;
    std::size_t used = 0;
    // A bit a chunk; the first one is the front's.
    std::array<std::uint64_t, 2> free{~std::uint64_t{1}, ~std::uint64_t{0}};
    std::array<std::uint64_t, 2> touched{};  // it has memory, unless that only shares a page with one in use
    std::array<std::uint64_t, 2> moving{};

    [[nodiscard]] std::size_t free_touched() const noexcept {
      return static_cast<std::size_t>(std::popcount(free[0] & touched[0]) + std::popcount(free[1] & touched[1]));
    }
    /// Whole pages only, of as many chunks each.
    void release_free(std::size_t page) noexcept {
      const auto is_idle = [&](std::size_t first) {
        bool is_free = true, has_memory = false;
        for (auto i = first; i < first + page; ++i) {
          is_free = is_free && (free[i / 64] & bit_of(i)) != 0;
          has_memory = has_memory || (touched[i / 64] & bit_of(i)) != 0;
        }
        return is_free && has_memory;
      };
      for (std::size_t i = 0; i <= chunks_of_region; i += page) {
        const auto begin = i;
        while (i <= chunks_of_region && is_idle(i)) i += page;
        if (i != begin)
          ::madvise(reinterpret_cast<std::byte*>(this) + begin * chunk_bytes, (i - begin) * chunk_bytes, MADV_DONTNEED);
      }
      for (const std::size_t word : {0U, 1U}) touched[word] &= ~free[word];
    }
  };
  struct place {
    std::size_t word;
    std::uint64_t bit;
  };

  static constexpr std::uint64_t bit_of(std::size_t i) noexcept { return std::uint64_t{1} << i % 64; }
  static region* region_of(const void* block) noexcept {
    return reinterpret_cast<region*>(reinterpret_cast<std::uintptr_t>(block) / large_page_bytes * large_page_bytes);
  }
  static place place_of(const void* block) noexcept {
    const auto i = reinterpret_cast<std::uintptr_t>(block) % large_page_bytes / chunk_bytes;
    return {i / 64, bit_of(i)};
  }

  void add_region() { link_first(new (map_zeros(large_page_bytes, false)) region); }
  void drop(region* r) noexcept {
    unlink(r);
    ::munmap(r, large_page_bytes);
  }
  void link_first(region* r) noexcept {
    r->previous = nullptr;
    r->next = first_;
    (first_ != nullptr ? first_->previous : last_) = r;
    first_ = r;
  }
  void link_last(region* r) noexcept {
    r->next = nullptr;
    r->previous = last_;
    (last_ != nullptr ? last_->next : first_) = r;
    last_ = r;
  }
  void unlink(region* r) noexcept {
    (r->previous != nullptr ? r->previous->next : first_) = r->next;
    (r->next != nullptr ? r->next->previous : last_) = r->previous;
  }

  std::size_t page_chunks_;
  region* first_ = nullptr;
  region* last_ = nullptr;
  std::size_t free_touched_ = 0;  // number of free chunks that have memory
};

}  // namespace paracel::srv
