// SPDX-License-Identifier: BSD-3-Clause
#include "core/number_parsing.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <paracel/text_input.hpp>

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

TEST(ReadNumber, TellsNumbersThatAreTooLargeFromThoseThatAreTooSmall) {
  const std::string zeros(400, '0');
  for (const std::string& text :
       std::vector<std::string>{"1e-400", "-1.5e-400", "0.5E-330", "0." + zeros + "1", "0." + zeros + "1e10",
                                "1" + zeros + "e-800", "1e-99999999999999999999", "1e-340"}) {
    double v = 7;
    EXPECT_TRUE(read_whole_number(text, v)) << text;
    EXPECT_EQ(v, 0) << text;
  }
  double least = 0;
  EXPECT_TRUE(read_whole_number("5e-324", least));
  EXPECT_EQ(least, std::numeric_limits<double>::denorm_min());
  for (const std::string& text :
       std::vector<std::string>{"1e400", "-1.5e400", "0.5E+400", "1" + zeros, "1" + zeros + ".5", "1" + zeros + "e-10",
                                "0." + zeros + "1e800", "1e99999999999999999999", "1e309"}) {
    const auto reading = read_number(text.data(), text.data() + text.size());
    EXPECT_EQ(reading.outcome, number_outcome::not_finite) << text;
    EXPECT_EQ(reading.end, text.data() + text.size()) << text;
  }
}

TEST(ParseNumber, IsTheSameForAllTextFormats) {
  double v = 7;
  for (const auto& [text, want] : {std::pair("1", 1.0), {"+1", 1.0}, {"-.5", -0.5}, {"1e-400", 0.0}, {"2e3", 2000.0}}) {
    EXPECT_TRUE(parse_number(text, v)) << text;
    EXPECT_EQ(v, want);
    float f = 7;
    EXPECT_TRUE(parse_number(text, f)) << text;
    EXPECT_EQ(f, static_cast<float>(want));
  }
  for (const char* text : {"", "+", "+-1", "1x", " 1", "1 ", "nan", "inf", "1e999", "0x1"}) {
    float f = 7;
    v = 7;
    EXPECT_FALSE(parse_number(text, v) || parse_number(text, f)) << text;
    EXPECT_EQ(v + f, 14) << text;
  }
  float f = 7;
  for (const auto& [text, want] : {std::pair("1e-60", 0.0F),
                                   {"-1e-46", -0.0F},
                                   {"1.4e-45", 0x1p-149F},
                                   {"+1.1e-38", 1.1e-38F},
                                   {"3.4028235e38", 0x1.fffffep127F}}) {
    f = 7;
    EXPECT_TRUE(parse_number(text, f)) << text;
    EXPECT_EQ(f, want) << text;
  }
  for (const char* text : {"1e39", "-1e39", "3.4028236e38", "1e400"}) EXPECT_FALSE(parse_number(text, f)) << text;
}

TEST(ParseId, TakesDigitsAlone) {
  std::uint64_t id = 0;
  EXPECT_TRUE(parse_id("18446744073709551615", id));
  EXPECT_EQ(id, std::numeric_limits<std::uint64_t>::max());
  EXPECT_TRUE(parse_id("007", id));
  EXPECT_EQ(id, 7U);
  for (const char* text : {"", "+1", "-1", "1.0", "18446744073709551616", " 1"})
    EXPECT_FALSE(parse_id(text, id)) << text;
  EXPECT_EQ(id, 7U);
}

}  // namespace
}  // namespace paracel
