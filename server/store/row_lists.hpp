// SPDX-License-Identifier: BSD-3-Clause
//
// Lists of row ids that clients reuse: the ids are sent once, with their digest, and later requests name the list by
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include <tsl/robin_map.h>

#include "core/hash.hpp"
#include "server/request/byte_budget.hpp"
#include "server/store/key_store.hpp"
#include "server/store/row_table.hpp"

namespace paracel::srv {

/// The ids of one list, and the addresses of their rows while none has been erased.
class row_list {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return ids_.size(); }
  [[nodiscard]] std::span<const std::uint64_t> ids() const noexcept { return ids_; }
  [[nodiscard]] std::span<const std::uint64_t> hashes() const noexcept { return hashes_; }

  /// Whether `rows()` are the current addresses in this table, with all rows owned here.
  [[nodiscard]] bool is_resolved(const row_table& of, const ownership* owned) const noexcept {
    return of_ == &of && erasures_ == of.erasures() && owner_ == owned;
  }
  [[nodiscard]] std::span<std::byte* const> rows() const noexcept { return rows_; }
  /// Records the row of id i; once all are recorded `resolved` is called.
  void found(std::size_t i, std::byte* row) noexcept { rows_[i] = row; }
  /// All rows have been recorded.
  void resolved(const row_table& of, const ownership* owned) noexcept {
    of_ = &of;
    erasures_ = of.erasures();
    owner_ = owned;
  }
  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    return sizeof *this + size() * (sizeof(std::uint64_t) * 2 + sizeof(std::byte*));
  }

 private:
  friend class row_lists;
  digest128 digest_{};
  std::uint32_t table_ = 0;
  std::vector<std::uint64_t> ids_;
  std::vector<std::uint64_t> hashes_;
  std::vector<std::byte*> rows_;
  const row_table* of_ = nullptr;
  std::uint64_t erasures_ = 0;
  const ownership* owner_ = nullptr;
};

/// The lists of one shard, in LRU order.
///
/// Thread-safety: owned by the shard thread.
/// Cost: 24 bytes an id; the least recently used lists are evicted when `most_bytes` is exceeded, the newest never.
class row_lists {
 public:
  explicit row_lists(std::size_t most_bytes) : budget_(most_bytes) {}

  /// Adds a list; `digest` and `hashes` are those of the ids. Valid until the next `add`.
  /// Throws: std::bad_alloc; nothing has changed.
  row_list& add(std::uint32_t table, const digest128& digest, std::span<const std::uint64_t> ids,
                std::span<const std::uint64_t> hashes);
  /// Null: unknown, or evicted. Valid until the next `add`.
  [[nodiscard]] row_list* find(std::uint32_t table, const digest128& digest);

  [[nodiscard]] std::size_t size() const noexcept { return lists_.size(); }
  /// Thread-safety: any thread.
  [[nodiscard]] const byte_budget& budget() const noexcept { return budget_; }

 private:
  /// A list belongs to one table: in another the ids have other rows.
  struct name {
    digest128 digest;
    std::uint32_t table = 0;
    friend bool operator==(const name&, const name&) = default;
  };
  struct name_hash {
    std::size_t operator()(const name& n) const noexcept { return n.digest.low ^ n.table; }
  };

  byte_budget budget_;
  std::list<row_list> lists_;
  tsl::robin_map<name, std::list<row_list>::iterator, name_hash> by_name_;
};

}  // namespace paracel::srv
