// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tsl/robin_map.h>
#include <paracel/detail/value.hpp>

#include "core/hash.hpp"
#include "core/reduction.hpp"
#include "core/shared_buffer.hpp"

namespace paracel {

/// Deltas of additive updates, summed by key until they are sent. `Ticket` is what the updates of an entry share.
///
/// Thread-safety: none; it is owned by the thread of its client.
template <class Ticket>
class update_combiner {
 public:
  struct entry {
    std::string key;
    std::uint64_t function = 0;
    value_tag tag = value_tag::none;
    shared_buffer sum;
    std::shared_ptr<Ticket> ticket;
    [[nodiscard]] value_view view() const noexcept { return {tag, sum.bytes()}; }
  };

  /// Adds a well-formed numeric delta to the entry of `key`, a new one if none exists: its ticket is then null.
  /// Returns: null when it cannot be added (another function, type or size; an int32 sum that would overflow, which the
  /// server, whose value may be wider, need not): take the entry first. Otherwise valid until the next call.
  /// Cost: one hash and one pass over the delta.
  entry* add(std::string_view key, const value_view& delta, std::uint64_t function) {
    auto found = at_.find(key);
    if (found == at_.end()) {
      if (entries_.size() > 2 * live_ + 64) close_gaps();
      entry e{std::string(key), function, delta.tag, shared_buffer::allocate(delta.bytes.size()), nullptr};
      if (!delta.bytes.empty()) std::memcpy(e.sum.mutable_data(), delta.bytes.data(), delta.bytes.size());
      bytes_ += delta.bytes.size();
      at_.emplace(e.key, entries_.size());
      entries_.push_back(std::move(e));
      ++live_;
      return &entries_.back();
    }
    auto& e = entries_[found->second];
    if (e.function != function || e.tag != delta.tag || e.sum.size() != delta.bytes.size()) return nullptr;
    if (element_of(e.tag) == value_tag::i32 && would_overflow(e.sum.bytes(), delta.bytes)) return nullptr;
    fold(element_of(e.tag), {e.sum.mutable_data(), e.sum.size()}, delta.bytes, reduce_op::sum);
    return &e;
  }

  /// Removes and returns the entry of `key`.
  std::optional<entry> take(std::string_view key) {
    const auto found = at_.find(key);
    if (found == at_.end()) return std::nullopt;
    auto e = std::move(entries_[found->second]);
    at_.erase(found);
    bytes_ -= e.sum.size();
    if (--live_ == 0) entries_.clear();
    return e;
  }
  /// Removes all of them, in the order in which they were created.
  std::vector<entry> take_all() {
    at_.clear();
    auto all = std::exchange(entries_, {});
    if (live_ != all.size()) std::erase_if(all, was_taken);
    live_ = 0;
    bytes_ = 0;
    return all;
  }

  /// The entry of `key`, or null.
  [[nodiscard]] const entry* find(std::string_view key) const {
    const auto found = at_.find(key);
    return found == at_.end() ? nullptr : &entries_[found->second];
  }
  [[nodiscard]] bool contains(std::string_view key) const { return at_.contains(key); }
  [[nodiscard]] bool empty() const noexcept { return live_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return live_; }
  /// Bytes of all sums.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct hash {
    std::size_t operator()(std::string_view key) const noexcept { return hash_key(key); }
  };

  static bool was_taken(const entry& e) noexcept { return !e.sum; }
  void close_gaps() {
    std::erase_if(entries_, was_taken);
    for (std::size_t i = 0; i < entries_.size(); ++i) at_[entries_[i].key] = i;
  }

  static bool would_overflow(std::span<const std::byte> sum, std::span<const std::byte> delta) noexcept {
    std::uint32_t any = 0;
    for (std::size_t at = 0; at + 4 <= sum.size(); at += 4) {
      std::uint32_t a, b;
      std::memcpy(&a, sum.data() + at, 4);
      std::memcpy(&b, delta.data() + at, 4);
      const auto c = a + b;
      any |= (a ^ c) & (b ^ c);  // operands of the same sign, and a sum of the other
    }
    return (any & 0x80000000U) != 0;
  }

  tsl::robin_map<std::string, std::size_t, hash, std::equal_to<>> at_;  // in entries_
  std::vector<entry> entries_;                                          // in order of creation; a taken one has no sum
  std::size_t live_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace paracel
