// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/row_table.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>

#include <paracel/detail/bytes.hpp>

#include "server/store/large_pages.hpp"

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
  if (!slot_pool::serves(bytes)) return static_cast<slot*>(memory_.allocate(bytes));
  auto* slots = static_cast<slot*>(pool_.allocate(bytes));
  memory_.count_bytes(static_cast<std::ptrdiff_t>(bytes));
  return slots;
}

void row_table::free_slots(index& p) noexcept {
  if (p.slots == nullptr) return;
  const auto bytes = (p.mask + std::size_t{1}) * sizeof(slot);
  if (slot_pool::serves(bytes)) {
    pool_.free(p.slots, bytes);
    memory_.count_bytes(-static_cast<std::ptrdiff_t>(bytes));
  } else {
    memory_.free(p.slots, bytes);
  }
}

void row_table::grow(index& p) {
  const auto old_slots = p.slots == nullptr ? 0 : p.mask + std::size_t{1};
  rehash(p, std::max(first_slots, old_slots * 2));
}

void row_table::rehash(index& p, std::size_t slots) {
  const auto old_slots = p.slots == nullptr ? 0 : p.mask + std::size_t{1};
  auto* fresh = take_slots(slots);
  std::fill_n(fresh, slots, slot{0});
  const auto mask = slots - 1;
  for (std::size_t k = 0; k < old_slots; ++k) {
    if (p.slots[k] == 0) continue;
    auto i = (p.slots[k] >> 32U) & mask;
    while (fresh[i] != 0) i = (i + 1) & mask;
    fresh[i] = p.slots[k];
  }
  free_slots(p);
  p.slots = fresh;
  p.mask = static_cast<std::uint32_t>(mask);
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
  const auto number = take_number();
  const auto print = print_of(hash);
  auto i = print & p.mask;
  while (p.slots[i] != 0) i = (i + 1) & p.mask;
  p.slots[i] = (print << 32U) | (number + slot{1});
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
  const auto print = print_of(hash);
  auto gap = print & p.mask;
  for (;; gap = (gap + 1) & p.mask) {
    if (p.slots[gap] == 0) return false;
    if (p.slots[gap] >> 32U == print && is(row_at(number_of(p.slots[gap])), key)) break;
  }
  const auto number = number_of(p.slots[gap]);
  if (named_) {
    const auto name = name_of(row_at(number));
    memory_.free(const_cast<char*>(name.data()) - sizeof(std::uint32_t), name_block_bytes(name.size()));
  }
  free_number(number);
  alive_[number / 64] &= ~(std::uint64_t{1} << number % 64);
  --p.size;
  --size_;
  ++erasures_;
  // Close the gap: a later slot moves up when its home is not between the gap and itself.
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
  // An erased slot is refilled by the one that moves up, so the slot is checked again.
  for (std::size_t i = 0; p.size != 0; i = (i + 1) & p.mask) {
    while (p.slots[i] != 0) {
      const auto* row = row_at(number_of(p.slots[i]));
      if (named_) erase_key(partition, p.slots[i] >> 32U, name_of(row));
      else erase_key(partition, p.slots[i] >> 32U, id_of(row));
    }
  }
  free_slots(p);
  p = {};
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
  // Short indexes and names are in the arena, and freed together.
  for (auto& p : partitions_) {
    const auto bytes = p.slots == nullptr ? 0 : (p.mask + std::size_t{1}) * sizeof(slot);
    if (slot_pool::serves(bytes)) pool_.free(p.slots, bytes);
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

void row_table::fit(index& p) {
  if (p.slots == nullptr) return;
  if (p.size == 0) {
    free_slots(p);
    p = {};
    return;
  }
  auto slots = p.mask + std::size_t{1};
  // Afterwards full to less than 3/8, so that it does not soon grow again.
  while (slots > first_slots && std::size_t{p.size} * 16 < slots * 3) slots /= 2;
  if (slots != p.mask + std::size_t{1}) rehash(p, slots);
}

bool row_table::tidy(const std::function<bool()>& over) noexcept {
  if (tidied_ == 0) tidied_erasures_ = erasures_;
  try {
    while (tidied_ < partitions_.size()) {
      fit(partitions_[tidied_]);
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
  return false;
}

}  // namespace paracel::srv
