// SPDX-License-Identifier: BSD-3-Clause
#include "server/store/element_access.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <paracel/update.hpp>

#include "server/node/server.hpp"
#include "test/support/paths.hpp"
#include "test/support/recorded_reply.hpp"

namespace paracel::srv {
namespace {

using net::status;
using net::verb;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using bytes = std::vector<std::byte>;

template <class T>
void add_numbers(bytes& to, const std::vector<T>& numbers) {
  const auto b = std::as_bytes(std::span(numbers));
  to.insert(to.end(), b.begin(), b.end());
}
bytes pull_list(const std::vector<std::uint32_t>& offsets) {
  bytes b;
  add_numbers(b, offsets);
  return b;
}
template <class T>
bytes update_list(const std::vector<std::uint32_t>& offsets, const std::vector<T>& numbers) {
  auto b = pull_list(offsets);
  add_numbers(b, numbers);
  return b;
}
template <class T>
bytes update_range(std::uint32_t first, const std::vector<T>& numbers) {
  return update_list<T>({first}, numbers);
}
template <class T>
std::vector<T> numbers_of(std::span<const std::byte> b) {
  std::vector<T> v(b.size() / sizeof(T));
  if (!v.empty()) std::memcpy(v.data(), b.data(), v.size() * sizeof(T));
  return v;
}

// ---- payloads ---------------------------------------------------------------------------------------------------

TEST(ElementPayload, AListToPullIsOffsetsOfFourBytes) {
  element_choice c;
  const auto list = pull_list({3, 0, 3});
  ASSERT_EQ(parse_pull_at({value_tag::i32_array, list}, false, c), nullptr);
  EXPECT_EQ(c.count, 3U);
  EXPECT_EQ(parse_pull_at({value_tag::i32_array, {}}, false, c), nullptr) << "nothing is a list too";
  EXPECT_NE(parse_pull_at({value_tag::i32_array, std::span(list).first(11)}, false, c), nullptr);
  EXPECT_NE(parse_pull_at({value_tag::f64_array, list}, false, c), nullptr);
}

TEST(ElementPayload, ARangeToPullIsFirstAndCount) {
  element_choice c;
  const auto range = pull_list({7, 2});
  ASSERT_EQ(parse_pull_at({value_tag::i32_array, range}, true, c), nullptr);
  EXPECT_EQ(c.first, 7U);
  EXPECT_EQ(c.count, 2U);
  EXPECT_NE(parse_pull_at({value_tag::i32_array, std::span(range).first(4)}, true, c), nullptr);
  EXPECT_NE(parse_pull_at({value_tag::i32_array, pull_list({7, 2, 1})}, true, c), nullptr);
}

TEST(ElementPayload, AListToUpdateHasANumberForEachOffset) {
  element_change c;
  const auto list = update_list<double>({5, 6}, {0.5, 0.25});
  ASSERT_EQ(parse_update_at({value_tag::f64_array, list}, false, c), nullptr);
  EXPECT_EQ(c.where.count, 2U);
  EXPECT_THAT(numbers_of<double>(c.numbers.bytes), ElementsAre(0.5, 0.25));
  for (std::size_t n = 1; n < list.size(); ++n) {
    if (n % 12 == 0) continue;
    EXPECT_NE(parse_update_at({value_tag::f64_array, std::span(list).first(n)}, false, c), nullptr) << n;
  }
  EXPECT_NE(parse_update_at({value_tag::f64, list}, false, c), nullptr);
  EXPECT_NE(parse_update_at({value_tag::packed, list}, false, c), nullptr);
}

TEST(ElementPayload, ARangeToUpdateIsFirstAndNumbers) {
  element_change c;
  const auto range = update_range<float>(9, {1, 2, 3});
  ASSERT_EQ(parse_update_at({value_tag::f32_array, range}, true, c), nullptr);
  EXPECT_EQ(c.where.first, 9U);
  EXPECT_EQ(c.where.count, 3U);
  EXPECT_NE(parse_update_at({value_tag::f32_array, std::span(range).first(3)}, true, c), nullptr);
  EXPECT_NE(parse_update_at({value_tag::f32_array, std::span(range).first(6)}, true, c), nullptr);
}

// ---- verbs ------------------------------------------------------------------------------------------------------

struct element_reply {
  net::reply_header header;
  bytes body;
  shared_buffer tail;
  [[nodiscard]] std::span<const std::byte> value() const { return tail ? tail.bytes() : std::span(body); }
  [[nodiscard]] std::string text() const { return std::string(net::text_of(body)); }
};

class last_answer final : public reply_sink {
 public:
  void send(const net::peer&, const net::outgoing& message) override {
    const test::recorded_reply recorded(message);
    const auto& view = recorded.view;
    last = {view.header, {view.body.begin(), view.body.end()}, message.tail};
    ++count;
  }
  element_reply last;
  int count = 0;
};

struct how {
  std::uint64_t function = 0;
  std::uint16_t flags = 0;
  std::uint32_t clock = net::no_clock;
  std::uint32_t rank = 0;
  std::uint32_t credit = 0;
};

class Elements : public testing::Test {
 protected:
  Elements() : server_({.incarnation = 1, .plugin_folders = {test::plugin_folder()}}) {}

