// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/key_sets.hpp"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include <paracel/detail/bytes.hpp>

#include "core/short_bytes.hpp"
#include "server/plugin/last_words.hpp"

namespace paracel::srv {
namespace {

// How far ahead a loop prefetches values. Each is a cache line or two; a core has 10 to 16 misses in flight.
constexpr std::size_t ahead = 16;

/// Calls f with the bytes of a value, as a constant where it is a common one: copies are single instructions then.
/// Values without an element have no bytes, and their buffers no address: copy_short allows for it.
template <class F>
auto with_width(std::size_t bytes, const F& f) {
  if (bytes == 4) return f(std::integral_constant<std::size_t, 4>());
  if (bytes == 8) return f(std::integral_constant<std::size_t, 8>());
  return f(bytes);
}

bool is_aligned(const std::byte* p, std::size_t to) noexcept { return reinterpret_cast<std::uintptr_t>(p) % to == 0; }

}  // namespace

const char* parse_set_values(value_tag tag, std::span<const std::byte> payload, std::uint32_t count,
                             set_values& out) noexcept {
  out = {};
  out.payload = payload;
  if (is_numeric(tag)) {
    const auto width = element_bytes(tag);
    out.bytes = count == 0 ? 0 : payload.size() / count;
    if (out.bytes * count != payload.size()) return "the values of a set request are not all of one size";
    if (is_array(tag) ? out.bytes % width != 0 : count != 0 && out.bytes != width) {
      return "the values of a set request do not have the size of their type";
    }
    out.tag = tag;
    return nullptr;
  }
  if (tag != value_tag::none) return "values that are not numbers come as items";
  net::request_items cursor(payload, count);
  for (net::request_item item; cursor.next(item);) {
    if (!item.key.empty()) return "an item of a set request has a key of its own";
  }
  return cursor.ok() ? nullptr : "the items of the set request do not fit its body";
}

// ---- one set ----------------------------------------------------------------------------------------------------

resolved_keys* prepared_set::resolve(key_store& keys) {
  if (moves_ == keys.family().moves && owner_ == keys.owned() && state_ != state::unknown) {
    if (state_ == state::uniform) return &resolved_;
    // A new key does not count as a move.
    if (state_ == state::mixed || keys.find(hashes_[missing_], key(missing_)) == nullptr) return nullptr;
  }
  state_ = look_up(keys);
  moves_ = keys.family().moves;
  owner_ = keys.owned();
  return state_ == state::uniform ? &resolved_ : nullptr;
}

prepared_set::state prepared_set::look_up(key_store& keys) {
  if (hashes_.empty()) return state::mixed;  // no type and size to loop over
  resolved_.clear(size());
  std::array<entry*, key_store::batch> found;
  for (std::size_t begin = 0; begin < size(); begin += key_store::batch) {
    const auto hashes = std::span(hashes_).subspan(begin, std::min(key_store::batch, size() - begin));
    if (!keys.owns_all(hashes)) return state::mixed;
    keys.find(
        hashes, [&](std::size_t i) { return key(begin + i); }, found.data());
    auto fit = begin == 0 ? resolved_.begin(found[0]) : resolved_keys::fit::good;
    if (fit == resolved_keys::fit::good) fit = resolved_.add(std::span(found).first(hashes.size()));
    missing_ = resolved_.size();
    if (fit == resolved_keys::fit::missing) return state::missing;
    if (fit == resolved_keys::fit::mixed) return state::mixed;
  }
  return state::uniform;
}

resolved_keys::fit resolved_keys::begin(const entry* first) noexcept {
  if (first == nullptr) return fit::missing;
  if (!is_numeric(first->tag()) || first->is_large()) return fit::mixed;
  tag_ = first->tag();
  value_bytes_ = first->value().size();
  kind_ = first->kind();
  return fit::good;
}

resolved_keys::fit resolved_keys::add(std::span<entry* const> found) noexcept {
  for (auto* e : found) {
    if (e == nullptr) return fit::missing;
    if (e->kind() != kind_) return fit::mixed;
    entries_[count_] = e;
    places_[count_++] = table::place_of(*e);
  }
  return fit::good;
}

resolved_keys::fit resolved_keys::read(std::span<entry* const> found, std::byte* out) const noexcept {
  return with_width(value_bytes_, [&](auto width) {
    for (auto* e : found) {
      if (e == nullptr) return fit::missing;
      if (e->kind() != kind_) return fit::mixed;
      copy_short(out, table::place_of(*e), width);
      out += width;
    }
    return fit::good;
  });
}

void resolved_keys::gather(std::byte* out) const noexcept {
  const auto n = size();
  with_width(value_bytes_, [&](auto width) {
    for (std::size_t i = 0; i < n; ++i) copy_short(out + i * width, places_[i], width);
  });
}

void resolved_keys::scatter(key_store& keys, const std::byte* in) noexcept {
  auto version = keys.take_versions(size());
  for (std::size_t i = 0; i < size(); ++i) {
    copy_short(places_[i], in + i * value_bytes_, value_bytes_);
    table::set_version(*entries_[i], version++);
  }
}

bool resolved_keys::can_update(const loaded_update& f) const noexcept {
  // The rule of cannot_fail; an unaligned delta is copied.
  const auto wanted = static_cast<value_tag>(f.function->value_tag);
  return f.refused.why() == nullptr && f.optimizer == nullptr && f.function->in_place != nullptr &&
         (f.function->flags & abi::no_throw) != 0 && (wanted == value_tag::none || wanted == element_of(tag_));
}

template <class T>
void resolved_keys::add(std::uint64_t version, const std::byte* deltas, std::byte* out) noexcept {
  const auto n = size();
  const auto numbers = value_bytes_ / sizeof(T);
  if (numbers == 1 && out == nullptr) {
    for (std::size_t i = 0; i < n; ++i) {
      __builtin_prefetch(places_[std::min(i + ahead, n - 1)], 1);
      store_fields(places_[i], static_cast<T>(load_field<T>(places_[i]) + load_field<T>(deltas + i * sizeof(T))));
      table::set_version(*entries_[i], version + i);
    }
    return;
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (i + ahead < n) __builtin_prefetch(places_[i + ahead], 1);
    auto* at = places_[i];
    for (std::size_t k = 0; k < numbers; ++k, deltas += sizeof(T), at += sizeof(T)) {
      const T sum = static_cast<T>(load_field<T>(at) + load_field<T>(deltas));
      store_fields(at, sum);
      if (out != nullptr) {
        store_fields(out, sum);
        out += sizeof(T);
      }
    }
    table::set_version(*entries_[i], version++);
  }
}

void resolved_keys::update(key_store& keys, const loaded_update& f, const std::byte* deltas, std::byte* out) {
  if (f.additive) {
    const auto version = keys.take_versions(size());
    switch (element_of(tag_)) {
      case value_tag::i32:
        return add<std::uint32_t>(version, deltas, out);  // unsigned: modulo 2^32, as paracel_add
      case value_tag::i64:
        return add<std::uint64_t>(version, deltas, out);
      case value_tag::f32:
        return add<float>(version, deltas, out);
      default:
        return add<double>(version, deltas, out);
    }
  }
  const auto width = element_bytes(tag_);
  std::vector<std::byte> moved;
  if (!is_aligned(deltas, width)) {
    moved.assign(deltas, deltas + size() * value_bytes_);
    deltas = moved.data();
  }
  auto version = keys.take_versions(size());
  for (std::size_t i = 0; i < size(); ++i, deltas += value_bytes_) {
    current_call.set_key(entries_[i]->key());
    // It is declared not to fail, so there is nothing to report.
    (void)f.function->in_place(f.function, static_cast<std::uint8_t>(element_of(tag_)), places_[i], deltas,
                               value_bytes_ / width, nullptr);
    table::set_version(*entries_[i], version++);
    if (out != nullptr) {
      copy_short(out, places_[i], value_bytes_);
      out += value_bytes_;
    }
  }
}

// ---- all of them ------------------------------------------------------------------------------------------------

const char* key_sets::prepare(const digest128& digest, std::span<const std::byte> payload, std::uint32_t count) {
  if (digest_of(payload) != digest) return "the keys of the set are not those of its digest";
  if (find(digest) != nullptr) return nullptr;
  prepared_set fresh;
  if (count > most_keys) return "a key set can have at most 33,554,432 keys";
  // The loop ends at the first item that does not fit, so that `count` reserves nothing.
  const char* reason = parse_set_keys(payload, count, [&](std::string_view key) {
    fresh.ends_.push_back(static_cast<std::uint32_t>(fresh.texts_.size()));
    fresh.texts_.insert(fresh.texts_.end(), key.begin(), key.end());
    fresh.hashes_.push_back(hash_key(key));
  });
  if (reason != nullptr) return reason;
  fresh.ends_.push_back(static_cast<std::uint32_t>(fresh.texts_.size()));
  fresh.texts_.shrink_to_fit();
  fresh.ends_.shrink_to_fit();
  fresh.hashes_.shrink_to_fit();
  add({digest}, std::move(fresh));
  return nullptr;
}

}  // namespace paracel::srv
