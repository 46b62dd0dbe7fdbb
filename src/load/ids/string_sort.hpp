// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "paracel/id_list.hpp"

namespace paracel {

/// The indices of a list of fewer than 2^32 names, in ascending order of the names' bytes.
/// Cost: O(n log n) comparisons of numbers that hold 8 bytes of a name: a third of the time of comparing names in
/// place. 16 bytes per name while it sorts.
std::vector<std::uint32_t> order_of_names(const id_list& names);

/// The names in that order.
id_list sorted(const id_list& names, const std::vector<std::uint32_t>& order);

}  // namespace paracel
