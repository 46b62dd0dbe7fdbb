// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/partition_table.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include <paracel/detail/bytes.hpp>

#include "core/check.hpp"
#include "core/hash.hpp"
#include "core/short_bytes.hpp"

namespace paracel::srv {
namespace {

constexpr std::size_t first_slots = 4;
// Full at 3/4: linear probing then checks 2.5 slots for an existing key, all in one or two cache lines.
constexpr bool is_full(std::size_t size, std::size_t slots) noexcept { return size * 4 >= slots * 3; }

shared_buffer aligned(shared_buffer value) {
  return reinterpret_cast<std::uintptr_t>(value.data()) % 8 == 0 ? value : shared_buffer::copy_of(value.bytes());
}

}  // namespace

std::uint64_t* slot_memory::allocate(std::size_t count) {
  const auto bytes = count * sizeof(std::uint64_t);
  auto* slots = static_cast<std::uint64_t*>(slot_pool::serves(bytes) ? long_.allocate(bytes) : short_.allocate(bytes));
  std::fill_n(slots, count, std::uint64_t{0});
  return slots;
}

void slot_memory::free(std::uint64_t* slots, std::size_t count) noexcept {
  const auto bytes = count * sizeof(std::uint64_t);
  if (slot_pool::serves(bytes)) long_.free(slots, bytes);
  else short_.free(slots, bytes);
  // As tables grow, all of them leave one size after the other.
  if (chunks_.idle_bytes() >= large_page_bytes) chunks_.release_some();
}

table::table(table&& other) noexcept
    : memory_(other.memory_),
      family_(other.family_),
      slots_(std::exchange(other.slots_, nullptr)),
      mask_(std::exchange(other.mask_, 0)),
      size_(std::exchange(other.size_, 0)) {}

table& table::operator=(table&& other) noexcept {
  if (this != &other) {
    clear();
    memory_ = other.memory_;
    family_ = other.family_;
    slots_ = std::exchange(other.slots_, nullptr);
    mask_ = std::exchange(other.mask_, 0);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

std::size_t table::home_of(slot s) const noexcept {
  // The slot keeps 16 bits of the hash. A larger table, which means half a billion keys in a server, hashes the key
  // again.
  if (mask_ <= 0xffffU) return (s >> address_bits) & mask_;
  return hash_key(entry_of(s)->key()) & mask_;
}

table::slot* table::locate(std::uint64_t hash, std::string_view key) const noexcept {
  if (slots_ == nullptr) return nullptr;
  const auto wanted = hash & 0xffffU;
  for (std::size_t i = hash & mask_;; i = (i + 1) & mask_) {
    auto& s = slots_[i];
    if (s == 0) return nullptr;
    if (s >> address_bits != wanted) continue;
    const auto there = entry_of(s)->key();
    if (there.size() == key.size() && equal_short(there.data(), key.data(), key.size())) return &s;
  }
}

entry* table::find(std::uint64_t hash, std::string_view key) const noexcept {
  const auto* s = locate(hash, key);
  return s == nullptr ? nullptr : entry_of(*s);
}

void table::rehash(std::size_t slots) {
  auto* fresh = family_->slots.allocate(slots);
  const auto old_slots = slots_ == nullptr ? 0 : mask_ + 1UL;
  auto* old = std::exchange(slots_, fresh);
  mask_ = static_cast<std::uint32_t>(slots - 1);
  count_bytes(slots * sizeof(slot), true);
  for (std::size_t k = 0; k < old_slots; ++k) {
    if (old[k] == 0) continue;
    auto i = home_of(old[k]);
    while (slots_[i] != 0) i = (i + 1) & mask_;
    slots_[i] = old[k];
  }
  if (old == nullptr) return;
  family_->slots.free(old, old_slots);
  count_bytes(old_slots * sizeof(slot), false);
}

void table::free_slots() noexcept {
  family_->slots.free(std::exchange(slots_, nullptr), mask_ + 1UL);
  count_bytes((mask_ + 1UL) * sizeof(slot), false);
  mask_ = 0;
}

/// The slot of `key`, or the empty one where it belongs.
table::slot& table::place_for(std::uint64_t hash, std::string_view key) {
  if (auto* s = locate(hash, key)) return *s;
  if (slots_ == nullptr) rehash(first_slots);
  else if (is_full(size_ + 1UL, mask_ + 1UL)) rehash((mask_ + 1UL) * 2);
  PARACEL_ASSERT(size_ <= mask_);  // otherwise no slot is empty
  auto i = hash & mask_;
  while (slots_[i] != 0) i = (i + 1) & mask_;
  return slots_[i];
}

entry* table::make(std::string_view key, value_tag tag, std::size_t value_bytes, bool large) {
  const auto key_room = arena::rounded(key.size());
  const auto value_room = large ? sizeof(shared_buffer::control*) : arena::rounded(value_bytes);
  auto* e = new (memory_->allocate(sizeof(entry) + key_room + value_room)) entry;
  e->value_bytes_ = large ? 0 : static_cast<std::uint32_t>(value_bytes);
  e->key_bytes_ = static_cast<std::uint16_t>(key.size());
  e->tag_ = tag;
  e->large_ = large;
  copy_short(e + 1, key.data(), key.size());
  return e;
}

void table::release(entry* e) noexcept {
  ++family_->moves;
  if (e->large_) {
    count_bytes(e->control()->size, false);
    shared_buffer::drop(e->control());
  }
  memory_->free(e, e->block_bytes());
}

entry& table::put(slot& s, std::uint64_t hash, entry* fresh) noexcept {
  if (s == 0) ++size_;
  else release(entry_of(s));
  s = slot_of(fresh, hash);
  changed(*fresh);
  return *fresh;
}

entry& table::store(std::uint64_t hash, std::string_view key, const value_view& value) {
  if (value.bytes.size() > net::tail_threshold_bytes)
    return store(hash, key, value.tag, shared_buffer::copy_of(value.bytes));
  auto& s = place_for(hash, key);
  if (s != 0) {
    auto* e = entry_of(s);
    if (!e->large_ && arena::rounded(e->value_bytes_) == arena::rounded(value.bytes.size())) {
      copy_short(e->place(), value.bytes.data(), value.bytes.size());
      if (e->tag_ != value.tag || e->value_bytes_ != value.bytes.size()) ++family_->moves;
      e->value_bytes_ = static_cast<std::uint32_t>(value.bytes.size());
      e->tag_ = value.tag;
      changed(*e);
      return *e;
    }
  }
  auto* fresh = make(key, value.tag, value.bytes.size(), false);
  copy_short(fresh->place(), value.bytes.data(), value.bytes.size());
  return put(s, hash, fresh);
}

entry& table::store(std::uint64_t hash, std::string_view key, value_tag tag, shared_buffer value) {
  if (value.size() <= net::tail_threshold_bytes) return store(hash, key, value_view{tag, value.bytes()});
  auto kept = aligned(std::move(value));
  auto& s = place_for(hash, key);
  auto* fresh = make(key, tag, 0, true);
  count_bytes(kept.size(), true);
  auto* control = kept.release();
  store_fields(fresh->place(), control);
  return put(s, hash, fresh);
}

std::span<std::byte> table::open(entry& e) {
  if (!e.large_) return {e.place(), e.value_bytes_};
  auto* control = e.control();
  if (control->refs.load(std::memory_order_acquire) != 1) {
    ++family_->moves;
    auto own = shared_buffer::copy_of({control->data, control->size});
    shared_buffer::drop(control);
    control = own.release();
    store_fields(e.place(), control);
  }
  return {control->data, control->size};
}

bool table::erase(std::uint64_t hash, std::string_view key) noexcept {
  auto* s = locate(hash, key);
  if (s == nullptr) return false;
  PARACEL_ASSERT(size_ != 0);
  release(entry_of(*s));
  --size_;
  // Close the gap: a later entry moves up when its home is not between the gap and itself.
  auto gap = static_cast<std::size_t>(s - slots_);
  for (auto i = (gap + 1) & mask_; slots_[i] != 0; i = (i + 1) & mask_) {
    const auto home = home_of(slots_[i]);
    if (((i - home) & mask_) < ((i - gap) & mask_)) continue;
    slots_[gap] = slots_[i];
    gap = i;
  }
  slots_[gap] = 0;
  if (size_ == 0 && mask_ >= first_slots) clear();  // it was larger before
  return true;
}

void table::clear() noexcept {
  if (slots_ == nullptr) return;
  for (std::size_t i = 0; i <= mask_; ++i) {
    if (slots_[i] != 0) release(entry_of(slots_[i]));
  }
  free_slots();
  size_ = 0;
}

void table::move_entries() {
  if (size_ == 0 || !memory_->is_moving()) return;
  for (std::size_t i = 0; i <= mask_; ++i) {
    if (slots_[i] == 0) continue;
    auto* e = entry_of(slots_[i]);
    const auto bytes = e->block_bytes();
    if (bytes > arena::largest || !memory_->is_moving(e)) continue;
    auto* to = memory_->allocate(bytes);
    std::memcpy(to, static_cast<const void*>(e), bytes);
    slots_[i] = (slots_[i] >> address_bits << address_bits) | reinterpret_cast<std::uintptr_t>(to);
    ++family_->moves;
    memory_->free(e, bytes);
  }
}

void table::fit() {
  if (slots_ == nullptr) return;
  if (size_ == 0) return free_slots();
  auto slots = mask_ + 1UL;
  // Afterwards full to less than 3/8, so that it does not soon grow again.
  while (slots > first_slots && size_ * 16UL < slots * 3) slots /= 2;
  if (slots != mask_ + 1UL) rehash(slots);
}

}  // namespace paracel::srv
