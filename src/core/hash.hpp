// SPDX-License-Identifier: BSD-3-Clause
//
// The one hash of the framework: XXH3-64 of the key's bytes. The top 14 bits name the partition, the low bits index the
// partition's table. Every process of a job and every snapshot must agree on it: test/unit/core/hash_test.cpp pins its
// values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

// Inlined into the caller: keys are short, and a call through the shared library would be noticeable.
#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

namespace paracel {

/// Cost: O(key bytes), about 6 ns for a key of 20 characters.
inline std::uint64_t hash_key(std::string_view key) noexcept { return XXH3_64bits(key.data(), key.size()); }

/// XXH3-128, for content digests: a collision of two lists of keys is not to be expected in the life of a job.
struct digest128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const digest128&, const digest128&) = default;
};
inline digest128 digest_of(std::span<const std::byte> bytes) noexcept {
  const auto d = XXH3_128bits(bytes.data(), bytes.size());
  return {d.low64, d.high64};
}

/// XXH3-64 of a block of a file, seeded with the `front` that precedes it, so that both are verified.
inline std::uint64_t hash_block(std::span<const std::byte> bytes, std::uint64_t front) noexcept {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), front);
}
/// Incremental XXH3-64: of a whole file, as `xxhsum -H3` prints it.
class running_hash {
 public:
  running_hash() noexcept { XXH3_64bits_reset(&state_); }
  void add(std::span<const std::byte> bytes) noexcept { XXH3_64bits_update(&state_, bytes.data(), bytes.size()); }
  [[nodiscard]] std::uint64_t value() const noexcept { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

/// 2^14: with 40 servers a partition is 0.25 % of a server's share, fine enough for the load bound of the ring, and a
/// table of owners still fits in a second-level cache.
inline constexpr std::uint32_t partition_count = 16384;

/// The top 14 bits.
constexpr std::uint16_t partition_of(std::uint64_t hash) noexcept { return static_cast<std::uint16_t>(hash >> 50); }

static_assert(partition_of(~std::uint64_t{0}) == partition_count - 1);

}  // namespace paracel
