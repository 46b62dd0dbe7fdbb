// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/id_list.hpp"

#include <algorithm>
#include <utility>

#include "core/hash.hpp"
#include "load/ids/id_interner.hpp"
#include "load/ids/string_sort.hpp"

namespace paracel {

std::uint64_t id_list::key(std::size_t i) const {
  if (numeric_) return numbers_[i];
  // 7 is the same row whether or not another id of its file is a word.
  std::uint64_t number = 0;
  return canonical_number(name(i), number) ? number : hash_key(name(i));
}

std::optional<std::size_t> id_list::find(std::uint64_t number) const {
  if (!numeric_) return std::nullopt;
  const auto at = std::ranges::lower_bound(numbers_, number);
  if (at == numbers_.end() || *at != number) return std::nullopt;
  return static_cast<std::size_t>(at - numbers_.begin());
}

std::optional<std::size_t> id_list::find(std::string_view wanted) const {
  if (numeric_) return std::nullopt;
  std::size_t low = 0;
  std::size_t high = size();
  while (low < high) {
    const auto middle = low + (high - low) / 2;
    if (name(middle) < wanted) low = middle + 1;
    else high = middle;
  }
  if (low == size() || name(low) != wanted) return std::nullopt;
  return low;
}

void id_list::sort_unique() {
  if (numeric_) {
    if (!std::ranges::is_sorted(numbers_)) std::ranges::sort(numbers_);
    numbers_.erase(std::unique(numbers_.begin(), numbers_.end()), numbers_.end());
    return;
  }
  const auto ascending = sorted(*this, order_of_names(*this));
  auto once = empty(false);
  once.reserve(size(), name_bytes());
  for (std::size_t i = 0; i < ascending.size(); ++i) {
    if (i == 0 || ascending.name(i) != ascending.name(i - 1)) once.push_back(ascending.name(i));
  }
  *this = std::move(once);
}

}  // namespace paracel
