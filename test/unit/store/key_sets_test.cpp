// SPDX-License-Identifier: BSD-3-Clause
//
// Prepared key sets in a shard: compared with a std::map under all possible changes of keys; rejected requests; and the
// order of requests of a client whose set was evicted.
#include "server/store/key_sets.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <paracel/codec.hpp>
#include <paracel/error.hpp>

#include "server/node/server.hpp"
#include "test/support/paths.hpp"
#include "test/support/recorded_reply.hpp"

namespace paracel::srv {
namespace {

using net::status;
using net::verb;

std::vector<std::byte> items_of(const std::vector<std::string>& keys) {
  std::vector<std::byte> body;
  for (const auto& k : keys) net::append_item(body, k);
  return body;
}
std::string name_of_set(const std::vector<std::byte>& items) {
  const auto d = digest_of(items);
  return {reinterpret_cast<const char*>(&d), sizeof d};
}
template <class T>
std::vector<std::byte> raw(const std::vector<T>& numbers) {
  const auto bytes = std::as_bytes(std::span(numbers));
  return {bytes.begin(), bytes.end()};
}

// ---- parsers ----------------------------------------------------------------------------------------------------

TEST(SetPayload, ValuesAreOfOneTypeAndSizeOrItems) {
  set_values v;
  const std::vector<std::byte> twelve(12);
  EXPECT_EQ(parse_set_values(value_tag::f32, twelve, 3, v), nullptr);
  EXPECT_TRUE(v.uniform());
  EXPECT_EQ(v.bytes, 4U);
  EXPECT_EQ(v.at(2).bytes.data(), twelve.data() + 8);
  EXPECT_NE(parse_set_values(value_tag::f32, twelve, 2, v), nullptr);
  EXPECT_NE(parse_set_values(value_tag::f32, twelve, 5, v), nullptr);
  EXPECT_NE(parse_set_values(value_tag::f32, {}, 1, v), nullptr);
  EXPECT_EQ(parse_set_values(value_tag::f32, {}, 0, v), nullptr);
  EXPECT_NE(parse_set_values(value_tag::f32, twelve, 0, v), nullptr);
  EXPECT_EQ(parse_set_values(value_tag::f32_array, twelve, 1, v), nullptr);
  EXPECT_NE(parse_set_values(value_tag::f64_array, twelve, 1, v), nullptr);
  EXPECT_NE(parse_set_values(value_tag::packed, twelve, 12, v), nullptr);
  EXPECT_EQ(parse_set_values(value_tag::none, twelve, 1, v), nullptr) << "one item without key and value";
  EXPECT_FALSE(v.uniform());
  EXPECT_NE(parse_set_values(value_tag::none, twelve, 2, v), nullptr);
  EXPECT_NE(parse_set_values(value_tag::none, items_of({"k"}), 1, v), nullptr) << "the set has the keys";
}

TEST(KeySets, KeepsASetUnderItsOwnDigestOnly) {
  key_sets sets;
  const auto keys = items_of({"a", "b"});
  const auto others = items_of({"a", "c"});
  EXPECT_NE(sets.prepare(digest_of(others), keys, 2), nullptr);
  EXPECT_NE(sets.prepare(digest_of(keys), keys, 3), nullptr);
  EXPECT_NE(sets.prepare(digest_of(keys), keys, 1), nullptr);
  std::vector<std::byte> with_value;
  const double d = 1;
  net::append_item(with_value, "a", {value_tag::f64, std::as_bytes(std::span(&d, 1))});
  EXPECT_NE(sets.prepare(digest_of(with_value), with_value, 1), nullptr);
  EXPECT_EQ(sets.size(), 0U);
  EXPECT_EQ(sets.prepare(digest_of(keys), keys, 2), nullptr);
  EXPECT_EQ(sets.prepare(digest_of(keys), keys, 2), nullptr) << "again is no matter";
  EXPECT_EQ(sets.size(), 1U);
  ASSERT_NE(sets.find(digest_of(keys)), nullptr);
  EXPECT_EQ(sets.find(digest_of(keys))->key(1), "b");
  EXPECT_EQ(sets.find(digest_of(others)), nullptr);
}

TEST(KeySets, TheLeastRecentlyUsedGoesFirstAndTheNewestNever) {
  std::vector<std::vector<std::byte>> lists;
  for (int i = 0; i < 20; ++i) {
    std::vector<std::string> keys;
    for (int k = 0; k < 100; ++k) keys.push_back("set_" + std::to_string(i) + "_key_" + std::to_string(k));
    lists.push_back(items_of(keys));
  }
  key_sets sets(50'000);
  for (const auto& l : lists) {
    ASSERT_EQ(sets.prepare(digest_of(l), l, 100), nullptr);
    ASSERT_NE(sets.find(digest_of(lists[0])), nullptr) << "it was used all the time";
  }
  EXPECT_LE(sets.budget().held(), 50'000U);
  EXPECT_GT(sets.size(), 3U);
  EXPECT_LT(sets.size(), 20U);
  EXPECT_EQ(sets.find(digest_of(lists[1])), nullptr);
  EXPECT_NE(sets.find(digest_of(lists[19])), nullptr);
  key_sets none(0);
  for (const auto& l : lists) {
    ASSERT_EQ(none.prepare(digest_of(l), l, 100), nullptr);
    EXPECT_EQ(none.size(), 1U);
    EXPECT_NE(none.find(digest_of(l)), nullptr);
  }
}

// ---- in a server --------------------------------------------------------------------------------------------------

struct answer {
  net::reply_header header;
  std::vector<std::byte> body;
};
class key_sets_notebook final : public reply_sink {
 public:
  void send(const net::peer&, const net::outgoing& message) override {
    if (std::exchange(fails_once, false)) throw error("cannot send");
    const test::recorded_reply recorded(message);
    const auto& view = recorded.view;
    answers.push_back({view.header, {view.body.begin(), view.body.end()}});
  }
  std::deque<answer> answers;
  bool fails_once = false;
};

class SetVerbs : public testing::Test {
 protected:
  SetVerbs() {
    server_options o;
    o.plugin_folders = {test::plugin_folder()};
    server_.emplace(o);
  }
  /// Sends a request, which may be answered later. Returns: its number.
  std::uint64_t send(verb what, std::string_view key, const std::vector<std::byte>& payload, std::uint32_t count = 0,
                     value_tag tag = value_tag::none, std::uint16_t flags = 0, std::uint32_t clock = net::no_clock) {
    net::request_header h;
    h.what = what;
    h.tag = tag;
    h.flags = flags;
    h.clock = clock;
    h.count = count;
    h.client = client_;
    h.function = function_;
    h.sequence = ++sequence_;
    h.key_bytes = static_cast<std::uint32_t>(key.size());
    h.body_bytes = static_cast<std::uint32_t>(key.size() + payload.size());
    std::vector<std::byte> frame(net::request_header_bytes);
    net::encode(h, std::span<std::byte, net::request_header_bytes>(frame));
    frame.insert(frame.end(), net::bytes_of(key).begin(), net::bytes_of(key).end());
    frame.insert(frame.end(), payload.begin(), payload.end());
    net::request_view request;
    EXPECT_EQ(net::decode(frame, 0, request), nullptr);
    server_->handle(0, request, {}, server_->completion_for(sink_, {}, request.header));
    return sequence_;
  }
  answer take() {
    EXPECT_FALSE(sink_.answers.empty());
    if (sink_.answers.empty()) return {};
    auto a = std::move(sink_.answers.front());
    sink_.answers.pop_front();
    return a;
  }
  answer call(verb what, std::string_view key, const std::vector<std::byte>& payload = {}, std::uint32_t count = 0,
              value_tag tag = value_tag::none, std::uint16_t flags = 0, std::uint32_t clock = net::no_clock) {
    const auto n = send(what, key, payload, count, tag, flags, clock);
    const auto a = take();
    EXPECT_EQ(a.header.sequence, n);
    EXPECT_TRUE(sink_.answers.empty());
    return a;
  }
  std::string prepare(const std::vector<std::string>& keys) {
    const auto items = items_of(keys);
    const auto name = name_of_set(items);
    EXPECT_EQ(call(verb::set_prepare, name, items, static_cast<std::uint32_t>(keys.size())).header.result, status::ok);
    return name;
  }
  void push(const std::string& key, double d) {
    EXPECT_EQ(call(verb::push, key, raw<double>({d}), 0, value_tag::f64).header.result, status::ok);
  }
  /// The reply to a set_pull or set_bupdate: a value for each key, or none if it does not exist.
  static std::vector<std::optional<std::string>> values_of(const answer& a) {
    std::vector<std::optional<std::string>> out;
    EXPECT_EQ(a.header.result, status::ok);
    if ((a.header.flags & net::reply_uniform) != 0) {
      const auto width = a.header.count == 0 ? 0 : a.body.size() / a.header.count;
      for (std::uint32_t i = 0; i < a.header.count; ++i) {
        out.emplace_back(std::string(name_of(a.header.tag)) + ":" +
                         std::string(reinterpret_cast<const char*>(a.body.data()) + i * width, width));
      }
      return out;
    }
    net::reply_items cursor(a.body, a.header.count);
    for (net::reply_item i; cursor.next(i);) {
      const auto tag = std::string(name_of(i.value.tag));
      if (i.result == status::ok) out.emplace_back(tag + ":" + std::string(net::text_of(i.value.bytes)));
      else out.emplace_back(std::nullopt);
    }
    EXPECT_TRUE(cursor.ok());
    return out;
  }

  key_sets_notebook sink_;
  std::optional<server> server_;
  std::uint64_t client_ = 5;
  std::uint64_t function_ = 0;
  std::uint64_t sequence_ = 0;
};

TEST_F(SetVerbs, AgreeWithTheSameVerbsByNameWhateverHappensToTheKeys) {
  std::vector<std::string> keys;
  for (int i = 0; i < 30; ++i) keys.push_back("key_" + std::to_string(i));
  const std::vector<std::string> some{"key_3", "key_3", "key_17", "key_29"};  // one of them twice
  for (const unsigned seed : {1U, 2U, 3U, 4U, 5U}) {
    std::mt19937 random(seed);
    (void)call(verb::clear, {});
    std::map<std::string, std::pair<value_tag, std::string>> model;
    const auto text_of = [](const std::vector<std::byte>& b) { return std::string(net::text_of(b)); };
    int uniform = 0;
    for (int round = 0; round < 1500; ++round) {
      const auto& list = random() % 4 == 0 ? some : keys;
      const auto n = static_cast<std::uint32_t>(list.size());
      const auto set = prepare(list);
      const auto& key = keys[random() % keys.size()];
      switch (random() % 12) {
        case 0:
          (void)call(verb::remove, key);
          model.erase(key);
          break;
        case 1:
          if (random() % 20 == 0) {
            (void)call(verb::clear, {});
            model.clear();
          }
          break;
        case 2: {  // another type or another size
          const auto v = random() % 2 == 0 ? raw<float>({1, 2, 3}) : raw<double>({1, 2});
          const auto tag = v.size() == 12 ? value_tag::f32_array : value_tag::f64_array;
          (void)call(verb::push, key, v, 0, tag);
          model[key] = {tag, text_of(v)};
          break;
        }
        case 3:
        case 4:
        case 5: {
          std::vector<double> v(n);
          for (auto& x : v) x = static_cast<double>(random() % 100);
          (void)call(verb::set_push, set, raw(v), n, value_tag::f64);
          for (std::size_t i = 0; i < n; ++i) model[list[i]] = {value_tag::f64, text_of(raw<double>({v[i]}))};
          break;
        }
        case 6:
        case 7:
        case 8: {
          std::vector<double> d(n);
          for (auto& x : d) x = static_cast<double>(random() % 100);
          const auto back = random() % 2 == 0;
          const auto a = call(back ? verb::set_bupdate : verb::set_update, set, raw(d), n, value_tag::f64);
          std::vector<std::optional<std::string>> want;
          for (std::size_t i = 0; i < n; ++i) {
            auto at = model.find(list[i]);
            if (at == model.end()) {
              at = model.emplace(list[i], std::pair{value_tag::f64, text_of(raw<double>({d[i]}))}).first;
            } else if (at->second.first != value_tag::f64) {
              want.emplace_back(std::nullopt);
              continue;
            } else {
              double x = 0;
              std::memcpy(&x, at->second.second.data(), sizeof x);
              at->second.second = text_of(raw<double>({x + d[i]}));
            }
            want.emplace_back("f64:" + at->second.second);
          }
          if (back) {
            ASSERT_EQ(values_of(a), want) << seed << " " << round;
          }
          break;
        }
        default: {
          const auto a = call(verb::set_pull, set, {}, n);
          uniform += (a.header.flags & net::reply_uniform) != 0;
          std::vector<std::optional<std::string>> want;
          for (const auto& k : list) {
            const auto at = model.find(k);
            if (at == model.end()) want.emplace_back(std::nullopt);
            else want.emplace_back(std::string(name_of(at->second.first)) + ":" + at->second.second);
          }
          ASSERT_EQ(values_of(a), want) << seed << " " << round;
        }
      }
    }
    EXPECT_GT(uniform, 20) << "the short way was hardly taken";
  }
}

TEST_F(SetVerbs, VersionsRiseWithEveryChangeThroughASet) {
  const auto set = prepare({"a", "b"});
  push("a", 1);
  push("b", 1);
  auto before = call(verb::pull, "b").header.value_version;
  for (const auto what : {verb::set_push, verb::set_update, verb::set_bupdate}) {
    const auto a = call(what, set, raw<double>({1, 2}), 2, value_tag::f64);
    ASSERT_NE(a.header.flags & net::reply_uniform, 0);
    const auto first = call(verb::pull, "a").header.value_version;
    const auto second = call(verb::pull, "b").header.value_version;
    EXPECT_GT(first, before);
    EXPECT_GT(second, first);
    EXPECT_EQ(a.header.value_version, second);
    before = second;
  }
}

TEST_F(SetVerbs, AnUpdateIsAnsweredFirstSoThatOneThatCannotBeIsNotDone) {
  const auto set = prepare({"a", "b"});
  push("a", 1);
  push("b", 2);
  std::vector<std::byte> by_name;
  for (const auto& key : {"a", "b"}) net::append_item(by_name, key, {value_tag::f64, raw<double>({1})});
  for (const auto what : {verb::set_push, verb::set_update, verb::update_multi}) {
    sink_.fails_once = true;
    const auto a = what == verb::update_multi ? call(what, {}, by_name, 2, value_tag::none, net::flag_uniform_reply)
                                              : call(what, set, raw<double>({1, 2}), 2, value_tag::f64);
    EXPECT_EQ(a.header.result, status::internal);
    EXPECT_EQ(call(verb::set_pull, set, {}, 2).body, raw<double>({1, 2}));
  }
}

TEST_F(SetVerbs, AFunctionOfAPlugInRunsOnEveryValue) {
  const auto registered = call(verb::register_update, std::string("server_updates\0times_ten_plus_update", 36));
  ASSERT_EQ(registered.header.result, status::ok);
  std::memcpy(&function_, registered.body.data(), sizeof function_);
  const auto set = prepare({"a", "b"});
  push("a", 1);
  push("b", 2);
  EXPECT_EQ(call(verb::set_update, set, raw<double>({3, 4}), 2, value_tag::f64).header.result, status::ok);
  function_ = 0;
  EXPECT_EQ(call(verb::set_pull, set, {}, 2).body, raw<double>({13, 24}));
  function_ = 4711;
  EXPECT_EQ(call(verb::set_update, set, raw<double>({3, 4}), 2, value_tag::f64).header.result,
            status::unknown_function);
}

TEST_F(SetVerbs, AnEmptySetIsAnsweredWhateverTheFunction) {
  const auto set = prepare({});
  for (const auto* symbol : {"paracel_max", "paracel_add"}) {
    const auto name = std::string("libparacel_default.so") + '\0' + symbol;
    const auto registered = call(verb::register_update, name);
    ASSERT_EQ(registered.header.result, status::ok);
    std::memcpy(&function_, registered.body.data(), sizeof function_);
    for (const auto what : {verb::set_update, verb::set_bupdate, verb::set_push, verb::set_pull}) {
      const auto a = call(what, set, {}, 0);
      EXPECT_EQ(a.header.result, status::ok) << net::name_of(what);
      EXPECT_EQ(a.header.count, 0U);
      EXPECT_TRUE(a.body.empty());
    }
  }
}

TEST_F(SetVerbs, ValuesWithoutAnElementArePulledPushedAndUpdated) {
  const std::vector<std::string> keys{"a", "b"};
  for (const auto& key : keys) EXPECT_EQ(call(verb::push, key, {}, 0, value_tag::f64_array).header.result, status::ok);
  const auto set = prepare(keys);
  for (const auto what : {verb::set_pull, verb::set_push, verb::set_pull, verb::set_update, verb::set_bupdate}) {
    const auto a = call(what, set, {}, 2, what == verb::set_pull ? value_tag::none : value_tag::f64_array);
    EXPECT_EQ(a.header.result, status::ok) << net::name_of(what);
    EXPECT_TRUE(what == verb::set_push || what == verb::set_update ||
                values_of(a) == std::vector<std::optional<std::string>>(2, "f64 array:"))
        << net::name_of(what);
  }
}

TEST_F(SetVerbs, StagedUpdatesWaitForTheClockAsByName) {
  const auto set = prepare({"a", "b"});
  push("a", 1);
  push("b", 2);
  const auto delta = raw<double>({10, 20});
  EXPECT_EQ(call(verb::set_update, set, delta, 2, value_tag::f64, net::flag_staged, 0).header.result, status::ok);
  EXPECT_EQ(values_of(call(verb::set_pull, set, {}, 2)),
            values_of(call(verb::set_pull, set, {}, 2, value_tag::none, net::flag_bsp_read, 0)));
  const auto folded = values_of(call(verb::set_pull, set, {}, 2, value_tag::none, net::flag_bsp_read, 1));
  EXPECT_EQ(folded[1], "f64:" + std::string(net::text_of(raw<double>({22}))));
  const auto after = call(verb::set_pull, set, {}, 2);
  EXPECT_NE(after.header.flags & net::reply_uniform, 0) << "nothing is staged any more: the short way again";
  EXPECT_EQ(after.body, raw<double>({11, 22}));
}

TEST_F(SetVerbs, AMalformedRequestChangesNothing) {
  const auto set = prepare({"a", "b"});
  push("a", 1);
  push("b", 2);
  const auto two = raw<double>({1, 1});
  for (const auto& [count, tag, size] :
       std::vector<std::tuple<std::uint32_t, value_tag, std::size_t>>{{3, value_tag::f64, 24},
                                                                      {1, value_tag::f64, 8},
                                                                      {2, value_tag::f64, 8},
                                                                      {2, value_tag::f32, 16},
                                                                      {2, value_tag::packed, 16},
                                                                      {2, value_tag::none, 16},
                                                                      {2, value_tag::f64_array, 12},
                                                                      {2, value_tag::f64, 0}}) {
    EXPECT_EQ(call(verb::set_update, set, std::vector<std::byte>(size), count, tag).header.result, status::bad_request)
        << count << " " << name_of(tag) << " " << size;
  }
  EXPECT_EQ(call(verb::set_pull, set, two, 2).header.result, status::bad_request);
  EXPECT_EQ(call(verb::set_pull, "short", {}, 2).header.result, status::bad_request);
  EXPECT_EQ(call(verb::set_prepare, std::string(16, 'x'), items_of({"a"}), 1).header.result, status::bad_request);
  EXPECT_EQ(call(verb::set_pull, set, {}, 2).body, raw<double>({1, 2}));
}

TEST_F(SetVerbs, WhatFollowsARefusedRequestWaitsUntilThatComesAgain) {
  push("a", 1);
  const auto items = items_of({"a"});
  const auto set = name_of_set(items);
  const auto other_items = items_of({"a", "b"});
  const auto other_set = name_of_set(other_items);
  EXPECT_EQ(call(verb::set_update, set, raw<double>({10}), 1, value_tag::f64).header.result, status::unknown_set);
  const auto pull = send(verb::pull, "a", {});
  const auto later = send(verb::set_update, other_set, raw<double>({100, 100}), 2, value_tag::f64);
  const auto last = send(verb::pull, "a", {});
  EXPECT_TRUE(sink_.answers.empty()) << "they would overtake the update";
  client_ = 6;
  EXPECT_EQ(call(verb::pull, "a").body, raw<double>({1})) << "others do not wait";
  client_ = 5;
  EXPECT_EQ(call(verb::set_prepare, set, items, 1).header.result, status::ok);
  const auto again = send(verb::set_update, set, raw<double>({10}), 1, value_tag::f64);
  auto a = take();
  EXPECT_EQ(a.header.sequence, again);
  EXPECT_EQ(a.header.result, status::ok);
  a = take();
  EXPECT_EQ(a.header.sequence, pull);
  EXPECT_EQ(a.body, raw<double>({11}));
  a = take();
  EXPECT_EQ(a.header.sequence, later);
  EXPECT_EQ(a.header.result, status::unknown_set) << "that set is not here either";
  EXPECT_TRUE(sink_.answers.empty());
  EXPECT_EQ(call(verb::set_prepare, other_set, other_items, 2).header.result, status::ok);
  const auto second = send(verb::set_update, other_set, raw<double>({100, 100}), 2, value_tag::f64);
  EXPECT_EQ(take().header.sequence, second);
  a = take();
  EXPECT_EQ(a.header.sequence, last);
  EXPECT_EQ(a.body, raw<double>({111}));
  EXPECT_EQ(call(verb::pull, "b").body, raw<double>({100}));
}

TEST_F(SetVerbs, APingGivesUpARefusedRequestAndTheEndAnswersWhatIsHeld) {
  push("a", 1);
  EXPECT_EQ(call(verb::set_pull, std::string(16, 'x'), {}, 1).header.result, status::unknown_set);
  const auto held = send(verb::pull, "a", {});
  EXPECT_TRUE(sink_.answers.empty());
  (void)send(verb::ping, {}, {});
  EXPECT_EQ(take().header.what, verb::ping);
  EXPECT_EQ(take().header.sequence, held);
  EXPECT_EQ(call(verb::set_pull, std::string(16, 'x'), {}, 1).header.result, status::unknown_set);
  (void)send(verb::pull, "a", {});
  server_->closing(0);
  EXPECT_EQ(take().header.result, status::job_ended);
}

}  // namespace
}  // namespace paracel::srv
