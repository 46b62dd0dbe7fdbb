// SPDX-License-Identifier: BSD-3-Clause
//
// Reads and updates of some elements of an array of numbers. The payload names the elements, drawn in
// src/net/README.md:
//
//     pull_at     range: u32 first | u32 count                 list: m x u32 offset
//     update_at   range: u32 first | numbers                   list: m x u32 offset | m x number
//
// Offsets count elements and may be repeated; a repeated one is read, or changed, repeatedly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <paracel/detail/value.hpp>

#include "net/protocol.hpp"
#include "server/plugin/user_functions.hpp"
#include "server/store/partition_table.hpp"

namespace paracel::srv {

/// The elements that a request names. The list points into the request and may be unaligned.
struct element_choice {
  bool is_range = false;
  std::uint32_t first = 0;               ///< of a range
  std::uint32_t count = 0;               ///< of elements
  std::span<const std::byte> offsets{};  ///< of a list: count x u32
};
/// The elements and their deltas: one number for each, tagged as an array.
struct element_change {
  element_choice where;
  value_view numbers;
};

/// Both return null, or what is wrong with the payload; `out` is then unspecified.
/// Cost: O(1), no allocation.
[[nodiscard]] const char* parse_pull_at(const value_view& payload, bool is_range, element_choice& out) noexcept;
[[nodiscard]] const char* parse_update_at(const value_view& payload, bool is_range, element_change& out) noexcept;

/// The selected elements of `value`, in the order of selection: for a range a view into the value, for a list one into
/// `memory`, whose capacity is reused. Any status but ok: `why` says what was wrong.
[[nodiscard]] net::status pull_elements(const value_view& value, const element_choice& choice, value_view& out,
                                        std::vector<std::byte>& memory, std::string& why);

/// Whether `update_elements` may succeed, judging by elements, types and sizes. Any status but ok: `why` says why
/// not.
[[nodiscard]] net::status fits_elements(const loaded_update& f, const value_view& value, const element_change& change,
                                        std::string& why);

/// Updates the elements of `e`, an entry of `t`, in place. A list is changed one element after the other, a range
/// in one call of the function. Any status but ok: `why` says what was wrong, and the value is as before.
/// Cost: an additive function is a loop of additions over a list; another one is called for each element. A
/// large value that a reply still holds is copied first.
[[nodiscard]] net::status update_elements(const loaded_update& f, table& t, entry& e, const element_change& change,
                                          std::string& why);

}  // namespace paracel::srv
