// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/row_table.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include <paracel/detail/bytes.hpp>

#include "core/large_pages.hpp"

namespace paracel::srv {
namespace {

// A slab reserves address space; the system provides memory as rows are made.
constexpr std::size_t slab_target_bytes = std::size_t{8} << 20;

constexpr bool is_crowded(std::size_t size, std::size_t slots) noexcept { return size * 8 > slots * 7; }

}  // namespace

row_table::row_table(const row_layout& layout, std::uint32_t partitions, bool named)
    : layout_(layout), stride_(layout.stride()), named_(named), partitions_(partitions) {
  const auto rows = std::bit_floor(std::max<std::size_t>(slab_target_bytes / stride_, 1));
  slab_shift_ = static_cast<unsigned>(std::countr_zero(rows));
  slab_mask_ = static_cast<std::uint32_t>(rows - 1);
  slab_bytes_ = (rows * stride_ + large_page_bytes - 1) / large_page_bytes * large_page_bytes;
}

std::size_t row_table::memory_bytes() const noexcept {
  return begun_ * stride_ + alive_.size() * sizeof(alive_[0]) + memory_.used() + partitions_.size() * sizeof(index) +
         slabs_.size() * (sizeof(slabs_[0]) + sizeof(uses_[0]));
}

row_table::slot* row_table::take_slots(std::size_t count) {
  const auto bytes = count * sizeof(slot);
  if (!slot_pool::serves(bytes) && !large_slots::serves(count)) {
    auto* slots = static_cast<slot*>(memory_.allocate(bytes));
    std::fill_n(slots, count, slot{0});
    return slots;
  }
  auto* slots = large_slots::serves(count) ? large_slots::allocate(count) : static_cast<slot*>(pool_.allocate(bytes));
  memory_.count_bytes(static_cast<std::ptrdiff_t>(bytes));
  if (!large_slots::serves(count)) std::fill_n(slots, count, slot{0});
  return slots;
}

void row_table::free_slots(slot* slots, std::size_t count) noexcept {
  const auto bytes = count * sizeof(slot);
  if (large_slots::serves(count)) {
    large_slots::free(slots, count);
  } else if (slot_pool::serves(bytes)) {
    pool_.free(slots, bytes);
  } else {
    return memory_.free(slots, bytes);
  }
  memory_.count_bytes(-static_cast<std::ptrdiff_t>(bytes));
}

/// Frees the array that has been replaced, of which all has been moved or removed.
void row_table::free_replaced(index& p) noexcept {
  const auto& front = large_slots::front_of(p.slots);
  const auto& old = front.old;
  replaced_bytes_ -= old.count * sizeof(slot) - front.given_back;
  if (large_slots::serves(old.count)) {
    large_slots::free(old.slots, old.count, front.given_back);
    memory_.count_bytes(static_cast<std::ptrdiff_t>(front.given_back) -
                        static_cast<std::ptrdiff_t>(old.count * sizeof(slot)));
  } else {
    free_slots(old.slots, old.count);
  }
  p.moving = 0;
}

void row_table::free_slots(index& p) noexcept {
  if (p.slots == nullptr) return;
  if (p.moving != 0) free_replaced(p);
  free_slots(p.slots, p.mask + std::size_t{1});
  p = {};
}

void row_table::grow(index& p) {
  while (p.moving != 0) move_some(p, p.mask);  // never of an index that grows: it is done long before
  const auto old_slots = p.slots == nullptr ? 0 : p.mask + std::size_t{1};
  rehash(p, std::max(first_slots, old_slots * 2));
}

/// Begins to move an index to so many slots, and, unless they are many, ends it.
void row_table::rehash(index& p, std::size_t slots) {
  auto* fresh = take_slots(slots);
  const replaced_slots old{p.slots, p.slots == nullptr ? 0 : p.mask + std::size_t{1}};
  p.slots = fresh;
  p.mask = static_cast<std::uint32_t>(slots - 1);
  if (old.slots == nullptr) return;
  if (large_slots::serves(slots)) {
    large_slots::front_of(p.slots) = {old, 0};
    replaced_bytes_ += old.count * sizeof(slot);
    p.moving = 1;
    return move_some(p, large_slots::step);  // the run that continues at the front is the first
  }
  old.for_each([&](slot s) { settle(p, s); });
  free_slots(old.slots, old.count);
}

/// Puts a slot in its place.
void row_table::settle(index& p, slot s) noexcept {
  auto i = (s >> 32U) & p.mask;
  while (p.slots[i] != 0) i = (i + 1) & p.mask;
  p.slots[i] = s;
}

void row_table::move_some(index& p, std::size_t slots) noexcept {
  auto& front = large_slots::front_of(p.slots);
  if (front.old.move_some(slots, [&](slot s) { settle(p, s); })) {
    large_slots::now_filled(p.slots, p.mask + std::size_t{1});
    return free_replaced(p);
  }
  const auto before = std::exchange(front.given_back, large_slots::give_back(front.old, front.given_back));
  memory_.count_bytes(static_cast<std::ptrdiff_t>(before) - static_cast<std::ptrdiff_t>(front.given_back));
  replaced_bytes_ -= front.given_back - before;
}

void row_table::prefetch_replaced(const index& p, std::uint64_t print) noexcept {
  const auto& old = replaced(p);
  const auto home = print & (old.count - 1);
  if (home >= old.moved) __builtin_prefetch(&old.slots[home]);
}

std::byte* row_table::guess_replaced(const index& p, std::uint64_t print) const noexcept {
  const auto& old = replaced(p);
  const auto* s = old.find(print & (old.count - 1), [&](slot t) { return t >> 32U == print; });
  return s == nullptr ? nullptr : row_at(number_of(*s));
}

void row_table::link(std::uint32_t slab) noexcept {
  auto& s = uses_[slab];
  s.previous = none;
  s.next = open_;
  if (open_ != none) uses_[open_].previous = slab;
  open_ = slab;
}

void row_table::unlink(std::uint32_t slab) noexcept {
  const auto& s = uses_[slab];
  (s.previous != none ? uses_[s.previous].next : open_) = s.next;
  if (s.next != none) uses_[s.next].previous = s.previous;
}

/// All but a table's first slab request huge pages.
void row_table::add_slab() {
  // So a table that is filled again right after `clear` does not take twice the memory.
  if (!cleared_.empty()) {
    unmap(cleared_.back());
    cleared_.pop_back();
  }
  auto slab = released_;
  if (slab != none) {
    slabs_[slab] = map_zeros(slab_bytes_, slab != 0);
    released_ = uses_[slab].next;
    return link(slab);
  }
  slab = static_cast<std::uint32_t>(slabs_.size());
  if (slab >= (none >> slab_shift_)) throw std::bad_alloc();
  slabs_.reserve(slabs_.size() + 1);
  uses_.reserve(slabs_.size() + 1);
  slabs_.push_back(map_zeros(slab_bytes_, slab != 0));
  uses_.emplace_back();
  link(slab);
}

/// Frees a slab without rows.
void row_table::release_slab(std::uint32_t slab) noexcept {
  unlink(slab);
  unmap(slabs_[slab]);
  slabs_[slab] = nullptr;
  auto& s = uses_[slab];
  begun_ -= s.begun;
  s = {};
  s.next = released_;
  released_ = slab;
}

std::uint32_t row_table::take_number() {
  if (open_ == none) add_slab();
  const auto slab = open_;
  auto& s = uses_[slab];
  const auto first = slab << slab_shift_;
  auto number = s.free;
  if (number != none) {
    std::uint64_t next = 0;
    load_fields(row_at(number), next);
    s.free = static_cast<std::uint32_t>(next);
    std::memset(row_at(number), 0, stride_);
  } else {
    number = first + s.begun;
    if (number / 64 >= alive_.size()) alive_.resize(number / 64 + 1);
    ++s.begun;
    ++begun_;
  }
  if (++s.used == slab_mask_ + 1) unlink(slab);
  return number;
}

void row_table::free_number(std::uint32_t number) noexcept {
  const auto slab = number >> slab_shift_;
  auto& s = uses_[slab];
  const std::uint64_t next = s.free;
  store_fields(row_at(number), next);
  s.free = number;
  if (s.used == slab_mask_ + 1) link(slab);
  // The last one with room is kept: a row may be made again at once.
  if (--s.used == 0 && (open_ != slab || s.next != none)) release_slab(slab);
}

std::byte* row_table::make_row(index& p, std::uint64_t hash, std::uint64_t front) {
  if (p.slots == nullptr || is_crowded(p.size + std::size_t{1}, p.mask + std::size_t{1})) grow(p);
  if (p.moving != 0) [[unlikely]]
    move_some(p, large_slots::step);
  const auto number = take_number();
  settle(p, (print_of(hash) << 32U) | (number + slot{1}));
  ++p.size;
  ++size_;
  alive_[number / 64] |= std::uint64_t{1} << number % 64;
  auto* row = row_at(number);
  store_fields(row, front);
  return row;
}

std::byte* row_table::make(std::uint32_t partition, std::uint64_t hash, std::uint64_t id) {
  return make_row(partitions_[partition], hash, id);
}

std::byte* row_table::make(std::uint32_t partition, std::uint64_t hash, std::string_view name) {
  const auto bytes = name_block_bytes(name.size());
  auto* block = static_cast<std::byte*>(memory_.allocate(bytes));
  const auto length = static_cast<std::uint32_t>(name.size());
  store_fields(block, length);
  if (!name.empty()) std::memcpy(block + sizeof length, name.data(), name.size());
  try {
    return make_row(partitions_[partition], hash, reinterpret_cast<std::uintptr_t>(block));
  } catch (...) {
    memory_.free(block, bytes);
    throw;
  }
}

template <class Key>
bool row_table::erase_key(std::uint32_t partition, std::uint64_t hash, Key key) noexcept {
  auto& p = partitions_[partition];
  if (p.slots == nullptr) return false;
  auto* s = locate(p, print_of(hash), key);
  if (s == nullptr) return false;
  const auto number = number_of(*s);
  if (named_) {
    const auto name = name_of(row_at(number));
    memory_.free(const_cast<char*>(name.data()) - sizeof(std::uint32_t), name_block_bytes(name.size()));
  }
  free_number(number);
  alive_[number / 64] &= ~(std::uint64_t{1} << number % 64);
  --p.size;
  --size_;
  ++erasures_;
  if (p.moving != 0 && replaced(p).contains(s)) {
    auto& old = replaced(p);
    old.erase(s, [&](slot t) { return (t >> 32U) & (old.count - 1); });
    return true;
  }
  // Close the gap: a later slot moves up when its home is not between the gap and itself.
  auto gap = static_cast<std::size_t>(s - p.slots);
  for (auto i = (gap + 1) & p.mask; p.slots[i] != 0; i = (i + 1) & p.mask) {
    const auto home = (p.slots[i] >> 32U) & p.mask;
    if (((i - home) & p.mask) < ((i - gap) & p.mask)) continue;
    p.slots[gap] = p.slots[i];
    gap = i;
  }
  p.slots[gap] = 0;
  return true;
}

bool row_table::erase(std::uint32_t partition, std::uint64_t hash, std::uint64_t id) noexcept {
  return erase_key(partition, hash, id);
}
bool row_table::erase(std::uint32_t partition, std::uint64_t hash, std::string_view name) noexcept {
  return erase_key(partition, hash, name);
}

void row_table::clear(std::uint32_t partition) noexcept {
  auto& p = partitions_[partition];
  if (p.slots == nullptr) return;
  while (p.moving != 0) move_some(p, p.mask);
  // An erased slot is refilled by the one that moves up, so the slot is checked again.
  for (std::size_t i = 0; p.size != 0; i = (i + 1) & p.mask) {
    while (p.slots[i] != 0) {
      const auto* row = row_at(number_of(p.slots[i]));
      if (named_) erase_key(partition, p.slots[i] >> 32U, name_of(row));
      else erase_key(partition, p.slots[i] >> 32U, id_of(row));
    }
  }
  free_slots(p);
}

const std::byte* row_table::next(std::uint64_t& position) const noexcept {
  while (position < alive_.size() * 64) {
    const auto left = alive_[position / 64] >> position % 64;
    if (left == 0) {
      position = (position / 64 + 1) * 64;
      continue;
    }
    position += static_cast<unsigned>(std::countr_zero(left));
    return row_at(static_cast<std::uint32_t>(position++));
  }
  return nullptr;
}

row_table::~row_table() {
  clear();
  for (auto* slab : cleared_) unmap(slab);
}

void row_table::unmap(std::byte* slab) const noexcept { ::munmap(slab, slab_bytes_); }

void row_table::clear() noexcept {
  for (auto& p : partitions_) {
    if (p.moving != 0) free_replaced(p);
    const auto count = p.slots == nullptr ? 0 : p.mask + std::size_t{1};
    // Short indexes and names are in the arena, and freed together.
    if (large_slots::serves(count) || slot_pool::serves(count * sizeof(slot))) free_slots(p.slots, count);
    p = {};
  }
  memory_.clear();
  std::erase(slabs_, nullptr);
  try {
    if (cleared_.empty()) cleared_.swap(slabs_);
    else cleared_.insert(cleared_.end(), slabs_.begin(), slabs_.end());
  } catch (const std::bad_alloc&) {
    for (auto* slab : slabs_) unmap(slab);
  }
  slabs_.clear();
  uses_.clear();
  open_ = none;
  released_ = none;
  begun_ = 0;
  alive_.clear();
  size_ = 0;
  ++erasures_;
}

/// Returns: whether there is more to be done.
bool row_table::fit(index& p) {
  if (p.slots == nullptr) return false;
  if (p.size == 0) {
    free_slots(p);
    return false;
  }
  if (p.moving != 0) {
    constexpr std::size_t some = 4096;
    move_some(p, some);
    return true;
  }
  const auto now = p.mask + std::size_t{1};
  auto slots = now;
  // To a quarter at most, so that the old slots are not many more than the new rows by which they must have been moved;
  // and full to less than 3/8, so that it does not soon grow again.
  while (slots > first_slots && slots * 4 > now && std::size_t{p.size} * 16 < slots * 3) slots /= 2;
  if (slots == now) return false;
  rehash(p, slots);
  return true;
}

bool row_table::tidy(const std::function<bool()>& over) noexcept {
  if (!tidying_) tidied_erasures_ = erasures_;
  tidying_ = true;
  try {
    while (tidied_ < partitions_.size()) {
      if (auto& p = partitions_[tidied_]; fit(p)) {
        if (p.moving != 0 && over()) return true;
        continue;
      }
      if (++tidied_ % 16 == 0 && over()) return true;
    }
  } catch (const std::bad_alloc&) {  // the index stays as it is
  }
  tidied_ = static_cast<std::uint32_t>(partitions_.size());
  while (!cleared_.empty()) {
    unmap(cleared_.back());
    cleared_.pop_back();
    if (over()) return true;
  }
  // `free_number` keeps at most one slab without rows.
  for (auto slab = open_; slab != none; slab = uses_[slab].next) {
    if (uses_[slab].used != 0) continue;
    release_slab(slab);
    break;
  }
  while (chunks_.release_some()) {
    if (over()) return true;
  }
  tidied_ = 0;
  tidying_ = false;
  return false;
}

}  // namespace paracel::srv
