// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace paracel::alg {

/// Reserves room for n elements, in huge pages where the system has them: rows that are visited in random order then
/// miss the TLB less. Call it before the memory is written. Cost: one system call
template <class T>
void reserve_huge(std::vector<T>& v, std::size_t n) {
  v.reserve(n);
  constexpr std::uintptr_t page = std::uintptr_t{2} << 20U;
  const auto begin = (reinterpret_cast<std::uintptr_t>(v.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(v.data() + v.capacity()) / page * page;
  // Only a wish: whatever comes of it, the memory is there.
  if (begin < end) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace paracel::alg
