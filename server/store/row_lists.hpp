// SPDX-License-Identifier: BSD-3-Clause
//
// Lists of row ids that clients use repeatedly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/store/key_store.hpp"
#include "server/store/prepared_lists.hpp"
#include "server/store/row_table.hpp"

namespace paracel::srv {

/// The ids of one list, and the addresses of their rows while none has been erased. Cost: 24 bytes an id.
class row_list {
 public:
  /// `hashes`: those of the ids.
  row_list(std::span<const std::uint64_t> ids, std::span<const std::uint64_t> hashes)
      : ids_(ids.begin(), ids.end()), hashes_(hashes.begin(), hashes.end()), rows_(ids.size()) {}

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
  std::vector<std::uint64_t> ids_;
  std::vector<std::uint64_t> hashes_;
  std::vector<std::byte*> rows_;
  const row_table* of_ = nullptr;
  std::uint64_t erasures_ = 0;
  const ownership* owner_ = nullptr;
};

using row_lists = prepared_lists<row_list>;

}  // namespace paracel::srv
