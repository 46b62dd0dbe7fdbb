// SPDX-License-Identifier: BSD-3-Clause
#include "core/hash.hpp"

#include <string>

#include <gtest/gtest.h>

#include "core/hex.hpp"

namespace paracel {
namespace {

// Computed with the library's XXH3_64bits through Python's ctypes. If any of them changes, every key moves.
TEST(Hash, HasTheValuesOfXxh3) {
  EXPECT_EQ(hash_key(""), 0x2d06800538d394c2U);  // also in the specification of XXH3
  EXPECT_EQ(hash_key("a"), 0xe6c632b61e964e1fU);
  EXPECT_EQ(hash_key("theta"), 0x1a57641e115cb84fU);
  EXPECT_EQ(hash_key("lr_theta"), 0x9fa364f7e7c49fc3U);
  EXPECT_EQ(hash_key("worker_12345678901234567890"), 0xbac917012bfc8eb8U);
  std::string all(256, '\0');
  for (int i = 0; i < 256; ++i) all[static_cast<std::size_t>(i)] = static_cast<char>(i);
  EXPECT_EQ(hash_key(all), 0x9408a4433b952d71U);
  EXPECT_EQ(hash_key(std::string(1000, 'x')), 0xc0a4877b962cba82U);
}

TEST(Hash, DoesNotDependOnTheAlignmentOfTheKey) {
  const std::string key = "worker_12345678901234567890";
  for (std::size_t shift = 0; shift < 8; ++shift) {
    const auto shifted = std::string(shift, '-') + key;
    EXPECT_EQ(hash_key(std::string_view(shifted).substr(shift)), hash_key(key)) << shift;
  }
}

TEST(Hash, TheTopFourteenBitsNameThePartition) {
  EXPECT_EQ(partition_of(0), 0);
  EXPECT_EQ(partition_of((std::uint64_t{1} << 50) - 1), 0);
  EXPECT_EQ(partition_of(std::uint64_t{1} << 50), 1);
  EXPECT_EQ(partition_of(~std::uint64_t{0}), partition_count - 1);
  EXPECT_EQ(partition_of(hash_key("theta")), 1685);
  EXPECT_EQ(partition_of(hash_key("lr_theta")), 10216);
}

TEST(Hex, AnIdSurvivesTheWayThroughText) {
  EXPECT_EQ(to_hex(0x00c0ffee12345678U), "00c0ffee12345678");
  EXPECT_EQ(to_hex(~std::uint64_t{0}), "ffffffffffffffff");
  for (const std::uint64_t id : {std::uint64_t{0}, std::uint64_t{1}, 0x8000000000000000U, ~std::uint64_t{0}}) {
    EXPECT_EQ(from_hex(to_hex(id)), id);
  }
  EXPECT_EQ(from_hex("00C0FFEE12345678"), 0x00c0ffee12345678U);
}

TEST(Hex, AnythingButSixteenDigitsIsRefused) {
  for (const char* text : {"", "0", "00c0ffee1234567", "00c0ffee123456789", "0x00ffee12345678", "00c0ffee1234567g",
                           " 0c0ffee12345678", "-0c0ffee12345678", "+0c0ffee12345678"}) {
    EXPECT_EQ(from_hex(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace paracel
