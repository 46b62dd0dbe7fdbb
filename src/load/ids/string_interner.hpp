// SPDX-License-Identifier: BSD-3-Clause
//
// Names with 32-bit indices in order of arrival: the names' bytes contiguous, and a table with open
// addressing, 8 bytes per slot:
//
//     u32 the top half of the name's hash | u32 index + 1, 0: empty
//
// A slot's place is the top bits of its contents, so that the table grows without reading the names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "paracel/free_memory.hpp"
#include "paracel/id_list.hpp"

namespace paracel {

/// Thread-safety: none
class string_interner {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return names_.size(); }
  /// In the order of the indices.
  [[nodiscard]] const id_list& names() const noexcept { return names_; }

  /// The index of each name. Throws: error beyond 2^32 - 1 names.
  /// Cost: about 25 ns per name in a table of a million, 8 bytes per slot of which at most 5 of 8 are used, and the
  /// names.
  void index(std::span<const std::string_view> names, std::uint32_t* to);
  std::uint32_t index(std::string_view name) {
    std::uint32_t i = 0;
    index({&name, 1}, &i);
    return i;
  }
  /// Keeps only the names, to be sorted: no lookups afterwards.
  id_list take() {
    free_memory(slots_);
    return std::move(names_);
  }

 private:
  struct slot {
    std::uint32_t tag = 0;
    std::uint32_t index_and_one = 0;
  };
  void reserve(std::size_t names);
  [[nodiscard]] std::size_t place_of(std::uint32_t tag) const noexcept { return tag >> shift_; }
  [[nodiscard]] std::size_t next(std::size_t at) const noexcept { return (at + 1) & (slots_.size() - 1); }

  std::vector<slot> slots_;  // a power of two of them, 2^32 at the most
  unsigned shift_ = 0;       // bits of a tag below the place
  id_list names_ = id_list::empty(false);
};

}  // namespace paracel
