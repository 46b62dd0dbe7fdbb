// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "server/store/chunk_pool.hpp"
#include "server/store/scarce_memory.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define PARACEL_ARENA_PASSES_THROUGH 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PARACEL_ARENA_PASSES_THROUGH 1
#endif
#endif

namespace paracel::srv {

/// Memory for the small entries of a group of partitions: free lists by size in steps of 8 bytes, cut from chunks of
/// 16 KiB. It can be scanned in address order, which reads a million entries at memory bandwidth,
/// where following the pointers of tables stalls at each one.
///
///     chunk   | block | block | free | block | free | free |        not yet used |
///     block   15 bytes of the owner's | u8 mark | ...               mark: anything but `free_mark`
///     free    next free block of this size | u32 bytes | - | `free_mark` | ...
///     beyond 1 KiB: a malloc of its own, on a list:   next | previous | block
///
/// malloc would spend 16 bytes more on an entry of 48 (measured with a key of 20 characters and one double).
/// Thread-safety: owned by the shard thread. Lifetime: the pool must outlive it.
/// Cost: O(1); freed memory is reused for the same size. When the last block is freed all chunks but
/// one are released, so that temporary entries leave nothing behind, whatever their size. Where some remain, their
/// owner can move them together (`begin_moving`). Under AddressSanitizer every block is its own malloc, so that
/// overruns are detected.
class arena {
 public:
  static constexpr std::size_t step = 8;
  static constexpr std::size_t smallest = 16;
  static constexpr std::size_t largest = 1024;  ///< above it malloc's overhead is below 3 %
  static constexpr std::size_t chunk_bytes = chunk_pool::chunk_bytes;
  /// Byte 15 of a free block; an owner never writes it there.
  static constexpr std::uint8_t free_mark = 0xff;

  explicit arena(chunk_pool& pool) noexcept : pool_(pool) {}
  /// Counts in `total` too, which several arenas may share.
  arena(chunk_pool& pool, std::size_t& total) noexcept : pool_(pool), total_(&total) {}
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;
  ~arena() {
    for (auto* chunk : chunks_) pool_.free(chunk);
    end_moving();
  }

  static constexpr std::size_t rounded(std::size_t bytes) noexcept { return (bytes + step - 1) / step * step; }

  /// `bytes` is a multiple of 8 and at least 16; the address is a multiple of 8. The owner must write its first 16
  /// bytes before the next call on the arena. Throws: std::bad_alloc.
  void* allocate(std::size_t bytes) {
    void* block = bytes > listed_above ? take_listed(bytes) : take(bytes);
    ++blocks_;
    count_bytes(static_cast<std::ptrdiff_t>(bytes));
    return block;
  }
  void free(void* block, std::size_t bytes) noexcept {
    count_bytes(-static_cast<std::ptrdiff_t>(bytes));
    --blocks_;
    if (bytes > listed_above) return release_listed(block);
    in_chunks_ -= bytes;
    if (is_moving(block)) new (block) free_block{nullptr, static_cast<std::uint32_t>(bytes), {}, free_mark};
    else make_free(block, bytes);
    if (in_chunks_ == 0) release_chunks();
  }
  /// Allocated bytes, and those that the tables report as held elsewhere.
  [[nodiscard]] std::size_t used() const noexcept { return used_; }
  /// Allocated blocks.
  [[nodiscard]] std::size_t blocks() const noexcept { return blocks_; }
  /// Upper bound of the bytes that a scan reads, excluding the listed blocks.
  [[nodiscard]] std::size_t extent() const noexcept { return (chunks_.size() + moving_.size()) * chunk_bytes; }
  /// Bytes of the chunks that are in no block.
  [[nodiscard]] std::size_t waste() const noexcept { return extent() - in_chunks_; }

  // ---- moving blocks together: begin; allocate each block that `is_moving` again, copy and free it; end. Other calls
  // ---- in between are as usual.
  /// From now on blocks come from new chunks.
  void begin_moving() noexcept {
    if (!moving_.empty() || chunks_.empty()) return;
    if (left_ >= smallest) new (next_) free_block{nullptr, static_cast<std::uint32_t>(left_), {}, free_mark};
    moving_.swap(chunks_);
    for (auto* chunk : moving_) pool_.mark_moving(chunk);
    free_ = {};
    next_ = nullptr;
    left_ = 0;
  }
  [[nodiscard]] bool is_moving() const noexcept { return !moving_.empty(); }
  /// Whether the block is in an old chunk. Not for blocks beyond `largest`.
  [[nodiscard]] bool is_moving(const void* block) const noexcept { return is_moving() && chunk_pool::is_moving(block); }
  /// All blocks have been moved: frees the old chunks.
  void end_moving() noexcept {
    for (auto* chunk : moving_) pool_.free(chunk);
    moving_.clear();
  }
  /// Frees the last chunk too if no block is in it.
  void release_last_chunk() noexcept {
    if (in_chunks_ != 0) return;
    for (auto* chunk : chunks_) pool_.free(chunk);
    chunks_.clear();
    chunks_.shrink_to_fit();
    end_moving();
    free_ = {};
    next_ = nullptr;
    left_ = 0;
  }
  /// Frees all blocks, and forgets the counted bytes. Cost: O(chunks), and a free for each block beyond `largest`.
  void clear() noexcept {
    while (listed_ != nullptr) {
      auto* const next = listed_->next;
      std::free(listed_);
      listed_ = next;
    }
    count_bytes(-static_cast<std::ptrdiff_t>(used_));
    blocks_ = 0;
    in_chunks_ = 0;
    release_last_chunk();
  }
  /// Counts memory that is held on behalf of an entry: large values, slots.
  void count_bytes(std::ptrdiff_t bytes) noexcept {
    used_ += static_cast<std::size_t>(bytes);
    *total_ += static_cast<std::size_t>(bytes);
  }

