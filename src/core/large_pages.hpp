// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>

namespace paracel {

inline constexpr std::size_t large_page_bytes = std::size_t{2} << 20;

/// Zeroed memory from the system, aligned to large_page_bytes; `bytes` and `front` are multiples of the system's pages.
/// It is provided as it is touched, in huge pages if `large_pages`, else in small ones whatever the system's default:
/// with 4 KiB pages each access to a table of 100 MB costs a page-table walk on top of its cache miss. In front of it
/// are `front` bytes of zeros. Release all with munmap. Throws: std::bad_alloc.
inline std::byte* map_zeros(std::size_t bytes, bool large_pages, std::size_t front = 0) {
  // The excess on either side is released.
  const auto room = front + bytes + large_page_bytes;
  void* at = ::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  const auto over = (reinterpret_cast<std::uintptr_t>(at) + front) % large_page_bytes;
  const auto before = over == 0 ? 0 : large_page_bytes - over;
  if (before != 0) ::munmap(at, before);
  auto* begin = static_cast<std::byte*>(at) + before + front;
  ::munmap(begin + bytes, large_page_bytes - before);
  // If the advice fails everything still works, only slower or with more memory.
  ::madvise(begin, bytes, large_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return begin;
}

}  // namespace paracel
