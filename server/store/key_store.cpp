// SPDX-License-Identifier: BSD-3-Clause
//
// How a shard gives memory back.
#include "server/store/key_store.hpp"

#include <algorithm>
#include <new>

namespace paracel::srv {
namespace {

// Entries are moved when an eighth of what they lie in is unused, and more than a chunk, which is unavoidable.
bool is_sparse(const arena& a) noexcept { return a.waste() > std::max(2 * arena::chunk_bytes, a.extent() / 8); }

std::size_t unused_in(const arena& a) noexcept { return is_sparse(a) || a.waste() == a.extent() ? a.waste() : 0; }

}  // namespace

std::size_t key_store::unused_bytes() const noexcept {
  auto n = chunks_.idle_bytes() + unused_in(state_memory_) + family_.slots.chunks().idle_bytes() +
           state_family_.slots.chunks().idle_bytes() + family_.replaced_bytes + state_family_.replaced_bytes;
  for (const auto& g : groups_) n += unused_in(g);
  return n;
}

/// Returns: false when `over()`, and all of them are not done.
bool key_store::tidy_tables(arena& memory, std::span<table> of_arena, const std::function<bool()>& over) {
  if (tidied_tables_ == 0 && is_sparse(memory)) memory.begin_moving();
  for (; tidied_tables_ < of_arena.size(); ++tidied_tables_) {
    do {
      if (over()) return false;
    } while (of_arena[tidied_tables_].fit());
    of_arena[tidied_tables_].move_entries();
  }
  memory.end_moving();
  memory.release_last_chunk();
  tidied_tables_ = 0;
  return true;
}

bool key_store::tidy(const std::function<bool()>& over) noexcept {
  try {
    for (; tidied_ <= groups_.size(); ++tidied_) {
      const bool states = tidied_ == groups_.size();
      const auto begin = tidied_ * group_tables_;
      const auto of_arena = states ? std::span(states_)
                                   : std::span(tables_).subspan(begin, std::min(group_tables_, tables_.size() - begin));
      if (!tidy_tables(states ? state_memory_ : groups_[tidied_], of_arena, over)) return true;
      // At once: the next arena then moves into other chunks, and the peak stays low.
      while (chunks_.release_some()) {
        if (over()) break;
      }
    }
  } catch (const std::bad_alloc&) {  // what was to be moved stays where it is until there is memory
    return false;
  }
  for (auto* pool : {&chunks_, &family_.slots.chunks(), &state_family_.slots.chunks()}) {
    while (pool->release_some()) {
      if (over()) return true;
    }
  }
  tidied_ = 0;
  return false;
}

}  // namespace paracel::srv
