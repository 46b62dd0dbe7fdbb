// SPDX-License-Identifier: BSD-3-Clause
#include "core/number_parsing.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace paracel {
namespace {

TEST(ByteCount, TakesDigitsAndOneUnit) {
  const std::pair<const char*, std::uint64_t> good[] = {
      {"0", 0},
      {"1000000", 1000000},
      {"64K", 65536},
      {"256M", 268435456},
      {"1G", 1073741824},
      {"4T", std::uint64_t{4} << 40},
      {"18446744073709551615", std::numeric_limits<std::uint64_t>::max()},
      {"16777215T", std::uint64_t{16777215} << 40},
  };
  for (const auto& [text, bytes] : good) {
    std::uint64_t read = 1;
    EXPECT_TRUE(read_byte_count(text, read)) << text;
    EXPECT_EQ(read, bytes) << text;
  }
}

TEST(ByteCount, RefusesWhatIsNoneOrDoesNotFit) {
  for (const char* text : {"", "K", "-1", "+1", "1.5G", "2GB", "2g", "1 G", " 1", "1e9", "0x10", "KG", "1KK",
                           "18446744073709551616", "16777216T", "18014398509481984K"}) {
    std::uint64_t read = 7;
    EXPECT_FALSE(read_byte_count(text, read)) << text;
    EXPECT_EQ(read, 7U) << text;
  }
}

}  // namespace
}  // namespace paracel