  element_reply send(net::request_header h, const bytes& body, shared_buffer tail, const how& w) {
    h.function = w.function;
    h.flags = w.flags;
    h.clock = w.clock;
    h.rank = w.rank;
    h.credit = w.credit;
    h.sequence = ++sequence_;
    h.body_bytes = static_cast<std::uint32_t>(body.size());
    h.tail_bytes = tail.size();
    bytes frame(net::request_header_bytes);
    net::encode(h, std::span<std::byte, net::request_header_bytes>(frame));
    frame.insert(frame.end(), body.begin(), body.end());
    net::request_view request;
    EXPECT_EQ(net::decode(frame, tail.size(), request), nullptr);
    server_.handle(0, request, std::move(tail), server_.completion_for(sink_, {}, request.header));
    EXPECT_EQ(sink_.count, static_cast<int>(sequence_)) << "exactly one answer";
    return std::move(sink_.last);
  }
  element_reply call(verb what, std::string_view key, value_tag tag, std::span<const std::byte> payload,
                     const how& w = {}) {
    net::request_header h;
    h.what = what;
    h.tag = tag;
    h.key_bytes = static_cast<std::uint32_t>(key.size());
    bytes body(net::bytes_of(key).begin(), net::bytes_of(key).end());
    if (payload.size() > net::tail_threshold_bytes) {
      auto tail = shared_buffer::allocate(payload.size());
      std::memcpy(tail.mutable_data(), payload.data(), payload.size());
      return send(h, body, std::move(tail), w);
    }
    body.insert(body.end(), payload.begin(), payload.end());
    return send(h, body, {}, w);
  }
  template <class T>
  void push(std::string_view key, const std::vector<T>& numbers) {
    ASSERT_EQ(call(verb::push, key, array_tag_of<T>(), std::as_bytes(std::span(numbers))).header.result, status::ok);
  }
  template <class T>
  std::vector<T> pull(std::string_view key, const how& w = {}) {
    const auto a = call(verb::pull, key, value_tag::none, {}, w);
    EXPECT_EQ(a.header.result, status::ok) << a.text();
    return numbers_of<T>(a.value());
  }
  element_reply update(std::string_view key, const std::vector<std::uint32_t>& at, const std::vector<double>& by,
                       how w = {}) {
    return call(verb::update_at, key, value_tag::f64_array, update_list(at, by), w);
  }
  element_reply update_from(std::string_view key, std::uint32_t first, const std::vector<double>& by, how w = {}) {
    w.flags |= net::flag_range;
    return call(verb::update_at, key, value_tag::f64_array, update_range(first, by), w);
  }
  std::uint64_t function(const std::string& plugin, const std::string& symbol) {
    const auto a = call(verb::register_update, plugin + '\0' + symbol, value_tag::none, {});
    EXPECT_EQ(a.header.result, status::ok) << a.text();
    std::uint64_t id = 0;
    if (a.body.size() >= sizeof id) std::memcpy(&id, a.body.data(), sizeof id);
    return id;
  }

