// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>

#include <paracel/detail/value.hpp>
#include <paracel/types.hpp>

namespace paracel {

/// Combines two arrays of numbers, element by element: into = into op from. Both may have any alignment.
///
/// A NaN on either side makes the maximum and the minimum NaN; integer sums wrap around. Folding contributions in rank
/// order is therefore bit-identical in every run.
/// Throws: error when there is no reduction for the type, the lengths differ, or they are not a multiple of the
/// element's.
/// Cost: O(bytes), vectorised.
void fold(value_tag element, std::span<std::byte> into, std::span<const std::byte> from, reduce_op op);

}  // namespace paracel
