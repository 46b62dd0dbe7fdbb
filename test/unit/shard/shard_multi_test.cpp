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

TEST_F(ShardTest, AUniformReplyHasTheValuesOfTheItemsItStandsFor) {
  const auto ask = [&](verb what, const std::vector<std::pair<std::string, value_view>>& items, std::uint16_t flags) {
    return multi(what, items, {.flags = flags});
  };
  const auto numbers = [](const auto& a) {
    std::vector<double> n(a.body.size() / sizeof(double));
    if (!n.empty()) std::memcpy(n.data(), a.body.data(), a.body.size());
    return n;
  };
  constexpr auto uniform = net::flag_uniform_reply;
  const std::vector<std::pair<std::string, value_view>> abc{{"a", {}}, {"b", {}}, {"a", {}}, {"c", {}}};
  const auto with = [](double one, double two, double three, double four) {
    static std::vector<double> v;
    v = {one, two, three, four};
    return std::vector<std::pair<std::string, value_view>>{
        {"a", view(v[0])}, {"b", view(v[1])}, {"a", view(v[2])}, {"c", view(v[3])}};
  };
  auto a = ask(verb::update_multi, with(1, 2, 3, 4), uniform);
  EXPECT_EQ(a.header.flags, 0) << "the keys did not exist";
  EXPECT_EQ(a.items().size(), 4U);
  a = ask(verb::pull_multi, abc, uniform);
  EXPECT_EQ(a.header.flags, net::reply_uniform);
  EXPECT_EQ(a.header.count, 4U);
  EXPECT_EQ(a.header.tag, value_tag::f64);
  EXPECT_EQ(numbers(a), (std::vector<double>{4, 2, 4, 4}));
  EXPECT_EQ(ask(verb::pull_multi, abc, 0).items().size(), 4U) << "who does not ask for it gets items";
  a = ask(verb::update_multi, with(1, 1, 1, 1), uniform);
  EXPECT_EQ(a.header.flags, net::reply_uniform);
  EXPECT_TRUE(a.body.empty());
  a = ask(verb::bupdate_multi, with(1, 1, 10, 1), uniform);
  EXPECT_EQ(numbers(a), (std::vector<double>{7, 4, 17, 6})) << "the same key twice is two updates";
  a = ask(verb::push_multi, with(1, 2, 3, 4), uniform);
  EXPECT_EQ(a.header.flags, net::reply_uniform);
  EXPECT_EQ(numbers(ask(verb::pull_multi, abc, uniform)), (std::vector<double>{3, 2, 3, 4}));

  // Values of different kinds, missing keys, malformed requests: as without the flag.
  const std::vector<double> vector{1, 2};
  EXPECT_EQ(ask(verb::update_multi, {{"a", view(1.0)}, {"b", view(vector)}}, uniform).items()[1].result,
            status::type_mismatch);
  EXPECT_EQ(pull("a"), 4) << "the other was updated";
  ASSERT_EQ(call(verb::push, "b", view(vector)).header.result, status::ok);
  EXPECT_EQ(ask(verb::pull_multi, abc, uniform).items()[1].value.size(), 16U);
  EXPECT_EQ(ask(verb::pull_multi, {{"a", {}}, {"x", {}}}, uniform).items()[1].result, status::not_found);
  EXPECT_EQ(ask(verb::pull_multi, {}, uniform).header.count, 0U);
  net::request_header h;
  h.what = verb::update_multi;
  h.count = 2;
  std::vector<std::byte> body;
  net::append_item(body, "a", view(1.0));
  net::append_item(body, "c", view(1.0));
  body.push_back(std::byte{0});
  EXPECT_EQ(send(h, body, {.flags = uniform}).header.result, status::bad_request);
  EXPECT_EQ(pull("a"), 4);
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
