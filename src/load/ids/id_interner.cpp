// SPDX-License-Identifier: BSD-3-Clause
#include "load/ids/id_interner.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "load/ids/string_sort.hpp"
#include "paracel/error.hpp"
#include "paracel/free_memory.hpp"
#include "paracel/random.hpp"

namespace paracel {

bool canonical_number(std::string_view text, std::uint64_t& out) noexcept {
  if (text.empty() || text.size() > 20 || (text[0] == '0' && text.size() > 1)) return false;
  std::uint64_t value = 0;
  for (const char c : text) {
    const auto digit = static_cast<std::uint64_t>(static_cast<unsigned char>(c)) - '0';
    if (digit > 9) return false;
    if (value > (~std::uint64_t{0} - digit) / 10) return false;
    value = value * 10 + digit;
  }
  out = value;
  return true;
}

/// Adjacent numbers differ in their low bits, which must affect all bits of the place: one multiplication, and the high
/// half folded into the low one.
std::uint64_t id_interner::place_of(std::uint64_t key) noexcept {
  key *= 0x9e3779b97f4a7c15U;
  return key ^ (key >> 32U);
}

void id_interner::reserve_one() {
  if (count_ * 8 < slots_.size() * 5) return;
  if (count_ >= std::numeric_limits<std::uint32_t>::max())
    throw error("more than 4294967295 ids in the part of one worker");
  std::vector<slot> wider(std::max<std::size_t>(64, slots_.size() * 2));
  const auto mask = wider.size() - 1;
  for (const auto& s : slots_) {
    if (s.index_and_one == 0) continue;
    auto at = place_of(s.key) & mask;
    while (wider[at].index_and_one != 0) at = (at + 1) & mask;
    wider[at] = s;
  }
  slots_ = std::move(wider);
}

std::uint32_t id_interner::index(std::uint64_t number) {
  if (kind_ == kind::dense) {
    see(number);
    return static_cast<std::uint32_t>(number);
  }
  reserve_one();
  const auto mask = slots_.size() - 1;
  for (auto at = place_of(number) & mask;; at = (at + 1) & mask) {
    auto& s = slots_[at];
    if (s.index_and_one == 0) {
      s = {number, ++count_};
      return static_cast<std::uint32_t>(count_ - 1);
    }
    if (s.key == number) return static_cast<std::uint32_t>(s.index_and_one - 1);
  }
}

void id_interner::index(std::span<const std::uint64_t> numbers, std::uint32_t* to) {
  if (kind_ == kind::dense) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      see(numbers[i]);
      to[i] = static_cast<std::uint32_t>(numbers[i]);
    }
    return;
  }
  // Prefetches the slot of a later number: most of the time is memory latency.
  constexpr std::size_t ahead = 16;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i + ahead < numbers.size() && !slots_.empty())
      __builtin_prefetch(&slots_[place_of(numbers[i + ahead]) & (slots_.size() - 1)], 1);
    to[i] = index(numbers[i]);
  }
}

void id_interner::leave_dense() {
  if (kind_ != kind::dense) return;
  kind_ = kind::numbers;
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    if (seen_[i] != 0) index(std::uint64_t{i});
  }
  free_memory(seen_);
  for (const auto& [begin, end] : ranges_) mention(begin, end);
  free_memory(ranges_);
}

void id_interner::make_names() {
  if (kind_ == kind::names) return;
  std::vector<std::uint64_t> numbers(count_);
  for (const auto& s : slots_) {
    if (s.index_and_one != 0) numbers[s.index_and_one - 1] = s.key;
  }
  free_memory(slots_);
  count_ = 0;
  kind_ = kind::names;
  for (const auto n : numbers) index(std::string_view(std::to_string(n)));
}

id_interner::sorted_ids id_interner::take_sorted() {
  if (kind_ == kind::names) return take_sorted_names();
  return kind_ == kind::numbers ? take_sorted_numbers() : take_sorted_dense();
}

id_interner::sorted_ids id_interner::take_sorted_dense() {
  for (const auto& [begin, end] : ranges_) {
    if (end > seen_.size()) seen_.resize(end);
    std::fill(seen_.begin() + static_cast<std::ptrdiff_t>(begin), seen_.begin() + static_cast<std::ptrdiff_t>(end), 1);
  }
  sorted_ids out;
  const auto n = static_cast<std::size_t>(std::count(seen_.begin(), seen_.end(), 1));
  // Every number is written, and the next one overwrites it if it is not an id: a branch would often be predicted
  // wrongly.
  std::vector<std::uint64_t> ids(n + 1);
  std::size_t found = 0;
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    ids[found] = i;
    found += seen_[i];
  }
  ids.pop_back();
  free_memory(seen_);
  free_memory(ranges_);
  if (n > 0 && ids.back() != n - 1) {
    out.place.resize(ids.back() + 1);
    for (std::size_t p = 0; p < n; ++p) out.place[ids[p]] = static_cast<std::uint32_t>(p);
  }
  out.ids = id_list(std::move(ids));
  return out;
}

id_interner::sorted_ids id_interner::take_sorted_numbers() {
  sorted_ids out;
  // The table itself is the list to sort: its slots move to the front.
  const auto used = std::partition(slots_.begin(), slots_.end(), [](const slot& s) { return s.index_and_one != 0; });
  slots_.erase(used, slots_.end());
  std::ranges::sort(slots_, {}, &slot::key);
  out.place.resize(count_);
  for (std::size_t p = 0; p < slots_.size(); ++p)
    out.place[slots_[p].index_and_one - 1] = static_cast<std::uint32_t>(p);
  std::vector<std::uint64_t> ids(count_);
  for (std::size_t p = 0; p < slots_.size(); ++p) ids[p] = slots_[p].key;
  free_memory(slots_);
  out.ids = id_list(std::move(ids));
  return out;
}

id_interner::sorted_ids id_interner::take_sorted_names() {
  const auto names = names_.take();
  const auto order = order_of_names(names);
  sorted_ids out;
  out.place.resize(order.size());
  out.ids = sorted(names, order);
  for (std::size_t p = 0; p < order.size(); ++p) out.place[order[p]] = static_cast<std::uint32_t>(p);
  return out;
}

}  // namespace paracel
