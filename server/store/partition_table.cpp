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
  if (large_slots::serves(count)) return large_slots::allocate(count);
  const auto bytes = count * sizeof(std::uint64_t);
  auto* slots = static_cast<std::uint64_t*>(slot_pool::serves(bytes) ? long_.allocate(bytes) : short_.allocate(bytes));
  std::fill_n(slots, count, std::uint64_t{0});
  return slots;
}

void slot_memory::free(std::uint64_t* slots, std::size_t count, std::size_t given_back) noexcept {
  if (large_slots::serves(count)) return large_slots::free(slots, count, given_back);
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
      size_(other.size_),
      moving_(other.moving_) {
  other.size_ = 0;
  other.moving_ = 0;
}

table& table::operator=(table&& other) noexcept {
  if (this != &other) {
    clear();
    memory_ = other.memory_;
    family_ = other.family_;
    slots_ = std::exchange(other.slots_, nullptr);
    mask_ = std::exchange(other.mask_, 0);
    size_ = other.size_;
    moving_ = other.moving_;
    other.size_ = 0;
    other.moving_ = 0;
  }
  return *this;
}

std::size_t table::home_of(slot s, std::size_t mask) noexcept {
  // The slot keeps 16 bits of the hash. A larger table, which means half a billion keys in a server, hashes the key
  // again.
  if (mask <= 0xffffU) return (s >> address_bits) & mask;
  return hash_key(entry_of(s)->key()) & mask;
}

table::slot* table::locate(std::uint64_t hash, std::string_view key) const noexcept {
  if (slots_ == nullptr) return nullptr;
  const auto wanted = hash & 0xffffU;
  const auto is = [&](slot s) {
    if (s >> address_bits != wanted) return false;
    const auto there = entry_of(s)->key();
    return there.size() == key.size() && equal_short(there.data(), key.data(), key.size());
  };
  for (std::size_t i = hash & mask_; slots_[i] != 0; i = (i + 1) & mask_) {
    if (is(slots_[i])) return &slots_[i];
  }
  if (moving_ == 0) return nullptr;
  const auto& old = replaced();
  return old.find(hash & (old.count - 1), is);
}

entry* table::find(std::uint64_t hash, std::string_view key) const noexcept {
  const auto* s = locate(hash, key);
  return s == nullptr ? nullptr : entry_of(*s);
}

void table::prefetch_replaced(std::uint64_t hash) const noexcept {
  const auto& old = replaced();
  const auto home = hash & (old.count - 1);
  if (home >= old.moved) __builtin_prefetch(&old.slots[home]);
}

entry* table::guess_replaced(std::uint64_t hash) const noexcept {
  const auto& old = replaced();
  const auto* s = old.find(hash & (old.count - 1), [&](slot t) { return t >> address_bits == (hash & 0xffffU); });
  return s == nullptr ? nullptr : entry_of(*s);
}

/// Puts a moved slot in its place.
void table::settle(slot s) noexcept {
  auto i = home_of(s, mask_);
  while (slots_[i] != 0) i = (i + 1) & mask_;
  slots_[i] = s;
}

/// Begins to move to so many slots, and, unless they are many, ends it.
void table::rehash(std::size_t slots) {
  PARACEL_ASSERT(moving_ == 0);
  auto* fresh = family_->slots.allocate(slots);
  count_bytes(slots * sizeof(slot), true);
  const replaced_slots old{slots_, slots_ == nullptr ? 0 : mask_ + 1UL};
  slots_ = fresh;
  mask_ = static_cast<std::uint32_t>(slots - 1);
  if (old.slots == nullptr) return;
  if (large_slots::serves(slots)) {
    large_slots::front_of(slots_) = {old, 0};
    family_->replaced_bytes += old.count * sizeof(slot);
    moving_ = 1;
    return move_some(large_slots::step);  // the run that continues at the front is the first
  }
  old.for_each([&](slot s) { settle(s); });
  family_->slots.free(old.slots, old.count);
  count_bytes(old.count * sizeof(slot), false);
}

void table::move_some(std::size_t slots) noexcept {
  auto& front = large_slots::front_of(slots_);
  auto& old = front.old;
  if (old.move_some(slots, [&](slot s) { settle(s); })) {
    large_slots::now_filled(slots_, mask_ + 1UL);
    return free_replaced();
  }
  // Those of the next step: their keys will be hashed.
  for (auto i = old.moved; i < std::min(old.moved + large_slots::step, old.count); ++i) {
    if (old.slots[i] != 0) __builtin_prefetch(entry_of(old.slots[i])->key().data());
  }
  const auto before = std::exchange(front.given_back, large_slots::give_back(old, front.given_back));
  count_bytes(front.given_back - before, false);
  family_->replaced_bytes -= front.given_back - before;
}

/// Frees the array that has been replaced, of which all has been moved or removed.
void table::free_replaced() noexcept {
  const auto& front = large_slots::front_of(slots_);
  const auto bytes = front.old.count * sizeof(slot) - front.given_back;
  family_->slots.free(front.old.slots, front.old.count, front.given_back);
  family_->replaced_bytes -= bytes;
  count_bytes(bytes, false);
  moving_ = 0;
}

void table::free_slots() noexcept {
  if (moving_ != 0) free_replaced();
  family_->slots.free(std::exchange(slots_, nullptr), mask_ + 1UL);
  count_bytes((mask_ + 1UL) * sizeof(slot), false);
  mask_ = 0;
}

/// The slot of `key`, or the empty one where it belongs.
table::slot& table::place_for(std::uint64_t hash, std::string_view key) {
  if (moving_ != 0) [[unlikely]]
    move_some(large_slots::step);
  if (auto* s = locate(hash, key)) return *s;
  if (slots_ == nullptr) {
    rehash(first_slots);
  } else if (is_full(size_ + 1UL, mask_ + 1UL)) {
    while (moving_ != 0) move_some(mask_);  // never of a table that grows: it is done long before
    rehash((mask_ + 1UL) * 2);
  }
  PARACEL_ASSERT(size() <= mask_);  // otherwise no slot is empty
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
  if (moving_ != 0 && replaced().contains(s)) {
    auto& old = replaced();
    old.erase(s, [&](slot t) { return home_of(t, old.count - 1); });
  } else {
    // Close the gap: a later entry moves up when its home is not between the gap and itself.
    auto gap = static_cast<std::size_t>(s - slots_);
    for (auto i = (gap + 1) & mask_; slots_[i] != 0; i = (i + 1) & mask_) {
      const auto home = home_of(slots_[i], mask_);
      if (((i - home) & mask_) < ((i - gap) & mask_)) continue;
      slots_[gap] = slots_[i];
      gap = i;
    }
    slots_[gap] = 0;
  }
  if (size_ == 0 && mask_ >= first_slots) free_slots();  // it was larger before
  return true;
}

void table::clear() noexcept {
  if (slots_ == nullptr) return;
  const auto end = [&](slot& s) {
    release(entry_of(s));
    --size_;
  };
  if (moving_ != 0) replaced().for_each(end);
  for (std::size_t i = 0; size_ != 0; ++i) {
    if (slots_[i] != 0) end(slots_[i]);
  }
  free_slots();
}

void table::move_entries() {
  if (size_ == 0 || !memory_->is_moving()) return;
  const auto move = [&](slot& s) {
    auto* e = entry_of(s);
    const auto bytes = e->block_bytes();
    if (bytes > arena::largest || !memory_->is_moving(e)) return;
    auto* to = memory_->allocate(bytes);
    std::memcpy(to, static_cast<const void*>(e), bytes);
    s = (s >> address_bits << address_bits) | reinterpret_cast<std::uintptr_t>(to);
    ++family_->moves;
    memory_->free(e, bytes);
  };
  if (moving_ != 0) replaced().for_each(move);
  for (std::size_t i = 0; i <= mask_; ++i) {
    if (slots_[i] != 0) move(slots_[i]);
  }
}

bool table::fit() {
  if (slots_ == nullptr) return false;
  if (size_ == 0) {
    free_slots();
    return false;
  }
  if (moving_ != 0) {
    constexpr std::size_t some = 4096;
    move_some(some);
    return true;
  }
  auto slots = mask_ + 1UL;
  // To a quarter at most, so that the old slots are not many more than the insertions by which they must have been
  // moved; and full to less than 3/8, so that it does not soon grow again.
  while (slots > first_slots && slots * 4 > mask_ + 1UL && size_ * 16UL < slots * 3) slots /= 2;
  if (slots == mask_ + 1UL) return false;
  rehash(slots);
  return true;
}

}  // namespace paracel::srv
