// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>

namespace paracel::srv {

inline constexpr std::size_t large_page_bytes = std::size_t{2} << 20;

/// Zeroed memory from the system, a multiple of large_page_bytes and aligned to it. It is provided as it is touched, in
/// huge pages if `large_pages`, else in small ones whatever the system's default: with 4 KiB pages each access to a
/// table of 100 MB costs a page-table walk on top of its cache miss. Release it with munmap. Throws: std::bad_alloc.
inline std::byte* map_zeros(std::size_t bytes, bool large_pages) {
  // The excess on either side is released.
  const auto room = bytes + large_page_bytes;
  void* at = ::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  auto* begin = static_cast<std::byte*>(at);
  const auto over = reinterpret_cast<std::uintptr_t>(begin) % large_page_bytes;
  const auto front = over == 0 ? 0 : large_page_bytes - over;
  if (front != 0) ::munmap(begin, front);
  if (front != large_page_bytes) ::munmap(begin + front + bytes, large_page_bytes - front);
  // If the advice fails everything still works, only slower or with more memory.
  ::madvise(begin + front, bytes, large_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return begin + front;
}

}  // namespace paracel::srv
