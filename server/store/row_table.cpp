// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/row_table.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>

#include <paracel/bytes.hpp>

#include "server/store/large_pages.hpp"

namespace paracel::srv {
namespace {

// A slab reserves address space; the system provides memory as rows are made. All but a table's first request huge
// pages.
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
  return made_ * stride_ + alive_.size() * sizeof(alive_[0]) + memory_.used() + partitions_.size() * sizeof(index) +
         slabs_.size() * sizeof(slabs_[0]);
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
  const auto slots = std::max(first_slots, old_slots * 2);
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

std::uint32_t row_table::take_number() {
  if (free_ != none) {
    const auto number = free_;
    std::uint64_t next = 0;
    load_fields(row_at(number), next);
    free_ = static_cast<std::uint32_t>(next);
    std::memset(row_at(number), 0, stride_);
    return number;
  }
  if (made_ == none - 1) throw std::bad_alloc();
  if ((made_ >> slab_shift_) == slabs_.size()) {
    slabs_.reserve(slabs_.size() + 1);
    slabs_.push_back(map_zeros(slab_bytes_, !slabs_.empty()));
  }
  if (made_ / 64 == alive_.size()) alive_.push_back(0);
  return made_++;
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
  auto* row = row_at(number);
  if (named_) {
    const auto name = name_of(row);
    memory_.free(const_cast<char*>(name.data()) - sizeof(std::uint32_t), name_block_bytes(name.size()));
  }
  const std::uint64_t next = free_;
  store_fields(row, next);
  free_ = number;
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
  while (position < made_) {
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

void row_table::release_slabs() noexcept {
  if (named_) {
    for (std::uint64_t position = 0; const auto* row = next(position);) {
      const auto name = name_of(row);
      memory_.free(const_cast<char*>(name.data()) - sizeof(std::uint32_t), name_block_bytes(name.size()));
    }
  }
  for (auto& p : partitions_) {
    free_slots(p);
    p = {};
  }
  for (auto* slab : slabs_) ::munmap(slab, slab_bytes_);
  slabs_.clear();
}

void row_table::clear() noexcept {
  release_slabs();
  alive_.clear();
  made_ = 0;
  free_ = none;
  size_ = 0;
  ++erasures_;
}

}  // namespace paracel::srv
