// SPDX-License-Identifier: BSD-3-Clause
//
// Names are sorted by 8 bytes at a time, stored next to the index as a number; where these are equal, by the next 8.
//
// Source: Bentley and Sedgewick, "Fast algorithms for sorting and searching strings" (1997), with the caching of Ng and
// Kakehi, "Cache efficient radix sort for string sorting" (2007), and std::sort in place of the partition.
#include "load/ids/string_sort.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

namespace paracel {

namespace {

struct keyed {
  std::uint64_t key;  // bytes of the name, the first one highest; zeros past its end
  std::uint32_t index;
};

/// A range of the list in which the names share their first bytes.
struct part {
  std::size_t begin, end;
  std::size_t common;
};

constexpr std::size_t key_bytes = 8;
constexpr std::size_t few = 16;

std::uint64_t key_of(std::string_view name, std::size_t from) noexcept {
  unsigned char bytes[key_bytes] = {};
  if (from < name.size()) std::memcpy(bytes, name.data() + from, std::min(key_bytes, name.size() - from));
  std::uint64_t key = 0;
  for (const auto b : bytes) key = key << 8U | b;
  return key;
}

std::size_t common_of_all(const id_list& names) {
  if (names.size() == 0) return 0;
  const auto first = names.name(0);
  std::size_t common = first.size();
  for (std::size_t i = 1; i < names.size() && common > 0; ++i) {
    const auto other = names.name(i);
    common = std::min(common, other.size());
    if (std::memcmp(first.data(), other.data(), common) == 0) continue;
    common = static_cast<std::size_t>(
        std::mismatch(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(common), other.begin()).first -
        first.begin());
  }
  return common;
}

}  // namespace

std::vector<std::uint32_t> order_of_names(const id_list& names) {
  std::vector<keyed> all(names.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i].index = static_cast<std::uint32_t>(i);
  std::vector<part> todo{{0, all.size(), common_of_all(names)}};
  while (!todo.empty()) {
    const auto p = todo.back();
    todo.pop_back();
    const auto some = std::span(all).subspan(p.begin, p.end - p.begin);
    if (some.size() <= few) {
      std::ranges::sort(some, [&](const keyed& a, const keyed& b) {
        return names.name(a.index).substr(p.common) < names.name(b.index).substr(p.common);
      });
      continue;
    }
    for (auto& k : some) k.key = key_of(names.name(k.index), p.common);
    std::ranges::sort(some, {}, &keyed::key);
    for (std::size_t begin = 0; begin < some.size();) {
      auto end = begin + 1;
      while (end < some.size() && some[end].key == some[begin].key) ++end;
      if (end - begin > 1) {
        // A name that ends here is a prefix of those that do not, and of two that end the shorter one is a prefix of
        // the longer.
        const auto same = some.subspan(begin, end - begin);
        const auto length = [&](const keyed& k) {
          return std::min(names.name(k.index).size(), p.common + key_bytes + 1);
        };
        std::ranges::sort(same, {}, length);
        const auto longer = std::ranges::lower_bound(same, p.common + key_bytes + 1, {}, length);
        const auto from = p.begin + begin + static_cast<std::size_t>(longer - same.begin());
        if (p.begin + end - from > 1) todo.push_back({from, p.begin + end, p.common + key_bytes});
      }
      begin = end;
    }
  }
  std::vector<std::uint32_t> order(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) order[i] = all[i].index;
  return order;
}

id_list sorted(const id_list& names, const std::vector<std::uint32_t>& order) {
  auto out = id_list::empty(false);
  out.reserve(names.size(), names.name_bytes());
  // Prefetches a name's offset first, then its bytes: they may be anywhere.
  constexpr std::size_t ahead = 16;
  for (std::size_t p = 0; p < order.size(); ++p) {
    if (p + 2 * ahead < order.size()) __builtin_prefetch(&names.numbers()[order[p + 2 * ahead]]);
    if (p + ahead < order.size()) __builtin_prefetch(names.name(order[p + ahead]).data());
    out.push_back(names.name(order[p]));
  }
  return out;
}

}  // namespace paracel
