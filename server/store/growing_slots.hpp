// SPDX-License-Identifier: BSD-3-Clause
//
// How a large table grows, or shrinks, in steps: it has two arrays of slots for a while, and each operation that
// inserts moves some slots of the old one. Open addressing with linear probing; a slot is 8 bytes, 0 if it is empty.
//
//     old   | moved, given back | moved |0| not yet moved ...      the border is at an empty slot: runs move whole
//     new   moved and inserted entries
//
// Smaller tables are moved at once: two sequential streams, 0.4 ms at most.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/large_pages.hpp"

namespace paracel::srv {

/// The array that a larger or smaller one replaces. An entry is in one of the two.
///
/// Cost: `find` is a comparison for most of the moved part; a step of `move_some` takes O(n), and longer only to the
/// end of a run.
struct replaced_slots {
  std::uint64_t* slots = nullptr;
  std::size_t count = 0;
  std::size_t moved = 0;  ///< all before are. A run of which the front has been moved has been moved whole.

  /// The slot for which `is(slot)` holds, of a key whose home is `home`, or null.
  template <class Is>
  [[nodiscard]] std::uint64_t* find(std::size_t home, const Is& is) const noexcept {
    if (home < moved) return nullptr;
    // The run that continues at the front was the first one to be moved.
    for (auto i = home; i < count && slots[i] != 0; ++i) {
      if (is(slots[i])) return &slots[i];
    }
    return nullptr;
  }
  [[nodiscard]] bool contains(const std::uint64_t* slot) const noexcept {
    return slot >= slots && slot < slots + count;
  }
  /// Empties a slot: later ones of the run move up unless their home, `home_of(slot)`, is behind the gap.
  template <class Home>
  void erase(std::uint64_t* slot, const Home& home_of) noexcept {
    auto* gap = slot;
    for (auto* s = slot + 1; s != slots + count && *s != 0; ++s) {
      if (slots + home_of(*s) > gap) continue;
      *gap = *s;
      gap = s;
    }
    *gap = 0;
  }
  /// Calls `place(slot)` for the next `n` slots, and up to the end of the run. Returns: whether all have been moved.
  template <class Place>
  bool move_some(std::size_t n, const Place& place) noexcept {
    const auto end = std::min(moved + n, count);
    auto i = moved;
    for (; i < count && (i < end || slots[i] != 0); ++i) {
      if (slots[i] != 0) place(slots[i]);
    }
    moved = i;
    return moved == count;
  }
  /// Calls f(slot) for those that have not been moved; it may change them.
  template <class F>
  void for_each(const F& f) const {
    for (auto i = moved; i < count; ++i) {
      if (slots[i] != 0) f(slots[i]);
    }
  }
};

/// Arrays of more than `above` slots: mapped by themselves, so that the system provides their pages as they are
/// touched, and takes back what has been moved a little at a time. In front of the slots there is room for the array
/// that they replace.
struct large_slots {
  static constexpr std::size_t above = std::size_t{1} << 16;
  /// Slots that an insertion moves. Growth ends after an eighth of the insertions that there is room for.
  static constexpr std::size_t step = 16;

  [[nodiscard]] static constexpr bool serves(std::size_t count) noexcept { return count > above; }
  /// Zeros. `count`: a power of two that is served. In small pages: a huge one takes 0.1 ms, but 5 in a virtual machine
  /// whose host has yet to provide the memory, and 50 where it is loaded. Throws: std::bad_alloc.
  static std::uint64_t* allocate(std::size_t count) {
    return reinterpret_cast<std::uint64_t*>(map_zeros(count * sizeof(std::uint64_t), false, page_bytes()));
  }
  /// All slots have been moved to it: the system may put huge pages in the place of its pages when it has time.
  static void now_filled(std::uint64_t* slots, std::size_t count) noexcept {
    ::madvise(slots, count * sizeof(std::uint64_t), MADV_HUGEPAGE);
  }
  /// `given_back`: what `give_back` has returned last.
  static void free(std::uint64_t* slots, std::size_t count, std::size_t given_back = 0) noexcept {
    auto* const begin = reinterpret_cast<std::byte*>(slots);
    ::munmap(begin - page_bytes(), page_bytes());
    ::munmap(begin + given_back, count * sizeof(std::uint64_t) - given_back);
  }
  /// Gives the front back that has been moved, 2 MiB at a time. Returns: how many bytes in all.
  static std::size_t give_back(const replaced_slots& r, std::size_t given_back) noexcept {
    const auto bytes = r.moved * sizeof(std::uint64_t);
    if (!serves(r.count) || bytes < given_back + large_page_bytes || r.moved == r.count) return given_back;
    ::munmap(reinterpret_cast<std::byte*>(r.slots) + given_back, large_page_bytes);
    return given_back + large_page_bytes;
  }

  /// What an array replaces, in front of it.
  struct front {
    replaced_slots old;
    std::size_t given_back = 0;
  };
  static front& front_of(std::uint64_t* slots) noexcept {
    return *reinterpret_cast<front*>(reinterpret_cast<std::byte*>(slots) - sizeof(front));
  }

 private:
  static std::size_t page_bytes() noexcept {
    static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return bytes;
  }
};

}  // namespace paracel::srv