  server server_;
  last_answer sink_;
  std::uint64_t sequence_ = 0;
};

TEST_F(Elements, APullReturnsTheChosenOnesInTheirOrder) {
  push<double>("a", {10, 11, 12, 13});
  const auto list = call(verb::pull_at, "a", value_tag::i32_array, pull_list({3, 0, 3}));
  ASSERT_EQ(list.header.result, status::ok) << list.text();
  EXPECT_EQ(list.header.tag, value_tag::f64_array);
  EXPECT_NE(list.header.value_version, 0U);
  EXPECT_THAT(numbers_of<double>(list.value()), ElementsAre(13, 10, 13));
  const auto range = call(verb::pull_at, "a", value_tag::i32_array, pull_list({1, 2}), {.flags = net::flag_range});
  EXPECT_THAT(numbers_of<double>(range.value()), ElementsAre(11, 12));
  const auto none = call(verb::pull_at, "a", value_tag::i32_array, {});
  EXPECT_EQ(none.header.result, status::ok);
  EXPECT_THAT(none.value(), IsEmpty());
  push<std::int32_t>("i", {7, 8});
  EXPECT_THAT(numbers_of<std::int32_t>(call(verb::pull_at, "i", value_tag::i32_array, pull_list({1})).value()),
              ElementsAre(8));
}

TEST_F(Elements, AnUpdateAddsToTheChosenOnesAndRepeatedOnesCount) {
  push<double>("a", {0, 0, 0, 0});
  ASSERT_EQ(update("a", {1, 3, 1}, {1, 2, 4}).header.result, status::ok);
  EXPECT_THAT(pull<double>("a"), ElementsAre(0, 5, 0, 2));
  const auto before = call(verb::pull, "a", value_tag::none, {}).header.value_version;
  const auto after = update_from("a", 2, {10, 20});
  EXPECT_GT(after.header.value_version, before);
  EXPECT_THAT(pull<double>("a"), ElementsAre(0, 5, 10, 22));
}

TEST_F(Elements, IntegersWrap) {
  push<std::int32_t>("i", {INT32_MAX, 0});
  EXPECT_EQ(call(verb::update_at, "i", value_tag::i32_array, update_list<std::int32_t>({0}, {1})).header.result,
            status::ok);
  EXPECT_THAT(pull<std::int32_t>("i"), ElementsAre(INT32_MIN, 0));
}

TEST_F(Elements, OtherFunctionsRunOnceForEachElementInOrder) {
  const auto max = function("libparacel_default.so", "paracel_max");
  push<double>("a", {0, 5, 0});
  ASSERT_EQ(update("a", {0, 1, 0}, {3, 4, 2}, {.function = max}).header.result, status::ok);
  EXPECT_THAT(pull<double>("a"), ElementsAre(3, 5, 0));
  const auto assign = function("libparacel_default.so", "paracel_assign");
  ASSERT_EQ(update("a", {2, 2}, {8, 9}, {.function = assign}).header.result, status::ok);
  ASSERT_EQ(update_from("a", 0, {1, 2}, {.function = assign}).header.result, status::ok);
  EXPECT_THAT(pull<double>("a"), ElementsAre(1, 2, 9));
}

TEST_F(Elements, OutOfBoundsNamesKeyOffsetAndSizeAndChangesNothing) {
  push<double>("a", {1, 2, 3});
  for (const auto& a :
       {call(verb::pull_at, "a", value_tag::i32_array, pull_list({0, 3})), update("a", {0, 3}, {1, 1})}) {
    EXPECT_EQ(a.header.result, status::bad_request);
    EXPECT_THAT(a.text(), HasSubstr("\"a\": there is no element 3 of an array of 3"));
  }
  for (const auto& range : {pull_list({2, 2}), pull_list({4, 0}), pull_list({UINT32_MAX, UINT32_MAX})}) {
    EXPECT_EQ(call(verb::pull_at, "a", value_tag::i32_array, range, {.flags = net::flag_range}).header.result,
              status::bad_request);
  }
  EXPECT_EQ(update_from("a", 2, {1, 1}).header.result, status::bad_request);
  EXPECT_THAT(pull<double>("a"), ElementsAre(1, 2, 3));
}

TEST_F(Elements, WhatHasNoElementsOrOthersIsATypeMismatch) {
  const double one = 1;
  call(verb::push, "number", value_tag::f64, std::as_bytes(std::span(&one, 1)));
  push<float>("floats", {1, 2});
  EXPECT_EQ(call(verb::pull_at, "number", value_tag::i32_array, pull_list({0})).header.result, status::type_mismatch);
  EXPECT_EQ(update("number", {0}, {1}).header.result, status::type_mismatch);
  const auto a = update("floats", {0}, {1});
  EXPECT_EQ(a.header.result, status::type_mismatch);
  EXPECT_THAT(a.text(), HasSubstr("f32 array"));
  push<double>("doubles", {1, 2});
  EXPECT_EQ(
      update("doubles", {0}, {1}, {.function = function("libparacel_default.so", "default_incr_f")}).header.result,
      status::type_mismatch);
  EXPECT_EQ(
      update("doubles", {0}, {1}, {.function = function("server_updates", "times_ten_plus_update")}).header.result,
      status::type_mismatch)
      << "a function of whole values";
  EXPECT_THAT(pull<double>("doubles"), ElementsAre(1, 2));
}

TEST_F(Elements, OfAMissingKeyAreNotFound) {
  EXPECT_EQ(call(verb::pull_at, "no", value_tag::i32_array, pull_list({0})).header.result, status::not_found);
  EXPECT_EQ(update("no", {0}, {1}).header.result, status::not_found);
}

TEST_F(Elements, AFunctionThatFailsHalfWayLeavesTheValueAsItWas) {
  const auto f = function("element_updates", "positive_only_update");
  push<double>("a", {1, 2, 3});
  const auto a = update("a", {0, 1, 0, 2}, {5, 6, 7, -1}, {.function = f});
  EXPECT_EQ(a.header.result, status::plugin_failed);
  EXPECT_THAT(a.text(), HasSubstr("negative"));
  EXPECT_THAT(pull<double>("a"), ElementsAre(1, 2, 3));
  EXPECT_EQ(update_from("a", 0, {5, -6}, {.function = f}).header.result, status::plugin_failed);
  EXPECT_THAT(pull<double>("a"), ElementsAre(1, 2, 3));
  EXPECT_EQ(update("a", {0, 1, 0}, {5, 6, 7}, {.function = f}).header.result, status::ok);
  EXPECT_THAT(pull<double>("a"), ElementsAre(13, 8, 3));
}

TEST_F(Elements, AReplyThatHoldsALargeValueKeepsItsBytes) {
  std::vector<double> large(20'000, 1.0);
  push("a", large);
  const auto held = call(verb::pull, "a", value_tag::none, {});
  ASSERT_TRUE(held.tail);
  ASSERT_EQ(update("a", {0, 19'999}, {1, 1}).header.result, status::ok);
  EXPECT_EQ(numbers_of<double>(held.value())[0], 1.0);
  EXPECT_EQ(pull<double>("a")[0], 2.0);
  EXPECT_EQ(pull<double>("a")[19'999], 2.0);
}

TEST_F(Elements, LargeRangesTravelInTheirOwnFrame) {
  std::vector<double> large(20'000);
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<double>(i);
  push("a", large);
  ASSERT_EQ(update_from("a", 1, std::vector<double>(19'999, 1.0)).header.result, status::ok);
  const auto range = call(verb::pull_at, "a", value_tag::i32_array, pull_list({0, 19'000}), {.flags = net::flag_range});
  ASSERT_TRUE(range.tail);
  const auto n = numbers_of<double>(range.value());
  ASSERT_EQ(n.size(), 19'000U);
  for (std::size_t i = 1; i < n.size(); ++i) ASSERT_EQ(n[i], static_cast<double>(i) + 1);
  EXPECT_EQ(n[0], 0);
}

TEST_F(Elements, ACreditCutsAPull) {
  push<double>("a", {1, 2, 3});
  EXPECT_EQ(call(verb::pull_at, "a", value_tag::i32_array, pull_list({0, 1}), {.credit = 16}).header.result,
            status::ok);
  EXPECT_EQ(call(verb::pull_at, "a", value_tag::i32_array, pull_list({0, 1}), {.credit = 15}).header.result,
            status::too_large);
}

TEST_F(Elements, ManyKeysAnswerAnItemEach) {
  push<double>("a", {1, 2, 3});
  push<double>("b", {4, 5, 6});
  const auto multi = [&](verb what, value_tag tag, const std::vector<std::pair<std::string, bytes>>& items) {
    net::request_header h;
    h.what = what;
    h.count = static_cast<std::uint32_t>(items.size());
    bytes body;
    for (const auto& [key, payload] : items) net::append_item(body, key, {tag, payload});
    const auto a = send(h, body, {}, {});
    EXPECT_EQ(a.header.result, status::ok) << a.text();
    std::vector<std::pair<status, std::vector<double>>> all;
    net::reply_items cursor(a.body, a.header.count);
    for (net::reply_item i; cursor.next(i);) {
      all.emplace_back(i.result, i.result == status::ok ? numbers_of<double>(i.value.bytes) : std::vector<double>());
    }
    EXPECT_TRUE(cursor.ok());
    return all;
  };
  const auto updated = multi(verb::update_at_multi, value_tag::f64_array,
                             {{"a", update_list<double>({0}, {10})},
                              {"no", update_list<double>({0}, {10})},
                              {"b", update_list<double>({9}, {10})},
                              {"b", update_list<double>({2, 2}, {10, 20})}});
  ASSERT_EQ(updated.size(), 4U);
  EXPECT_EQ(updated[0].first, status::ok);
  EXPECT_EQ(updated[1].first, status::not_found);
  EXPECT_EQ(updated[2].first, status::bad_request);
  EXPECT_EQ(updated[3].first, status::ok);
  const auto pulled = multi(verb::pull_at_multi, value_tag::i32_array,
                            {{"b", pull_list({2, 0})}, {"no", pull_list({0})}, {"a", pull_list({0, 1, 2})}});
  ASSERT_EQ(pulled.size(), 3U);
  EXPECT_THAT(pulled[0].second, ElementsAre(36, 4));
  EXPECT_EQ(pulled[1].first, status::not_found);
  EXPECT_THAT(pulled[2].second, ElementsAre(11, 2, 3));
}

// ---- BSP --------------------------------------------------------------------------------------------------------

TEST_F(Elements, StagedOnesAreFoldedInOrderAmongUpdatesOfTheWholeValue) {
  // Assignment does not commute, so the result shows the order.
  const auto assign = function("libparacel_default.so", "paracel_assign");
  push<double>("a", {0, 0});
  const auto staged = [&](std::uint32_t clock, std::uint32_t rank) {
    return how{.function = assign, .flags = net::flag_staged, .clock = clock, .rank = rank};
  };
  const auto whole = [&](const std::vector<double>& v, const how& w) {
    EXPECT_EQ(call(verb::update, "a", value_tag::f64_array, std::as_bytes(std::span(v)), w).header.result, status::ok);
  };
  EXPECT_EQ(update("a", {0}, {3}, staged(0, 3)).header.result, status::ok);
  whole({2, 2}, staged(0, 2));
  EXPECT_EQ(update_from("a", 0, {1, 1}, staged(0, 1)).header.result, status::ok);
  EXPECT_THAT(pull<double>("a"), ElementsAre(0, 0)) << "an ordinary read sees nothing of them";
  EXPECT_THAT(pull<double>("a", {.flags = net::flag_bsp_read, .clock = 1}), ElementsAre(3, 2));
  whole({7, 7}, staged(1, 0));
  EXPECT_EQ(update("a", {1}, {8}, staged(1, 1)).header.result, status::ok);
  const auto read =
      call(verb::pull_at, "a", value_tag::i32_array, pull_list({1, 0}), {.flags = net::flag_bsp_read, .clock = 2});
  EXPECT_THAT(numbers_of<double>(read.value()), ElementsAre(8, 7)) << "a read of elements folds too";
}

TEST_F(Elements, AStagedOneThatCannotBeFoldedIsToldToTheReader) {
  push<double>("a", {0, 0});
  EXPECT_EQ(update("a", {5}, {1}, {.flags = net::flag_staged, .clock = 0, .rank = 2}).header.result,
            status::bad_request)
      << "one that cannot be folded as things are is refused at once";
  push<double>("a", {0, 0, 0, 0, 0, 0});
  EXPECT_EQ(update("a", {5}, {1}, {.flags = net::flag_staged, .clock = 0, .rank = 2}).header.result, status::ok);
  push<double>("a", {0, 0});
  const auto a = call(verb::pull, "a", value_tag::none, {}, {.flags = net::flag_bsp_read, .clock = 1});
  EXPECT_EQ(a.header.result, status::bad_request);
  EXPECT_THAT(a.text(), HasSubstr("rank 2 in iteration 0"));
  EXPECT_EQ(
      call(verb::update_at, "a", value_tag::f64_array, bytes(7), {.flags = net::flag_staged, .clock = 1}).header.result,
      status::bad_request)
      << "a malformed one is refused at once";
}

// ---- against a model --------------------------------------------------------------------------------------------

TEST_F(Elements, RandomAccessesDoWhatALoopOverAVectorDoes) {
  const auto max = function("libparacel_default.so", "paracel_max");
  for (unsigned seed = 1; seed <= 5; ++seed) {
    std::mt19937 random(seed);
    std::vector<double> model(1 + random() % 20'000, 0.0);
    push("a", model);
    for (int step = 0; step < 60; ++step) {
      const auto first = static_cast<std::uint32_t>(random() % model.size());
      const auto count = random() % std::min<std::size_t>(model.size() - first + 1, 9'000);
      const bool range = random() % 2 == 0;
      const bool adds = random() % 2 == 0;
      std::vector<std::uint32_t> at(count);
      std::vector<double> by(count);
      for (std::size_t i = 0; i < count; ++i) {
        at[i] = range ? first + static_cast<std::uint32_t>(i) : static_cast<std::uint32_t>(random() % model.size());
        by[i] = static_cast<double>(random() % 1000);
      }
      const how w{.function = adds ? 0 : max};
      ASSERT_EQ((range ? update_from("a", first, by, w) : update("a", at, by, w)).header.result, status::ok);
      for (std::size_t i = 0; i < count; ++i) {
        auto& m = model[at[i]];
        m = adds ? m + by[i] : std::max(m, by[i]);
      }
      const auto seen = range ? call(verb::pull_at, "a", value_tag::i32_array,
                                     pull_list({first, static_cast<std::uint32_t>(count)}), {.flags = net::flag_range})
                              : call(verb::pull_at, "a", value_tag::i32_array, pull_list(at));
      std::vector<double> expected(count);
      for (std::size_t i = 0; i < count; ++i) expected[i] = model[at[i]];
      ASSERT_EQ(numbers_of<double>(seen.value()), expected) << "seed " << seed << " step " << step;
    }
    ASSERT_EQ(pull<double>("a"), model);
  }
}

}  // namespace
}  // namespace paracel::srv
