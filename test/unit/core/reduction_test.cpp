// SPDX-License-Identifier: BSD-3-Clause
#include "core/reduction.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <paracel/error.hpp>

namespace paracel {
namespace {

template <class T>
std::vector<T> folded(value_tag element, std::vector<T> into, const std::vector<T>& from, reduce_op op) {
  fold(element, std::as_writable_bytes(std::span(into)), std::as_bytes(std::span(from)), op);
  return into;
}

TEST(Reduction, CombinesEveryTypeElementByElement) {
  const auto check = [&]<class T>(T, value_tag element) {
    const std::vector<T> a{1, -5, 7};
    const std::vector<T> b{4, -6, 7};
    EXPECT_EQ(folded(element, a, b, reduce_op::sum), (std::vector<T>{5, -11, 14}));
    EXPECT_EQ(folded(element, a, b, reduce_op::max), (std::vector<T>{4, -5, 7}));
    EXPECT_EQ(folded(element, a, b, reduce_op::min), (std::vector<T>{1, -6, 7}));
    EXPECT_EQ(folded(element, std::vector<T>{}, {}, reduce_op::sum), std::vector<T>{});
  };
  check(std::int32_t{}, value_tag::i32);
  check(std::int64_t{}, value_tag::i64);
  check(float{}, value_tag::f32);
  check(double{}, value_tag::f64);
}

TEST(Reduction, ANanOnEitherSideIsTheMaximumAndTheMinimum) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto op : {reduce_op::max, reduce_op::min}) {
    const auto r = folded<double>(value_tag::f64, {nan, 1}, {1, nan}, op);
    EXPECT_TRUE(std::isnan(r[0]) && std::isnan(r[1])) << static_cast<int>(op);
  }
}

TEST(Reduction, IntegerSumsWrapAround) {
  using limits = std::numeric_limits<std::int64_t>;
  EXPECT_EQ(folded<std::int64_t>(value_tag::i64, {limits::max()}, {1}, reduce_op::sum).front(), limits::min());
}

TEST(Reduction, TakesAnyAlignment) {
  std::vector<std::byte> into(17);
  std::vector<std::byte> from(19);
  const std::vector<double> a{1, 2};
  const std::vector<double> b{10, 20};
  std::memcpy(into.data() + 1, a.data(), 16);
  std::memcpy(from.data() + 3, b.data(), 16);
  fold(value_tag::f64, std::span(into).subspan(1), std::span(from).subspan(3), reduce_op::sum);
  std::vector<double> sum(2);
  std::memcpy(sum.data(), into.data() + 1, 16);
  EXPECT_EQ(sum, (std::vector<double>{11, 22}));
}

TEST(Reduction, RefusesOtherLengthsAndTypes) {
  std::vector<std::byte> bytes(12);
  const std::span whole(bytes);
  EXPECT_THROW(fold(value_tag::f64, whole.first(8), whole.first(4), reduce_op::sum), error);
  EXPECT_THROW(fold(value_tag::f64, whole, whole, reduce_op::sum), error) << "one and a half elements";
  EXPECT_THROW(fold(value_tag::packed, whole, whole, reduce_op::sum), error);
  EXPECT_THROW(fold(value_tag::none, whole, whole, reduce_op::sum), error);
}

}  // namespace
}  // namespace paracel
