// SPDX-License-Identifier: BSD-3-Clause
//
// The one hash of the framework: XXH3-64 of the key's bytes. The top 14 bits name the partition, the low bits index the
// partition's table. Every process of a job and every snapshot must agree on it: test/unit/hash_test.cpp pins its
// values.
#pragma once

#include <cstdint>
#include <string_view>

// Compiled into the caller: keys are short, and the call through the shared library would show.
#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

namespace paracel {

/// Cost: O(key bytes), about 6 ns for a key of 20 characters.
inline std::uint64_t hash_key(std::string_view key) noexcept { return XXH3_64bits(key.data(), key.size()); }

/// 2^14: with 40 servers a partition is 0.25 % of a server's share, fine enough for the load bound of the ring, and one
/// table of owners still fits in a second-level cache.
inline constexpr std::uint32_t partition_count = 16384;

/// The top 14 bits.
constexpr std::uint16_t partition_of(std::uint64_t hash) noexcept { return static_cast<std::uint16_t>(hash >> 50); }

static_assert(partition_of(~std::uint64_t{0}) == partition_count - 1);

}  // namespace paracel
