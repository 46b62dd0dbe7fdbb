// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace paracel {

/// Empties a container and frees its memory. `v = {}` assigns an empty list, for which a vector keeps its capacity, and
/// a string keeps it for an empty one that is moved to it, too.
template <class Container>
void free_memory(Container& container) noexcept {
  Container().swap(container);
}

/// The same for a buffer that is used again, if it has room for more than `kept_bytes`; otherwise it stays as it is.
template <class Container>
void free_if_larger(Container& container, std::size_t kept_bytes) noexcept {
  if (container.capacity() > kept_bytes / sizeof(typename Container::value_type)) free_memory(container);
}

}  // namespace paracel
