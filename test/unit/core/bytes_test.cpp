// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/detail/bytes.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace paracel {
namespace {

byte_vector bytes_of_numbers(std::initializer_list<int> of) {
  byte_vector out;
  for (const int b : of) out.push_back(static_cast<std::byte>(b));
  return out;
}

TEST(Bytes, FieldsLieOneAfterTheOtherWithoutGaps) {
  byte_vector out;
  put_fields(out, std::uint8_t{1}, std::uint32_t{0x05040302}, std::array<std::uint8_t, 2>{6, 7});
  put_bytes(out, std::uint16_t{0x0908});
  const std::array<std::uint16_t, 2> list{0x0b0a, 0x0d0c};
  put_bytes(out, list.data(), list.size());
  put_bytes(out, list.data(), 0);
  EXPECT_EQ(out, bytes_of_numbers({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}));
}

TEST(Bytes, StoredFieldsAreLoadedAgainAndSayWhereTheyEnd) {
  std::array<std::byte, 13> memory{};
  EXPECT_EQ(store_fields(memory.data(), -1.5, std::int32_t{-7}, 'x'), memory.data() + 13);
  double d = 0;
  std::int32_t i = 0;
  EXPECT_EQ(load_fields(memory.data(), d, i), memory.data() + 12);
  EXPECT_EQ(d, -1.5);
  EXPECT_EQ(i, -7);
  EXPECT_EQ(load_field<char>(memory.data() + 12), 'x');
}

TEST(Bytes, FieldsAreTakenAllOrNone) {
  const auto some = bytes_of_numbers({1, 0, 2, 0, 3});
  std::span<const std::byte> rest(some);
  std::uint16_t a = 9;
  std::uint32_t b = 9;
  EXPECT_FALSE(take_fields(rest, a, b));
  EXPECT_EQ(rest.size(), 5U);
  EXPECT_EQ(a, 9);
  EXPECT_EQ(b, 9U);
  std::uint16_t c = 0;
  EXPECT_TRUE(take_fields(rest, a, c));
  EXPECT_EQ(a, 1);
  EXPECT_EQ(c, 2);
  EXPECT_EQ(rest.size(), 1U);
}

TEST(Bytes, AReaderThrowsAtTheEndAndReadsNothingBeyondIt) {
  const auto some = bytes_of_numbers({9, 9, 1, 0, 2, 0, 3});
  byte_reader in(some, 2);
  EXPECT_EQ(in.get<std::uint16_t>(), 1);
  EXPECT_EQ(in.size(), 3U);
  EXPECT_THROW((void)in.get<std::uint32_t>(), protocol_error);
  std::vector<std::uint16_t> list;
  EXPECT_THROW(in.get(list, 2), protocol_error);
  EXPECT_THROW(in.get(list, std::numeric_limits<std::size_t>::max()), protocol_error);
  EXPECT_THROW((void)in.rest<std::uint16_t>(), protocol_error);
  in.get(list, 1);
  EXPECT_EQ(list, std::vector<std::uint16_t>{2});
  EXPECT_EQ(in.rest<std::uint8_t>(), std::vector<std::uint8_t>{3});
  EXPECT_TRUE(in.empty());
  EXPECT_TRUE(in.rest<std::uint64_t>().empty());
  EXPECT_THROW(byte_reader(some, 8), protocol_error);
}

}  // namespace
}  // namespace paracel