  /// Calls `f(block)` for every allocated block; it returns the bytes that were requested, so that the next
  /// one is found. Nothing may be allocated or freed meanwhile.
  template <class F>
  void for_each(const F& f) {
    const auto end_of = [](const std::byte* chunk) { return reinterpret_cast<std::uintptr_t>(chunk) + chunk_bytes; };
    const auto walk = [&](const std::vector<std::byte*>& chunks, std::uintptr_t end_of_last) {
      for (std::size_t i = 0; i < chunks.size(); ++i) {
        const bool is_last = i + 1 == chunks.size();
        const auto begin = reinterpret_cast<std::uintptr_t>(chunks[i]);
        for_each_in_chunk(begin, is_last ? end_of_last : end_of(chunks[i]), end_of(chunks[i]),
                          is_last ? begin : reinterpret_cast<std::uintptr_t>(chunks[i + 1]), f);
      }
    };
    if (is_moving()) walk(moving_, end_of(moving_.back()));
    walk(chunks_, reinterpret_cast<std::uintptr_t>(next_));
    for (auto* l = listed_; l != nullptr; l = l->next) f(static_cast<const void*>(l + 1));
  }

 private:
#ifdef PARACEL_ARENA_PASSES_THROUGH
  static constexpr std::size_t listed_above = 0;
#else
  static constexpr std::size_t listed_above = largest;
#endif
  struct free_block {
    free_block* next;
    std::uint32_t bytes;
    std::uint8_t unused[3];
    std::uint8_t mark;
  };
  static_assert(sizeof(free_block) == smallest && offsetof(free_block, mark) == 15);
  struct listed_block {
    listed_block* next;
    listed_block* previous;
  };

  /// The blocks of one chunk. Two techniques double its speed (1 M entries of 48 bytes, 10 ms to 5 ms):
  /// lines are prefetched some time before they are needed, those of the next chunk at the end of this one; and the
  /// next block is predicted to be as far away as the last one was, so that the processor works on several at once. The
  /// empty asm keeps the compiler from seeing that the prediction is right.
  template <class F>
  static void for_each_in_chunk(std::uintptr_t at, std::uintptr_t end, std::uintptr_t whole, std::uintptr_t next_chunk,
                                const F& f) {
    constexpr std::size_t ahead = 1536;
    std::size_t guess = 0;
    while (end - at >= smallest) {
      const auto needed_later = at + ahead;
      __builtin_prefetch(
          reinterpret_cast<const void*>(needed_later < whole ? needed_later : next_chunk + (needed_later - whole)));
      const auto* block = reinterpret_cast<const free_block*>(at);
      const std::size_t bytes = block->mark == free_mark ? block->bytes : f(static_cast<const void*>(block));
      if (bytes != guess) [[unlikely]] {
        guess = bytes;
        asm("" : "+r"(guess));
      }
      at += guess;
    }
  }
  void make_free(void* block, std::size_t bytes) noexcept {
    free_[bytes / step] = new (block) free_block{free_[bytes / step], static_cast<std::uint32_t>(bytes), {}, free_mark};
  }
  void* take(std::size_t bytes) {
    auto* block = reuse_or_cut(bytes);
    in_chunks_ += bytes;
    return block;
  }
  void* reuse_or_cut(std::size_t bytes) {
    if (auto* block = free_[bytes / step]) {
      free_[bytes / step] = block->next;
      return block;
    }
    if (bytes > left_) add_chunk();
    auto* block = next_;
    next_ += bytes;
    left_ -= bytes;
    return block;
  }
  void add_chunk() {
    make_room(chunks_, 1);
    auto* chunk = static_cast<std::byte*>(pool_.allocate());
    if (left_ >= smallest) make_free(next_, left_);  // at most 1 KiB; 8 bytes are too small for anything
    chunks_.push_back(chunk);
    next_ = chunk;
    left_ = chunk_bytes;
  }
  void release_chunks() noexcept {
    end_moving();
    if (chunks_.empty()) return;
    while (chunks_.size() > 1) {
      pool_.free(chunks_.back());
      chunks_.pop_back();
    }
    free_ = {};
    next_ = chunks_.front();
    left_ = chunk_bytes;
  }
  void* take_listed(std::size_t bytes) {
    auto* l = static_cast<listed_block*>(std::malloc(sizeof(listed_block) + bytes));
    if (l == nullptr) throw std::bad_alloc();
    *l = {listed_, nullptr};
    if (listed_ != nullptr) listed_->previous = l;
    listed_ = l;
    return l + 1;
  }
  void release_listed(void* block) noexcept {
    auto* l = static_cast<listed_block*>(block) - 1;
    (l->previous != nullptr ? l->previous->next : listed_) = l->next;
    if (l->next != nullptr) l->next->previous = l->previous;
    std::free(l);
  }

  chunk_pool& pool_;
  std::array<free_block*, largest / step + 1> free_{};
  std::vector<std::byte*> chunks_;
  std::vector<std::byte*> moving_;  // the old chunks while blocks are being moved
  std::byte* next_ = nullptr;
  std::size_t left_ = 0;
  listed_block* listed_ = nullptr;
  std::size_t blocks_ = 0;
  std::size_t in_chunks_ = 0;  // bytes of blocks in chunks
  std::size_t used_ = 0;
  std::size_t not_shared_ = 0;
  std::size_t* total_ = &not_shared_;
};

}  // namespace paracel::srv
