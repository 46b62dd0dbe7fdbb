// SPDX-License-Identifier: BSD-3-Clause
//
// Row ids that are encoded as gaps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "net/row_codec.hpp"

namespace {

using namespace paracel;
using ids = std::vector<std::uint64_t>;
using bytes = std::vector<std::byte>;
using testing::HasSubstr;

std::size_t width_of(const ids& list) {
  return net::width_of_gaps(list.size(), [&](std::size_t k) { return list[k]; });
}

bytes written(const ids& list, std::size_t width) {
  bytes out(net::gaps_bytes(list.size(), width), std::byte{0xff});
  net::write_gaps(out.data(), list.size(), width, [&](std::size_t k) { return list[k]; });
  return out;
}

std::string refusal_of(std::span<const std::byte> payload, std::uint32_t count, std::size_t row_bytes = 0) {
  ids found;
  net::rows_view r;
  const auto* wrong = net::decode_gaps(payload, count, row_bytes, found, r);
  return wrong == nullptr ? "" : wrong;
}

ids from(std::uint64_t first, std::size_t count, std::uint64_t gap) {
  ids list(count);
  for (std::size_t k = 0; k < count; ++k) list[k] = first + k * gap;
  return list;
}

TEST(IdGaps, AreAsWideAsTheWidestOfThem) {
  EXPECT_EQ(width_of(from(7, 100, 1)), 1U);
  EXPECT_EQ(width_of(from(7, 100, 255)), 1U);
  EXPECT_EQ(width_of(from(7, 100, 256)), 2U);
  EXPECT_EQ(width_of(from(7, 100, 65535)), 2U);
  EXPECT_EQ(width_of(from(7, 100, 65536)), 4U);
  EXPECT_EQ(width_of(from(7, 100, 0xffffffff)), 4U);
  EXPECT_EQ(width_of(from(7, 100, 0)), 1U) << "the same id again and again";
  auto one_wide = from(7, 1000, 3);
  for (std::size_t k = 700; k < 1000; ++k) one_wide[k] += 70'000;
  EXPECT_EQ(width_of(one_wide), 4U);
}

TEST(IdGaps, AreNotUsedWhereIdsFallOrAreNoLonger) {
  EXPECT_EQ(width_of({}), 0U);
  EXPECT_EQ(width_of({5}), 0U);
  EXPECT_EQ(width_of({5, 6, 7}), 0U) << "24 bytes either way";
  EXPECT_EQ(width_of({5, 6, 7, 8}), 1U);
  EXPECT_EQ(width_of(from(7, 100, 0x100000000)), 0U);
  for (const std::size_t at : {1U, 63U, 64U, 65U, 199U}) {
    auto falls = from(1000, 200, 2);
    falls[at] -= 3;
    EXPECT_EQ(width_of(falls), 0U) << at;
  }
  auto around = from(std::numeric_limits<std::uint64_t>::max() - 50, 100, 1);
  EXPECT_EQ(around.back(), 48U);
  EXPECT_EQ(width_of(around), 0U);
}

TEST(IdGaps, LieOnTheWireAsDocumented) {
  bytes expected(24, std::byte{0});
  const std::uint64_t first = 0x0102030405060708;
  std::memcpy(expected.data(), &first, sizeof first);
  expected[8] = std::byte{2};
  expected[16] = std::byte{0x34};
  expected[17] = std::byte{0x12};
  expected[20] = std::byte{1};
  EXPECT_EQ(written({first, first + 0x1234, first + 0x1234, first + 0x1235}, 2), expected);
}

TEST(IdGaps, ComeBackAsTheyWere) {
  std::mt19937_64 dice(4);
  for (int turn = 0; turn < 300; ++turn) {
    const std::uint64_t most = std::uint64_t{1} << (dice() % 33);
    ids list(4 + dice() % 300);
    list[0] = turn % 7 == 0 ? std::numeric_limits<std::uint64_t>::max() - (most - 1) * list.size() : dice() >> 2;
    for (std::size_t k = 1; k < list.size(); ++k) list[k] = list[k - 1] + dice() % most;
    const auto width = width_of(list);
    if (width == 0) continue;
    auto payload = written(list, width);
    const std::size_t row_bytes = turn % 2 == 0 ? 0 : 12;
    for (std::size_t k = 0; k < list.size() * row_bytes; ++k) payload.push_back(static_cast<std::byte>(k));
    ids found;
    net::rows_view r;
    ASSERT_STREQ(net::decode_gaps(payload, static_cast<std::uint32_t>(list.size()), row_bytes, found, r), nullptr);
    EXPECT_EQ(found, list);
    EXPECT_EQ(r.id(list.size() - 1), list.back());
    EXPECT_EQ(r.values.size(), list.size() * row_bytes);
  }
}

TEST(IdGaps, ThatAreMalformedAreRefused) {
  const auto right = written(from(9, 6, 1000), 2);
  ASSERT_EQ(right.size(), 32U);
  EXPECT_EQ(refusal_of(right, 6), "");
  EXPECT_THAT(refusal_of(right, 0), HasSubstr("begin with an id"));
  EXPECT_THAT(refusal_of(std::span(right).first(15), 6), HasSubstr("begin with an id"));
  EXPECT_THAT(refusal_of(std::span(right).first(24), 6), HasSubstr("do not fit"));
  EXPECT_THAT(refusal_of(right, 6, 4), HasSubstr("do not fit"));
  EXPECT_THAT(refusal_of(right, 10), HasSubstr("do not fit"));
  EXPECT_THAT(refusal_of(right, 0xffffffff), HasSubstr("more rows"));
  for (const unsigned width : {0U, 3U, 8U}) {
    auto wrong = right;
    wrong[8] = static_cast<std::byte>(width);
    EXPECT_THAT(refusal_of(wrong, 6), HasSubstr("1, 2 or 4 bytes")) << width;
  }
  auto wrong = right;
  wrong[13] = std::byte{1};
  EXPECT_THAT(refusal_of(wrong, 6), HasSubstr("1, 2 or 4 bytes"));
  wrong = right;
  wrong[31] = std::byte{1};
  EXPECT_THAT(refusal_of(wrong, 6), HasSubstr("zeros"));
  wrong = right;
  std::fill_n(wrong.begin(), 8, std::byte{0xff});
  EXPECT_THAT(refusal_of(wrong, 6), HasSubstr("exceed 64 bits"));
}

}  // namespace
