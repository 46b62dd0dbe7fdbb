// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace paracel {

/// Empties a container and frees its memory. `v = {}` assigns an empty list, for which a vector keeps its capacity, and
/// a string keeps it for an empty one that is moved to it, too.
template <class Container>
void free_memory(Container& container) noexcept {
  Container().swap(container);
}

}  // namespace paracel
