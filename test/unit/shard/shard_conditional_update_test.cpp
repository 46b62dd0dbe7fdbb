// SPDX-License-Identifier: BSD-3-Clause
//
// update_default and cas on a shard.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "net/protocol.hpp"
#include "test/support/shard_test.hpp"

namespace paracel::srv {
namespace {

using net::status;
using net::verb;
using testing::HasSubstr;
using ShardTest = test::shard_test;

TEST_F(ShardTest, AnUpdateWithADefaultWritesTheDefaultOrUpdatesWhatIsThere) {
  const auto payload = payload_of(view(10), view(1));
  const value_view both{value_tag::none, payload};
  const auto first = call(verb::update_default, "a", both);
  ASSERT_EQ(first.header.result, status::ok) << first.text();
  EXPECT_TRUE(first.body.empty());
  EXPECT_EQ(pull("a"), 10) << "a key that is not there gets the initial value as it is";
  const auto second = call(verb::update_default, "a", both);
  EXPECT_EQ(pull("a"), 11);
  EXPECT_GT(second.header.value_version, first.header.value_version);

  const auto f = function("times_ten_plus_update");
  ASSERT_EQ(call(verb::update_default, "a", both, {.function = f}).header.result, status::ok);
  EXPECT_EQ(pull("a"), 111);
}

TEST_F(ShardTest, AnUpdateWithADefaultMayHaveLargeValues) {
  const std::vector<double> large(20'000, 1.5);
  const auto payload = payload_of(view(large), view(large));
  for (int i = 0; i < 2; ++i)
    ASSERT_EQ(call(verb::update_default, "v", {value_tag::none, payload}).header.result, status::ok);
  EXPECT_EQ(call(verb::pull, "v").doubles(), std::vector<double>(20'000, 3.0));
}

TEST_F(ShardTest, AMalformedUpdateWithADefaultChangesNothing) {
  const auto good = payload_of(view(10), view(1));
  auto longer = good;
  longer.push_back(std::byte{0});
  std::vector<std::byte> with_key;
  net::append_item(with_key, "key", view(1));
  net::append_item(with_key, {}, view(1));
  const double seven = 7;
  const auto no_value = payload_of({value_tag::f64_array, std::as_bytes(std::span(&seven, 1)).first(7)}, view(1));
  for (std::size_t n = 0; n < good.size(); ++n) {
    EXPECT_EQ(call(verb::update_default, "a", {value_tag::none, std::span(good).first(n)}).header.result,
              status::bad_request);
  }
  for (const auto& payload : {longer, with_key, no_value, payload_of(view(1), {})}) {
    EXPECT_EQ(call(verb::update_default, "a", {value_tag::none, payload}).header.result, status::bad_request);
  }
  EXPECT_EQ(call_tail(verb::update_default, "a", value_tag::f64, shared_buffer::allocate(8)).header.result,
            status::bad_request);
  EXPECT_EQ(call(verb::contains, "a").header.result, status::not_found);
}

TEST_F(ShardTest, EachItemOfAMultiUpdateWithDefaultsStandsForItself) {
  push("there", 5);
  const auto payload = payload_of(view(10), view(1));
  const value_view both{value_tag::none, payload};
  const auto items =
      multi(verb::update_default_multi, {{"there", both}, {"new", both}, {"bad", view(3)}, {"new", both}}).items();
  ASSERT_EQ(items.size(), 4U);
  EXPECT_EQ(items[0].result, status::ok);
  EXPECT_EQ(items[1].result, status::ok);
  EXPECT_EQ(items[2].result, status::bad_request);
  EXPECT_EQ(items[3].result, status::ok);
  EXPECT_EQ(pull("there"), 6);
  EXPECT_EQ(pull("new"), 11);
}

TEST_F(ShardTest, CasReplacesTheVersionThatItExpectsAndNoOther) {
  const auto cas = [&](std::uint64_t expected, double d) {
    const auto payload = expecting(expected, view(d));
    return call(verb::cas, "a", {value_tag::f64, payload});
  };
  const auto absent = cas(7, 1);
  EXPECT_EQ(absent.header.result, status::conflict);
  EXPECT_EQ(absent.header.value_version, 0U);
  EXPECT_THAT(absent.text(), HasSubstr("\"a\" does not exist, expected 7"));

  const auto first = cas(0, 1);
  ASSERT_EQ(first.header.result, status::ok);
  EXPECT_GT(first.header.value_version, 0U);
  EXPECT_EQ(pull("a"), 1);

  const auto again = cas(0, 2);
  EXPECT_EQ(again.header.result, status::conflict);
  EXPECT_EQ(again.header.value_version, first.header.value_version);
  EXPECT_EQ(pull("a"), 1);

  ASSERT_EQ(call(verb::update, "a", view(1.0)).header.result, status::ok);
  const auto late = cas(first.header.value_version, 3);
  EXPECT_EQ(late.header.result, status::conflict) << "an update gives a new version";
  const auto right = cas(late.header.value_version, 3);
  EXPECT_EQ(right.header.result, status::ok);
  EXPECT_GT(right.header.value_version, late.header.value_version);
  EXPECT_EQ(pull("a"), 3);

  call(verb::remove, "a");
  EXPECT_EQ(cas(right.header.value_version, 4).header.result, status::conflict);
  EXPECT_EQ(cas(0, 5).header.result, status::ok);
  EXPECT_EQ(stats()["shards"][0]["failures"], 0) << "a conflict is an answer, not a failure";
}

TEST_F(ShardTest, CasTakesALargeValueInItsOwnFrame) {
  const std::vector<double> large(20'000, 1.5);
  const auto tail = [&] {
    auto b = shared_buffer::allocate(large.size() * sizeof(double));
    std::memcpy(b.mutable_data(), large.data(), b.size());
    return b;
  };
  const auto version_only = expecting(0, {});
  const value_view payload{value_tag::f64_array, version_only};
  ASSERT_EQ(call(verb::cas, "v", payload, {.tail = tail()}).header.result, status::ok);
  EXPECT_EQ(call(verb::cas, "v", payload, {.tail = tail()}).header.result, status::conflict);
  EXPECT_EQ(call(verb::pull, "v").doubles(), large);
  EXPECT_EQ(call_tail(verb::cas, "w", value_tag::f64_array, tail()).header.result, status::bad_request) << "no version";
  const auto both = expecting(0, view(1));
  EXPECT_EQ(call(verb::cas, "w", {value_tag::f64_array, both}, {.tail = tail()}).header.result, status::bad_request);
  EXPECT_EQ(call(verb::cas, "w", {value_tag::f64, std::span(both).first(7)}).header.result, status::bad_request);
  EXPECT_EQ(call(verb::cas, "w", {value_tag::f64, std::span(both).first(12)}).header.result, status::bad_request);
  EXPECT_EQ(call(verb::contains, "w").header.result, status::not_found);
}

}  // namespace
}  // namespace paracel::srv
