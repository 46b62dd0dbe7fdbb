// SPDX-License-Identifier: BSD-3-Clause
#include "load/ids/string_interner.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "core/hash.hpp"
#include "paracel/error.hpp"

namespace paracel {

void string_interner::reserve(std::size_t names) {
  constexpr std::size_t most = std::size_t{1} << 32U;
  if (names > std::numeric_limits<std::uint32_t>::max())
    throw error("more than 4294967295 ids in the part of one worker");
  if (names * 8 <= slots_.size() * 5 || slots_.size() == most) return;
  const auto wanted = std::max<std::size_t>(64, std::bit_ceil(names * 8 / 5 + 1));
  std::vector<slot> old(std::min(wanted, most));
  old.swap(slots_);
  shift_ = 32U - static_cast<unsigned>(std::countr_zero(slots_.size()));
  for (const auto& s : old) {
    if (s.index_and_one == 0) continue;
    auto at = place_of(s.tag);
    while (slots_[at].index_and_one != 0) at = next(at);
    slots_[at] = s;
  }
}

void string_interner::index(std::span<const std::string_view> names, std::uint32_t* to) {
  // Most of the time is memory latency: of the slot, the name's offset, and its bytes. What one name needs
  // is prefetched while others are processed.
  constexpr std::size_t group = 64;
  std::array<std::uint32_t, group> tags;
  std::array<std::uint32_t, group> found;
  for (; !names.empty(); names = names.subspan(std::min(group, names.size())), to += group) {
    const auto n = std::min(group, names.size());
    reserve(names_.size() + n);
    for (std::size_t k = 0; k < n; ++k) {
      tags[k] = static_cast<std::uint32_t>(hash_key(names[k]) >> 32U);
      __builtin_prefetch(&slots_[place_of(tags[k])], 1);
    }
    const auto& ends = names_.numbers();
    for (std::size_t k = 0; k < n; ++k) {
      auto at = place_of(tags[k]);
      while (slots_[at].index_and_one != 0 && slots_[at].tag != tags[k]) at = next(at);
      found[k] = slots_[at].index_and_one;
      if (found[k] != 0) __builtin_prefetch(&ends[found[k] - 1]);
    }
    for (std::size_t k = 0; k < n; ++k) {
      if (found[k] != 0) __builtin_prefetch(names_.name(found[k] - 1).data());
    }
    for (std::size_t k = 0; k < n; ++k) {
      for (auto at = place_of(tags[k]);; at = next(at)) {
        auto& s = slots_[at];
        if (s.index_and_one == 0) {
          names_.push_back(names[k]);
          s = {tags[k], static_cast<std::uint32_t>(names_.size())};
          to[k] = s.index_and_one - 1;
          break;
        }
        if (s.tag == tags[k] && names_.name(s.index_and_one - 1) == names[k]) {
          to[k] = s.index_and_one - 1;
          break;
        }
      }
    }
  }
}

}  // namespace paracel
