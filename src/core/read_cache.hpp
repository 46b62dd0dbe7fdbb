// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tsl/robin_map.h>
#include <paracel/detail/value.hpp>

#include "core/hash.hpp"

namespace paracel {

/// A worker's cached reads under bounded staleness, and how long each may be used.
///
/// An entry carries the slowest clock that was known when its read was sent, its `minimum`: the bytes contain every
/// update of every worker's first `minimum` iterations. It may serve a read that needs no more than that;
/// `needed_minimum` of ssp_clock.hpp says what a read needs. The other half of the rule, all own updates, is
/// up to the owner: after an own update it changes the bytes through `find`, if the function is additive, or calls
/// `drop`; and it puts no value whose read was sent before an own update of that key.
///
/// Thread-safety: none; it is owned by the thread of its client.
/// Lifetime: a pointer to an entry is valid until the next call that is neither const nor `find`.
class read_cache {
 public:
  struct entry {
    value_tag tag = value_tag::none;
    std::vector<std::byte> bytes;
    std::uint64_t version = 0;
    std::uint32_t minimum = 0;
    mutable std::uint32_t read_in = 0;  ///< iteration of the last read, to decide what is worth keeping fresh
    /// The decoded form of the bytes, valid while they are unchanged, and a tag for its type.
    mutable std::shared_ptr<void> object{};
    mutable const void* object_type = nullptr;

    [[nodiscard]] value_view view() const noexcept { return {tag, bytes}; }
  };

  /// The entry of `key` if it contains the first `needed_minimum` iterations of all workers, otherwise nullptr.
  /// Cost: one hash and one probe, no allocation.
  [[nodiscard]] const entry* find_fresh(std::string_view key, std::uint32_t needed_minimum) const {
    const auto found = entries_.find(key);
    return found != entries_.end() && found->second.minimum >= needed_minimum ? &found->second : nullptr;
  }
  /// The entry of `key` whatever its age, to change its bytes in place.
  [[nodiscard]] entry* find(std::string_view key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    found.value().object_type = nullptr;
    return &found.value();
  }
  [[nodiscard]] bool contains(std::string_view key) const { return entries_.contains(key); }

  /// Caches a read that was sent when `minimum` was the slowest clock known. A read with a smaller minimum than that of
  /// the existing entry changes nothing if it was overtaken; if its version is newer, it contains what
  /// the entry did, and is as fresh. `exact`: `version` is that of the value; otherwise an upper bound of it.
  void put(std::string_view key, const value_view& value, std::uint64_t version, std::uint32_t minimum,
           bool exact = true) {
    auto found = entries_.find(key);
    if (found == entries_.end()) found = entries_.try_emplace(std::string(key)).first;
    auto& e = found.value();
    if (minimum < e.minimum && (!exact || version <= e.version)) return;
    e.tag = value.tag;
    e.bytes.assign(value.bytes.begin(), value.bytes.end());  // reuses the old memory
    e.version = version;
    e.minimum = std::max(e.minimum, minimum);
    e.object_type = nullptr;
  }
  /// Records that the entry contains the first `minimum` iterations of all workers, because the value still has the
  /// same version. Returns: false when the entry is of another version, or is fresher; it is then unchanged.
  bool raise(std::string_view key, std::uint64_t version, std::uint32_t minimum) {
    const auto found = entries_.find(key);
    if (found == entries_.end() || found->second.version != version || found->second.minimum >= minimum) return false;
    found.value().minimum = minimum;
    return true;
  }
  /// Returns: whether the entry existed.
  bool drop(std::string_view key) { return entries_.erase(key) > 0; }
  void clear() { entries_.clear(); }
  /// f(key, entry) for each entry, in no particular order.
  template <class F>
  void visit(F&& f) const {
    for (const auto& [key, e] : entries_) f(key, e);
  }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

 private:
  struct hash {
    std::size_t operator()(std::string_view key) const noexcept { return hash_key(key); }
  };
  tsl::robin_map<std::string, entry, hash, std::equal_to<>> entries_;
};

}  // namespace paracel
