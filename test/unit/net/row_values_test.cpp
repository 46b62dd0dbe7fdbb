// SPDX-License-Identifier: BSD-3-Clause
//
// Rows as f16 and i8: their bytes, what rounding may change, and numbers that have no such form.
#include "net/row_values.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace paracel::net {
namespace {

using bytes = std::vector<std::byte>;

template <class T>
bytes quantised(wire_format f, const std::vector<T>& row) {
  bytes out(wire_bytes(f, tag_of<T>(), row.size()));
  quantise(f, tag_of<T>(), reinterpret_cast<const std::byte*>(row.data()), row.size(), out.data());
  return out;
}
template <class T>
std::vector<T> read_back(wire_format f, const bytes& from, std::size_t width) {
  std::vector<T> out(width);
  dequantise(f, tag_of<T>(), from.data(), 1, width, reinterpret_cast<std::byte*>(out.data()));
  return out;
}
template <class T>
std::optional<double> beyond_of(wire_format f, const std::vector<T>& row) {
  return beyond(f, tag_of<T>(), reinterpret_cast<const std::byte*>(row.data()), row.size());
}
std::string shown(const bytes& b) {
  std::string out;
  for (const auto x : b) {
    constexpr const char* digits = "0123456789abcdef";
    out += digits[std::to_integer<unsigned>(x) >> 4U];
    out += digits[std::to_integer<unsigned>(x) & 15U];
  }
  return out;
}

// Changed bytes here are another protocol version.
TEST(RowValues, TheBytesOfTheFormats) {
  EXPECT_EQ(flag_f16, 2048);
  EXPECT_EQ(flag_i8, 4096);
  EXPECT_EQ(shown(quantised<float>(wire_format::f16, {1, -2, 0.5F, 65504})), "003c00c00038ff7b");
  EXPECT_EQ(shown(quantised<double>(wire_format::f16, {1, -2, 0.5, 65504})), "003c00c00038ff7b");
  // The scale is 1.
  EXPECT_EQ(shown(quantised<float>(wire_format::i8, {127, -127, 1, -1, 0, 0.4F, 2.5F})), "0000803f7f8101ff000002");
  EXPECT_EQ(shown(quantised<double>(wire_format::i8, {127, -127, 1, -1, 0, 0.4, 2.5})), "0000803f7f8101ff000002");
  EXPECT_EQ(wire_bytes(wire_format::full, value_tag::f64, 5), 40U);
  EXPECT_EQ(wire_bytes(wire_format::f16, value_tag::f64, 5), 10U);
  EXPECT_EQ(wire_bytes(wire_format::i8, value_tag::f32, 5), 9U);
  EXPECT_EQ(format_of(flag_f16 | flag_gaps), wire_format::f16);
  EXPECT_EQ(format_of(flag_i8), wire_format::i8);
  EXPECT_EQ(format_of(flag_listed), wire_format::full);
  EXPECT_EQ(format_of(flag_f16 | flag_i8), std::nullopt);
}

template <class T>
void rounds_to_nearest(unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  for (int turn = 0; turn < 300; ++turn) {
    const auto width = 1 + random() % 100;
    const auto unit = std::ldexp(1.0, static_cast<int>(random() % 20) - 10);
    std::vector<T> row(width);
    T greatest = 0;
    for (auto& x : row) {
      x = static_cast<T>(normal(random) * unit);
      greatest = std::max(greatest, std::abs(x));
    }
    const auto halves = read_back<T>(wire_format::f16, quantised(wire_format::f16, row), width);
    const auto eighths = read_back<T>(wire_format::i8, quantised(wire_format::i8, row), width);
    for (std::size_t j = 0; j < width; ++j) {
      ASSERT_LE(std::abs(halves[j] - row[j]), std::max(std::abs(row[j]) * 0x1p-11, 0x1p-25)) << row[j];
      ASSERT_LE(std::abs(eighths[j] - row[j]), greatest / 254 * (1 + 1e-5)) << row[j] << " of " << greatest;
    }
    // What has been rounded once stays what it is.
    ASSERT_EQ(read_back<T>(wire_format::f16, quantised(wire_format::f16, halves), width), halves);
  }
}

TEST(RowValues, FloatsAreRoundedToTheNearest) { rounds_to_nearest<float>(1); }
TEST(RowValues, DoublesAreRoundedToTheNearest) { rounds_to_nearest<double>(2); }

template <class T>
void extremes() {
  constexpr auto infinity = std::numeric_limits<T>::infinity();
  constexpr auto nan = std::numeric_limits<T>::quiet_NaN();
  using row = std::vector<T>;
  const auto halves =
      read_back<T>(wire_format::f16, quantised<T>(wire_format::f16, {infinity, -infinity, nan, 70000, -1e30F, 3}), 6);
  EXPECT_EQ(halves[0], infinity);
  EXPECT_EQ(halves[1], -infinity);
  EXPECT_TRUE(std::isnan(halves[2]));
  EXPECT_EQ(row(halves.begin() + 3, halves.end()), (row{65504, -65504, 3})) << "the greatest, not infinity";
  for (const auto x : {infinity, -infinity, nan}) {
    for (const auto y : read_back<T>(wire_format::i8, quantised<T>(wire_format::i8, {1, x, 2}), 3))
      EXPECT_TRUE(std::isnan(y));
  }
  const auto zeros = read_back<T>(wire_format::i8, quantised<T>(wire_format::i8, {0, static_cast<T>(-0.0)}), 2);
  EXPECT_EQ(zeros, (row{0, 0}));
  EXPECT_EQ(read_back<T>(wire_format::i8, quantised<T>(wire_format::i8, {static_cast<T>(1.4e-36), 0}), 2), (row{0, 0}));
  const auto small = read_back<T>(wire_format::i8, quantised<T>(wire_format::i8, {static_cast<T>(1.6e-36), 0}), 2);
  EXPECT_NEAR(static_cast<double>(small[0]) * 1e36, 1.6, 0.01);
  constexpr auto greatest = std::numeric_limits<float>::max();
  EXPECT_NEAR(
      static_cast<double>(read_back<T>(wire_format::i8, quantised<T>(wire_format::i8, {greatest}), 1)[0] / greatest), 1,
      1e-6);

  EXPECT_EQ(beyond_of<T>(wire_format::f16, {1, 65519, nan, infinity}), std::nullopt);
  EXPECT_EQ(beyond_of<T>(wire_format::f16, {1, nan, -65520, 80000}), -65520.0);
  EXPECT_EQ(beyond_of<T>(wire_format::i8, {1, greatest, nan, infinity}), std::nullopt);
}

TEST(RowValues, NumbersThatAreNotFiniteTooLargeOrTooSmall) {
  extremes<float>();
  extremes<double>();
  EXPECT_EQ(beyond_of<double>(wire_format::i8, {1, -1e41}), -1e41);
  const auto saturated =
      read_back<double>(wire_format::i8, quantised<double>(wire_format::i8, {1e300, -1e300, 1e38}), 3);
  EXPECT_NEAR(saturated[0], 127.0 * std::numeric_limits<float>::max(), 1e33);
  EXPECT_EQ(saturated[1], -saturated[0]);
  EXPECT_EQ(saturated[2], 0);
}

}  // namespace
}  // namespace paracel::net
