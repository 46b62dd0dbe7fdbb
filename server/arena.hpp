// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define PARACEL_ARENA_PASSES_THROUGH 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PARACEL_ARENA_PASSES_THROUGH 1
#endif
#endif

namespace paracel::srv {

/// Memory for the small entries of one shard: free lists by size in steps of 8 bytes, cut from chunks of 64 KiB.
///
/// malloc would spend 16 bytes more on an entry of 48 (measured with a key of 20 characters and one double).
/// Thread-safety: owned by the shard thread.
/// Cost: O(1); memory that is given back is used again for the same size, and returns to the system with the arena.
/// Under AddressSanitizer every block is its own malloc, so that an overrun of one is seen.
class arena {
 public:
  static constexpr std::size_t step = 8;
  static constexpr std::size_t largest = 1024;  ///< beyond it malloc's share is below 2 %
  static constexpr std::size_t chunk_bytes = 64 * 1024;

  arena() = default;
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;
  ~arena() {
    for (auto* chunk : chunks_) std::free(chunk);
  }

  static constexpr std::size_t rounded(std::size_t bytes) noexcept { return (bytes + step - 1) / step * step; }

  /// `bytes` is a multiple of 8 and not zero; so is the address. Throws: std::bad_alloc.
  void* allocate(std::size_t bytes) {
    void* block = take(bytes);
    used_ += bytes;
    return block;
  }
  void free(void* block, std::size_t bytes) noexcept {
    used_ -= bytes;
    if (passes_through || bytes > largest) {
      std::free(block);
      return;
    }
    auto* link = static_cast<free_block*>(block);
    link->next = free_[bytes / step];
    free_[bytes / step] = link;
  }
  /// Bytes handed out and not given back, and those that the tables say they hold elsewhere.
  [[nodiscard]] std::size_t used() const noexcept { return used_; }
  /// Counts memory that is held on behalf of an entry: large values, slots.
  void note(std::ptrdiff_t bytes) noexcept { used_ += static_cast<std::size_t>(bytes); }

 private:
#ifdef PARACEL_ARENA_PASSES_THROUGH
  static constexpr bool passes_through = true;
#else
  static constexpr bool passes_through = false;
#endif
  struct free_block {
    free_block* next;
  };

  void* take(std::size_t bytes) {
    if (passes_through || bytes > largest) {
      void* block = std::malloc(bytes);
      if (block == nullptr) throw std::bad_alloc();
      return block;
    }
    if (auto* block = free_[bytes / step]) {
      free_[bytes / step] = block->next;
      return block;
    }
    if (bytes > left_) {
      chunks_.reserve(chunks_.size() + 1);
      auto* chunk = static_cast<std::byte*>(std::malloc(chunk_bytes));
      if (chunk == nullptr) throw std::bad_alloc();
      chunks_.push_back(chunk);
      next_ = chunk;  // what was left of the old chunk, at most 1 KiB, is given up
      left_ = chunk_bytes;
    }
    auto* block = next_;
    next_ += bytes;
    left_ -= bytes;
    return block;
  }

  std::array<free_block*, largest / step + 1> free_{};
  std::vector<std::byte*> chunks_;
  std::byte* next_ = nullptr;
  std::size_t left_ = 0;
  std::size_t used_ = 0;
};

}  // namespace paracel::srv
