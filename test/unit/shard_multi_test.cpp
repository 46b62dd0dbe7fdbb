// SPDX-License-Identifier: BSD-3-Clause
//
// Requests of many keys on a shard.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "net/protocol.hpp"
#include "test/support/shard_test.hpp"

namespace paracel::srv {
namespace {

using net::status;
using net::verb;
using testing::HasSubstr;
using ShardTest = test::shard_test;

TEST_F(ShardTest, AMultiRequestAnswersAnItemForEachKeyInOrder) {
  std::vector<std::string> keys;
  std::vector<double> values;
  for (int i = 0; i < 100; ++i) {
    keys.push_back("key" + std::to_string(i));
    values.push_back(i);
  }
  std::vector<std::pair<std::string, value_view>> push_items, pull_items;
  for (int i = 0; i < 100; ++i) {
    push_items.emplace_back(keys[i], view(values[i]));
    pull_items.emplace_back(i % 2 == 0 ? keys[i] : "missing" + std::to_string(i), value_view{});
  }
  const auto pushed = multi(verb::push_multi, push_items);
  EXPECT_EQ(pushed.header.count, 100U);
  for (const auto& i : pushed.items()) EXPECT_EQ(i.result, status::ok);
  const auto items = multi(verb::pull_multi, pull_items).items();
  ASSERT_EQ(items.size(), 100U);
  for (int i = 0; i < 100; ++i) {
    if (i % 2 != 0) {
      EXPECT_EQ(items[i].result, status::not_found);
      continue;
    }
    ASSERT_EQ(items[i].value.size(), 8U);
    double d = 0;
    std::memcpy(&d, items[i].value.data(), 8);
    EXPECT_EQ(d, i);
    EXPECT_EQ(items[i].tag, value_tag::f64);
  }
}

TEST_F(ShardTest, EachItemOfAMultiUpdateSucceedsOrFailsByItself) {
  const std::vector<double> vector{1, 2};
  push("a", 1);
  push("b", 1);
  const auto items =
      multi(verb::bupdate_multi, {{"a", view(1.0)}, {"b", view(vector)}, {"a", view(1.0)}, {"c", view(7.0)}}).items();
  ASSERT_EQ(items.size(), 4U);
  EXPECT_EQ(items[0].result, status::ok);
  EXPECT_EQ(items[1].result, status::type_mismatch);
  EXPECT_THAT(std::string(net::text_of(items[1].value)), HasSubstr("key \"b\""));
  EXPECT_EQ(items[3].result, status::ok);
  EXPECT_EQ(pull("a"), 3) << "the same key twice is two updates";
  EXPECT_EQ(pull("b"), 1);
  EXPECT_EQ(pull("c"), 7);
}

TEST_F(ShardTest, TheOtherMultiFormsDoWhatTheirSingleFormsDo) {
  push("a", 1);
  auto items = multi(verb::contains_multi, {{"a", {}}, {"b", {}}}).items();
  EXPECT_EQ(items[0].result, status::ok);
  EXPECT_EQ(items[1].result, status::not_found);
  items = multi(verb::update_multi, {{"a", view(1.0)}, {"b", view(2.0)}}).items();
  EXPECT_TRUE(items[0].value.empty());
  EXPECT_EQ(pull("a"), 2);
  items = multi(verb::remove_multi, {{"a", {}}, {"x", {}}, {"b", {}}}).items();
  EXPECT_EQ(items[0].result, status::ok);
  EXPECT_EQ(items[1].result, status::not_found);
  EXPECT_EQ(items[2].result, status::ok);
  EXPECT_EQ(stats()["keys"], 0);
}

TEST_F(ShardTest, AMalformedMultiRequestChangesNothing) {
  net::request_header h;
  h.what = verb::push_multi;
  h.count = 2;
  std::vector<std::byte> body;
  net::append_item(body, "a", view(1.0));
  net::append_item(body, "b", view(1.0));
  body.pop_back();
  EXPECT_EQ(send(h, body, {}).header.result, status::bad_request);
  EXPECT_EQ(call(verb::contains, "a").header.result, status::not_found);
}

TEST_F(ShardTest, ItemsThatDoNotFitTheCreditSaySoAndTheOthersCome) {
  for (const auto* key : {"a", "b", "c"}) {
    ASSERT_EQ(call(verb::push, key, view(std::vector<double>(10))).header.result, status::ok);
  }
  const auto a = multi(verb::pull_multi, {{"a", {}}, {"b", {}}, {"c", {}}}, {.credit = 3 * 16 + 170});
  EXPECT_LE(a.body.size(), 3U * 16 + 170);
  const auto items = a.items();
  EXPECT_EQ(items[0].value.size(), 80U);
  EXPECT_EQ(items[1].value.size(), 80U);
  EXPECT_EQ(items[2].result, status::too_large);
}

}  // namespace
}  // namespace paracel::srv
