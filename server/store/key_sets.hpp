// SPDX-License-Identifier: BSD-3-Clause
//
// Prepared key sets: lists of keys that clients use repeatedly. Later requests carry only values, and the shard
// iterates over a list of addresses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/detail/value.hpp>

#include "core/hash.hpp"
#include "net/protocol.hpp"
#include "server/plugin/user_functions.hpp"
#include "server/store/key_store.hpp"
#include "server/store/prepared_lists.hpp"

namespace paracel::srv {

/// The values of a set request: `count` of one type and size, contiguous, or items without keys.
struct set_values {
  value_tag tag = value_tag::none;  ///< of each; none: they are items
  std::size_t bytes = 0;            ///< of each
  std::span<const std::byte> payload;

  [[nodiscard]] bool uniform() const noexcept { return tag != value_tag::none; }
  /// Value i of uniform ones.
  [[nodiscard]] value_view at(std::size_t i) const noexcept { return {tag, payload.subspan(i * bytes, bytes)}; }
};
/// Reads the payload of a set request that carries values. Returns: null, or why it is rejected.
/// Cost: O(1) for uniform values, one scan over items.
[[nodiscard]] const char* parse_set_values(value_tag tag, std::span<const std::byte> payload, std::uint32_t count,
                                           set_values& out) noexcept;

/// Reads the payload of a set_prepare: `count` items that are keys and nothing else. `each(key)` may have been called
/// for some before it is rejected. Returns: null, or why.
template <class Each>
[[nodiscard]] const char* parse_set_keys(std::span<const std::byte> payload, std::uint32_t count, const Each& each) {
  net::request_items cursor(payload, count);
  for (net::request_item item; cursor.next(item);) {
    if (item.value.tag != value_tag::none || !item.value.bytes.empty()) return "a key set is keys without values";
    each(item.key);
  }
  return cursor.ok() ? nullptr : "the items of the key set do not fit its body";
}

/// The addresses of keys whose values are numbers of one type and size. Valid until the store is changed by anything
/// but the functions below.
class resolved_keys {
 public:
  enum class fit : std::uint8_t { good, missing, mixed };

  /// Room for so many keys, of which there are none so far.
  void clear(std::size_t keys) {
    count_ = 0;
    if (entries_.size() < keys) entries_.resize(keys);
    if (places_.size() < keys) places_.resize(keys);
  }
  /// Type and size are those of this entry; null: a missing key.
  [[nodiscard]] fit begin(const entry* first) noexcept;
  /// Adds these entries, of keys that are owned here, up to one that is null or not like the first.
  [[nodiscard]] fit add(std::span<entry* const> found) noexcept;
  /// The same without adding them: their values are written to `out`, contiguously.
  [[nodiscard]] fit read(std::span<entry* const> found, std::byte* out) const noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] const entry& at(std::size_t i) const noexcept { return *entries_[i]; }
  [[nodiscard]] value_tag tag() const noexcept { return tag_; }
  /// Bytes of one value.
  [[nodiscard]] std::size_t value_bytes() const noexcept { return value_bytes_; }

  /// Writes the values to `out`, contiguously. Cost: a load and a store a number.
  void gather(std::byte* out) const noexcept;
  /// Replaces the values by `in`, of the same type and size.
  void scatter(key_store& keys, const std::byte* in) noexcept;
  /// Whether `update` may be called with this function.
  [[nodiscard]] bool can_update(const loaded_update& f) const noexcept;
  /// Updates the values by `deltas`, of the same type and size; the new values go to `out` unless it is null. An
  /// additive function is inlined as this loop and not called.
  void update(key_store& keys, const loaded_update& f, const std::byte* deltas, std::byte* out);

 private:
  template <class T>
  void add(std::uint64_t version, const std::byte* deltas, std::byte* out) noexcept;

  std::size_t count_ = 0;
  std::vector<entry*> entries_;
  std::vector<std::byte*> places_;
  value_tag tag_ = value_tag::none;
  std::size_t value_bytes_ = 0;
  std::uint64_t kind_ = 0;  // entry::kind of all
};

/// One list of keys, and the addresses of their values while nothing has moved.
class prepared_set {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return hashes_.size(); }
  [[nodiscard]] std::uint64_t hash(std::size_t i) const noexcept { return hashes_[i]; }
  [[nodiscard]] std::string_view key(std::size_t i) const noexcept {
    return {texts_.data() + ends_[i], ends_[i + 1] - ends_[i]};
  }

  /// The addresses, if every key exists and is owned here, and all values have one type and size and are stored in the
  /// table; else null. Cost: O(1) while `table_stats::moves` is unchanged; otherwise two cache misses a key, overlapped
  /// in batches.
  [[nodiscard]] resolved_keys* resolve(key_store& keys);

  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    return sizeof *this + texts_.capacity() + ends_.capacity() * sizeof(std::uint32_t) +
           hashes_.capacity() * (sizeof(std::uint64_t) + sizeof(entry*) + sizeof(std::byte*));
  }

 private:
  friend class key_sets;
  enum class state : std::uint8_t {
    unknown,
    uniform,
    missing,  ///< key number `missing_` does not exist
    mixed,    ///< not of one kind, or not all of them here
  };
  [[nodiscard]] state look_up(key_store& keys);

  std::vector<char> texts_;          // the keys, contiguous
  std::vector<std::uint32_t> ends_;  // where key i begins, and the end of the last
  std::vector<std::uint64_t> hashes_;
  resolved_keys resolved_;  // valid while the store is unchanged since moves_ and owner_
  state state_ = state::unknown;
  std::size_t missing_ = 0;
  std::uint64_t moves_ = 0;
  const ownership* owner_ = nullptr;
};

/// The key sets of one shard. Cost: as prepared_lists; about 40 bytes a key in addition to its text. A set of more than
/// `most_keys` is refused.
class key_sets : public prepared_lists<prepared_set> {
 public:
  static constexpr std::size_t default_bytes = std::size_t{256} << 20;
  static constexpr std::uint32_t most_keys = 1U << 25;

  explicit key_sets(std::size_t most_bytes = default_bytes) : prepared_lists(most_bytes) {}

  /// Keeps the keys of `payload` under their digest, which is recomputed here and not trusted.
  /// Returns: null, or why the request is refused.
  const char* prepare(const digest128& digest, std::span<const std::byte> payload, std::uint32_t count);
  /// Null: unknown, or evicted. Valid until the next `prepare`.
  [[nodiscard]] prepared_set* find(const digest128& digest) { return prepared_lists::find({digest}); }
};

}  // namespace paracel::srv
