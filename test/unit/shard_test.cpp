// SPDX-License-Identifier: BSD-3-Clause
#include "server/shard/shard.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <bit>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "net/protocol.hpp"
#include "net/scan_codec.hpp"
#include "server/node/server.hpp"
#include "test/support/paths.hpp"

namespace paracel::srv {
namespace {

using net::status;
using net::verb;
using testing::ElementsAre;
using testing::HasSubstr;

struct answer {
  net::reply_header header;
  std::vector<std::byte> body;
  shared_buffer tail;

  [[nodiscard]] std::span<const std::byte> bytes() const { return tail ? tail.bytes() : std::span(body); }
  [[nodiscard]] std::string text() const { return std::string(net::text_of(body)); }
  [[nodiscard]] std::vector<double> doubles() const {
    std::vector<double> d(bytes().size() / sizeof(double));
    if (!d.empty()) std::memcpy(d.data(), bytes().data(), d.size() * sizeof(double));
    return d;
  }
  struct item {
    status result;
    std::uint64_t version;
    value_tag tag;
    std::vector<std::byte> value;
  };
  [[nodiscard]] std::vector<item> items() const {
    std::vector<item> all;
    net::reply_items walk(body, header.count);
    for (net::reply_item i; walk.next(i);) {
      all.push_back({i.result, i.version, i.value.tag, {i.value.bytes.begin(), i.value.bytes.end()}});
    }
    EXPECT_TRUE(walk.ok());
    return all;
  }
};

class shard_notebook final : public reply_sink {
 public:
  void send(const net::peer& to, const net::outgoing& message) override {
    EXPECT_EQ(to.size, 1);
    std::vector<std::byte> frame(message.head.begin(), message.head.end());
    frame.insert(frame.end(), message.body.begin(), message.body.end());
    net::reply_view view;
    ASSERT_EQ(net::decode(frame, message.tail.size(), view), nullptr);
    answers.push_back({view.header, {view.body.begin(), view.body.end()}, message.tail});
  }
  std::deque<answer> answers;
};

value_view view(const double& d) { return {value_tag::f64, std::as_bytes(std::span(&d, 1))}; }
value_view view(const std::vector<double>& d) { return {value_tag::f64_array, std::as_bytes(std::span(d))}; }

/// What a request carries besides key and value.
struct with {
  std::uint64_t function = 0;
  std::uint16_t flags = 0;
  std::uint32_t clock = net::no_clock;
  std::uint32_t rank = 0;
  std::uint32_t credit = 0;
  std::uint16_t partition = net::any_partition;
  std::uint64_t job = 0;
  std::uint32_t table = 0;
  unsigned shard = 0;
  shared_buffer tail{};
};

class ShardTest : public testing::Test {
 protected:
  ShardTest() { reset({}); }

  void reset(server_options o) {
    o.plugin_folders = {test::plugin_folder()};
    o.incarnation = 77;
    server_ = std::make_unique<server>(o);
  }
  answer send(net::request_header h, const std::vector<std::byte>& body, with w) {
    h.function = w.function;
    h.flags = w.flags;
    h.clock = w.clock;
    h.rank = w.rank;
    h.credit = w.credit;
    h.partition = w.partition;
    h.job = w.job;
    h.table = w.table;
    h.client = client_;
    h.sequence = ++sequence_;
    h.body_bytes = static_cast<std::uint32_t>(body.size());
    h.tail_bytes = w.tail.size();
    std::vector<std::byte> frame(net::request_header_bytes);
    net::encode(h, std::span<std::byte, net::request_header_bytes>(frame));
    frame.insert(frame.end(), body.begin(), body.end());
    net::request_view request;
    EXPECT_EQ(net::decode(frame, w.tail.size(), request), nullptr);
    net::peer from;
    from.size = 1;
    const auto before = sink_.answers.size();
    server_->handle(w.shard, request, std::move(w.tail), server_->completion_for(sink_, from, request.header));
    EXPECT_EQ(sink_.answers.size(), before + 1) << "exactly one answer";
    auto a = std::move(sink_.answers.back());
    sink_.answers.pop_back();
    EXPECT_EQ(a.header.sequence, sequence_);
    EXPECT_EQ(a.header.what, h.what);
    EXPECT_EQ(a.header.server, 77U);
    return a;
  }
  answer call(verb what, std::string_view key, const value_view& value = {}, with w = {}) {
    net::request_header h;
    h.what = what;
    h.tag = value.tag;
    h.key_bytes = static_cast<std::uint32_t>(key.size());
    std::vector<std::byte> body(net::bytes_of(key).begin(), net::bytes_of(key).end());
    body.insert(body.end(), value.bytes.begin(), value.bytes.end());
    return send(h, body, std::move(w));
  }
  answer call_tail(verb what, std::string_view key, value_tag tag, shared_buffer tail, with w = {}) {
    w.tail = std::move(tail);
    return call(what, key, {tag, {}}, std::move(w));
  }
  answer multi(verb what, const std::vector<std::pair<std::string, value_view>>& items, with w = {}) {
    net::request_header h;
    h.what = what;
    h.count = static_cast<std::uint32_t>(items.size());
    std::vector<std::byte> body;
    for (const auto& [key, value] : items) net::append_item(body, key, value);
    return send(h, body, std::move(w));
  }
  std::uint64_t function(const std::string& symbol, bool* additive = nullptr) {
    const auto a = call(verb::register_update, std::string("server_updates") + '\0' + symbol);
    EXPECT_EQ(a.header.result, status::ok) << a.text();
    std::uint64_t id = 0;
    EXPECT_EQ(a.body.size(), 9U);
    std::memcpy(&id, a.body.data(), sizeof id);
    if (additive != nullptr) *additive = a.body[8] != std::byte{0};
    return id;
  }
  void push(std::string_view key, double d) { ASSERT_EQ(call(verb::push, key, view(d)).header.result, status::ok); }
  double pull(std::string_view key, with w = {}) {
    const auto a = call(verb::pull, key, {}, std::move(w));
    EXPECT_EQ(a.header.result, status::ok) << a.text();
    return a.doubles().size() == 1 ? a.doubles()[0] : std::numeric_limits<double>::quiet_NaN();
  }
  [[nodiscard]] nlohmann::json stats() const { return nlohmann::json::parse(server_->stats_json()); }

  std::unique_ptr<server> server_;
  shard_notebook sink_;
  std::uint64_t client_ = 5;
  std::uint64_t sequence_ = 0;
};

TEST_F(ShardTest, APulledValueIsTheOneThatWasPushed) {
  const std::vector<double> theta{1, 2, 3};
  const auto pushed = call(verb::push, "theta", view(theta));
  EXPECT_EQ(pushed.header.result, status::ok);
  const auto pulled = call(verb::pull, "theta");
  EXPECT_EQ(pulled.header.result, status::ok);
  EXPECT_EQ(pulled.header.tag, value_tag::f64_array);
  EXPECT_EQ(pulled.header.value_version, pushed.header.value_version);
  EXPECT_EQ(pulled.doubles(), theta);
}

TEST_F(ShardTest, AKeyThatIsNotThereIsNotFound) {
  for (const auto v : {verb::pull, verb::contains, verb::remove}) {
    EXPECT_EQ(call(v, "nothing").header.result, status::not_found) << net::name_of(v);
  }
  push("a", 1);
  EXPECT_EQ(call(verb::contains, "a").header.result, status::ok);
  EXPECT_EQ(call(verb::remove, "a").header.result, status::ok);
  EXPECT_EQ(call(verb::contains, "a").header.result, status::not_found);
  EXPECT_EQ(stats()["keys"], 0);
}

TEST_F(ShardTest, WithoutAFunctionAnUpdateAdds) {
  EXPECT_EQ(call(verb::update, "a", view(2.5)).header.result, status::ok);
  EXPECT_EQ(pull("a"), 2.5) << "the delta became the value";
  const auto updated = call(verb::update, "a", view(1.0));
  EXPECT_EQ(updated.header.result, status::ok);
  EXPECT_TRUE(updated.body.empty()) << "an update does not send the value back";
  EXPECT_EQ(pull("a"), 3.5);
}

TEST_F(ShardTest, ABupdateAnswersTheNewValue) {
  const std::vector<double> one{1, 1}, two{2, 3};
  EXPECT_EQ(call(verb::bupdate, "v", view(one)).doubles(), one);
  const auto a = call(verb::bupdate, "v", view(two));
  EXPECT_THAT(a.doubles(), ElementsAre(3, 4));
  EXPECT_EQ(a.header.tag, value_tag::f64_array);
  EXPECT_EQ(call(verb::pull, "v").header.value_version, a.header.value_version);
}

TEST_F(ShardTest, ARegisteredFunctionRunsUnderItsId) {
  bool additive = true;
  const auto f = function("times_ten_plus_update", &additive);
  EXPECT_FALSE(additive);
  push("a", 1);
  for (const double d : {2.0, 3.0})
    EXPECT_EQ(call(verb::update, "a", view(d), {.function = f}).header.result, status::ok);
  EXPECT_EQ(pull("a"), 123);
}

TEST_F(ShardTest, TheNameOfAFunctionMayStandInTheKeyOrBesideIt) {
  const auto together = call(verb::register_update, std::string("server_updates\0append_update", 28));
  const value_view symbol{value_tag::none, net::bytes_of("append_update")};
  const auto apart = call(verb::register_bupdate, "server_updates", symbol);
  EXPECT_EQ(together.header.result, status::ok) << together.text();
  EXPECT_EQ(together.body, apart.body);
}

TEST_F(ShardTest, AFunctionMayMakeAValueOfAnotherSizeAndLargerThanAFrame) {
  const auto f = function("append_update");
  const std::vector<double> piece(5000, 1.5);  // 40 kB
  for (int i = 1; i <= 4; ++i) {
    const auto a = call(verb::bupdate, "list", view(piece), {.function = f});
    ASSERT_EQ(a.header.result, status::ok) << a.text();
    EXPECT_EQ(a.doubles(), std::vector<double>(5000UL * i, 1.5));
    EXPECT_EQ(static_cast<bool>(a.tail), a.doubles().size() * 8 > net::tail_threshold_bytes);
  }
}

TEST_F(ShardTest, AFunctionThatThrowsLeavesTheValueAndTheServerAsTheyWere) {
  const auto f = function("refuse_negative_update");
  push("a", 5);
  const auto before = call(verb::pull, "a").header.value_version;
  const auto a = call(verb::update, "a", view(-1.0), {.function = f});
  EXPECT_EQ(a.header.result, status::plugin_failed);
  EXPECT_THAT(a.text(), HasSubstr("a negative delta"));
  EXPECT_THAT(a.text(), HasSubstr("key \"a\""));
  EXPECT_THAT(a.text(), HasSubstr("refuse_negative_update"));
  EXPECT_EQ(pull("a"), 5);
  EXPECT_EQ(call(verb::pull, "a").header.value_version, before);
  EXPECT_EQ(call(verb::update, "a", view(2.0), {.function = f}).header.result, status::ok);
  EXPECT_EQ(pull("a"), 7);
}

TEST_F(ShardTest, AMismatchOfTypesNamesKeyAndBothTypes) {
  push("a", 5);
  const std::vector<double> v{1, 2};
  const auto a = call(verb::update, "a", view(v));
  EXPECT_EQ(a.header.result, status::type_mismatch);
  for (const auto* part : {"key \"a\"", "f64 array of 2", "f64", "paracel_add"}) EXPECT_THAT(a.text(), HasSubstr(part));
  EXPECT_EQ(pull("a"), 5);
}

TEST_F(ShardTest, AFunctionThatNobodyRegisteredIsUnknown) {
  EXPECT_EQ(call(verb::update, "a", view(1.0), {.function = 12345}).header.result, status::unknown_function);
  EXPECT_EQ(multi(verb::update_multi, {{"a", view(1.0)}}, {.function = 12345}).header.result, status::unknown_function);
  EXPECT_EQ(call(verb::contains, "a").header.result, status::not_found);
}

TEST_F(ShardTest, APluginThatIsMissingIsAnErrorOfTheRequest) {
  const auto a = call(verb::register_update, std::string("no_such_plugin\0f", 16));
  EXPECT_EQ(a.header.result, status::plugin_failed);
  EXPECT_THAT(a.text(), HasSubstr("no_such_plugin"));
  const auto b = call(verb::register_update, std::string("server_updates\0no_such_function", 31));
  EXPECT_EQ(b.header.result, status::plugin_failed);
  EXPECT_THAT(b.text(), HasSubstr("no_such_function"));
}

TEST_F(ShardTest, AFunctionMaySayHowAMissingKeyBegins) {
  const auto f = function("count_update");
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(call(verb::bupdate, "n", view(100.0), {.function = f}).doubles()[0], i);
}

TEST_F(ShardTest, BytesThatAreNoValueOfTheirTypeAreRefused) {
  const std::vector<std::byte> seven(7);
  for (const auto v : {verb::push, verb::update, verb::bupdate}) {
    for (const auto tag : {value_tag::f64, value_tag::i32_array, value_tag::none}) {
      EXPECT_EQ(call(v, "a", {tag, seven}).header.result, status::bad_request);
    }
  }
  EXPECT_EQ(call(verb::contains, "a").header.result, status::not_found);
}

TEST_F(ShardTest, AValueBeyondTheLimitIsTooLarge) {
  reset({.max_value_bytes = 100});
  EXPECT_EQ(call(verb::push, "a", view(std::vector<double>(12))).header.result, status::ok);
  EXPECT_EQ(call(verb::push, "b", view(std::vector<double>(13))).header.result, status::too_large);
  const auto f = function("append_update");
  const auto a = call(verb::update, "a", view(std::vector<double>(12)), {.function = f});
  EXPECT_EQ(a.header.result, status::too_large) << "a function cannot make one either";
  EXPECT_EQ(call(verb::pull, "a").doubles().size(), 12U);
}

TEST_F(ShardTest, APullIsCutByTheCreditOfTheClient) {
  ASSERT_EQ(call(verb::push, "a", view(std::vector<double>(100))).header.result, status::ok);
  EXPECT_EQ(call(verb::pull, "a", {}, {.credit = 799}).header.result, status::too_large);
  EXPECT_EQ(call(verb::pull, "a", {}, {.credit = 800}).header.result, status::ok);
}

// ---- large values ----------------------------------------------------------------------------------------------

TEST_F(ShardTest, ALargeValueIsStoredAndLeavesWithoutACopy) {
  const std::size_t n = 20'000;
  auto message = shared_buffer::allocate(n * sizeof(double));
  std::memset(message.mutable_data(), 0, message.size());
  const auto* where = message.data();
  ASSERT_EQ(call_tail(verb::push, "w", value_tag::f64_array, std::move(message)).header.result, status::ok);
  const auto a = call(verb::pull, "w");
  ASSERT_TRUE(a.tail);
  EXPECT_EQ(a.tail.data(), where);
}

TEST_F(ShardTest, ALargeUpdateThatIsAnsweredFirstIsSeenByTheNextRequest) {
  const std::size_t n = 20'000;
  const auto message = [](double x, std::size_t count) {
    auto m = shared_buffer::allocate(count * sizeof(double));
    std::fill_n(reinterpret_cast<double*>(m.mutable_data()), count, x);
    return m;
  };
  ASSERT_EQ(call_tail(verb::push, "w", value_tag::f64_array, message(1, n)).header.result, status::ok);
  const auto held = call(verb::pull, "w");
  for (int i = 1; i <= 3; ++i) {
    const auto a = call_tail(verb::update, "w", value_tag::f64_array, message(10, n));
    ASSERT_EQ(a.header.result, status::ok);
    const auto now = call(verb::pull, "w");
    EXPECT_EQ(now.header.value_version, a.header.value_version);
    EXPECT_EQ(now.doubles(), std::vector<double>(n, 1 + 10.0 * i));
  }
  EXPECT_EQ(held.doubles(), std::vector<double>(n, 1));
  // What can fail is tried before it is answered.
  EXPECT_NE(call_tail(verb::update, "w", value_tag::f64_array, message(10, n + 1)).header.result, status::ok);
  EXPECT_NE(call_tail(verb::update, "w", value_tag::i64_array, message(10, n)).header.result, status::ok);
  EXPECT_EQ(call(verb::pull, "w").doubles(), std::vector<double>(n, 31));
}

TEST_F(ShardTest, AReplyKeepsItsBytesWhenTheValueIsChangedInPlace) {
  const std::vector<double> zeros(20'000, 0.0), ones(20'000, 1.0);
  ASSERT_EQ(call(verb::push, "w", view(zeros)).header.result, status::ok);
  const auto held = call(verb::pull, "w");
  ASSERT_EQ(call(verb::update, "w", view(ones)).header.result, status::ok);
  EXPECT_EQ(held.doubles(), zeros);
  EXPECT_EQ(call(verb::pull, "w").doubles(), ones);
}

TEST_F(ShardTest, AMessageThatItsSenderStillHoldsIsCopied) {
  auto message = shared_buffer::allocate(100'000 * sizeof(double));
  std::memset(message.mutable_data(), 0, message.size());
  ASSERT_EQ(call_tail(verb::push, "w", value_tag::f64_array, message).header.result, status::ok);
  std::memset(message.mutable_data(), 1, message.size());
  EXPECT_EQ(call(verb::pull, "w").doubles()[0], 0.0);
}

TEST_F(ShardTest, ADeltaMayComeInItsOwnFrame) {
  const std::vector<double> ones(20'000, 1.0);
  auto delta = shared_buffer::allocate(ones.size() * sizeof(double));
  std::memcpy(delta.mutable_data(), ones.data(), delta.size());
  ASSERT_EQ(call_tail(verb::update, "w", value_tag::f64_array, delta).header.result, status::ok);
  ASSERT_EQ(call_tail(verb::update, "w", value_tag::f64_array, delta).header.result, status::ok);
  EXPECT_EQ(call(verb::pull, "w").doubles(), std::vector<double>(20'000, 2.0));
}

TEST_F(ShardTest, AValueInBothPlacesIsRefused) {
  EXPECT_EQ(call(verb::push, "w", view(1.0), {.tail = shared_buffer::allocate(8)}).header.result, status::bad_request);
  EXPECT_EQ(multi(verb::push_multi, {{"a", view(1.0)}}, {.tail = shared_buffer::allocate(8)}).header.result,
            status::bad_request);
}

// ---- many keys -------------------------------------------------------------------------------------------------

// ---- update_default and cas ---------------------------------------------------------------------------------------

std::vector<std::byte> payload_of(const value_view& initial, const value_view& delta) {
  std::vector<std::byte> payload;
  net::append_item(payload, {}, initial);
  net::append_item(payload, {}, delta);
  return payload;
}
/// A shared_buffer of its own: versions stand before the value.
std::vector<std::byte> expecting(std::uint64_t version, const value_view& value) {
  std::vector<std::byte> payload(sizeof version);
  std::memcpy(payload.data(), &version, sizeof version);
  payload.insert(payload.end(), value.bytes.begin(), value.bytes.end());
  return payload;
}

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
  EXPECT_THAT(absent.text(), HasSubstr("\"a\" is not there, expected 7"));

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

// ---- who owns what ---------------------------------------------------------------------------------------------

TEST_F(ShardTest, AKeyOfAnotherThreadIsRefusedAndNotStored) {
  reset({.threads = 4});
  for (int i = 0; i < 50; ++i) {
    const auto key = "k" + std::to_string(i);
    const auto home = shard_of(partition_of(hash_key(key)), 4);
    for (unsigned s = 0; s < 4; ++s) {
      EXPECT_EQ(call(verb::push, key, view(1.0), {.shard = s}).header.result,
                s == home ? status::ok : status::wrong_owner);
      const auto items = multi(verb::push_multi, {{key, view(1.0)}}, {.shard = s}).items();
      EXPECT_EQ(items[0].result, s == home ? status::ok : status::wrong_owner);
    }
  }
  EXPECT_EQ(stats()["keys"], 50);
}

TEST_F(ShardTest, AHeaderWithTheWrongPartitionIsRefused) {
  const auto right = partition_of(hash_key("a"));
  EXPECT_EQ(call(verb::push, "a", view(1.0), {.partition = right}).header.result, status::ok);
  const auto wrong = static_cast<std::uint16_t>((right + 1) % partition_count);
  EXPECT_EQ(call(verb::push, "a", view(1.0), {.partition = wrong}).header.result, status::bad_request);
}

TEST_F(ShardTest, WithAMembershipOnlyTheRingsShareIsServed) {
  membership m;
  m.epoch = 9;
  for (std::uint32_t slot = 0; slot < 2; ++slot) {
    server_entry s;
    s.slot = slot;
    s.shards = {"inproc://x"};
    m.servers.push_back(s);
  }
  server_->set_membership(m);
  const key_router router(m);
  int ours = 0;
  for (int i = 0; i < 200; ++i) {
    const auto key = "k" + std::to_string(i);
    const auto a = call(verb::push, key, view(1.0));
    EXPECT_EQ(a.header.epoch, 9U);
    const bool mine = router.locate(key).server == 0;
    EXPECT_EQ(a.header.result, mine ? status::ok : status::wrong_owner);
    ours += mine ? 1 : 0;
  }
  EXPECT_GT(ours, 50);
  EXPECT_LT(ours, 150);
  EXPECT_THROW((server_->set_membership({.epoch = 10, .servers = {m.servers[1]}})), error);
  EXPECT_EQ(server_->epoch(), 9U);
}

TEST_F(ShardTest, ARequestOfAnotherJobIsRefused) {
  reset({.job = 5});
  EXPECT_EQ(call(verb::push, "a", view(1.0), {.job = 5}).header.result, status::ok);
  EXPECT_EQ(call(verb::push, "a", view(1.0), {.job = 6}).header.result, status::wrong_job);
  EXPECT_EQ(call(verb::clear, "", {}, {.job = 6}).header.result, status::wrong_job);
  EXPECT_EQ(stats()["keys"], 1);
}

TEST_F(ShardTest, VerbsOfOtherThreadsAndTablesThatDoNotExistAreBadRequests) {
  for (const auto v :
       {verb::clock_tick, verb::clock_wait, verb::proxy, verb::stats, verb::stop, verb::join, verb::abort}) {
    const auto a = call(v, "");
    EXPECT_EQ(a.header.result, status::bad_request);
    EXPECT_THAT(a.text(), HasSubstr(net::name_of(v)));
  }
  EXPECT_EQ(call(verb::pull, "a", {}, {.table = 1}).header.result, status::bad_request);
  EXPECT_EQ(call(verb::ping, "").header.result, status::ok);
}

TEST_F(ShardTest, AClearedShardIsEmptyAndGivesItsMemoryBack) {
  const auto before = stats()["memory_bytes"];
  for (int i = 0; i < 1000; ++i) push("k" + std::to_string(i), i);
  ASSERT_EQ(call(verb::push, "large", view(std::vector<double>(50'000))).header.result, status::ok);
  const std::uint64_t memory = stats()["memory_bytes"];
  EXPECT_GT(memory, 450'000U);
  EXPECT_EQ(call(verb::clear, "").header.count, 1001U);
  EXPECT_EQ(stats()["keys"], 0);
  EXPECT_EQ(stats()["memory_bytes"], before);
  EXPECT_EQ(call(verb::contains, "k1").header.result, status::not_found);
}

TEST_F(ShardTest, StatsCountRequestsKeysAndFailures) {
  push("a", 1);
  call(verb::pull, "a");
  call(verb::pull, "b");
  call(verb::update, "a", view(std::vector<double>(3)));
  const auto s = stats();
  EXPECT_EQ(s["shards"][0]["requests"]["pull"], 2);
  EXPECT_EQ(s["shards"][0]["requests"]["push"], 1);
  EXPECT_EQ(s["shards"][0]["failures"], 1) << "not being there is no failure";
  EXPECT_EQ(s["keys"], 1);
  EXPECT_GT(s["shards"][0]["bytes_in"], 4 * 96);
}

// ---- BSP -------------------------------------------------------------------------------------------------------

class BspTest : public ShardTest {
 protected:
  void SetUp() override {
    f_ = function("times_ten_plus_update");
    push("a", 0);
  }
  status stage(std::uint32_t clock, std::uint32_t rank, double digit, std::string_view key = "a") {
    return call(verb::update, key, view(digit),
                {.function = f_, .flags = net::flag_staged, .clock = clock, .rank = rank})
        .header.result;
  }
  double read(std::uint32_t clock) { return pull("a", {.flags = net::flag_bsp_read, .clock = clock}); }
  std::uint64_t f_ = 0;
};

TEST_F(BspTest, StagedUpdatesAreFoldedInRankOrderWhateverTheirArrival) {
  for (const std::uint32_t rank : {3U, 1U, 2U}) EXPECT_EQ(stage(0, rank, rank), status::ok);
  EXPECT_EQ(pull("a"), 0) << "an ordinary read sees nothing of them";
  EXPECT_EQ(read(1), 123);
  EXPECT_EQ(read(1), 123) << "once";
  EXPECT_EQ(pull("a"), 123);
}

TEST_F(BspTest, UpdatesOfTheSameRankKeepTheirOrder) {
  for (const double d : {4.0, 2.0, 7.0}) stage(0, 1, d);
  stage(0, 0, 9);
  EXPECT_EQ(read(1), 9427);
}

TEST_F(BspTest, OnlyIterationsBeforeTheReadersClockAreFolded) {
  stage(0, 0, 1);
  stage(1, 0, 3);
  stage(0, 1, 2);
  EXPECT_EQ(read(0), 0);
  EXPECT_EQ(read(1), 12);
  EXPECT_EQ(stats()["shards"][0]["staged"], 1);
  EXPECT_EQ(read(2), 123);
  EXPECT_EQ(stats()["shards"][0]["staged"], 0);
}

TEST_F(BspTest, AFenceDropsWhatARankHasStagedAndRefusesTheProcessBefore) {
  stage(0, 1, 1);
  stage(1, 1, 7);
  stage(1, 2, 2);
  EXPECT_EQ(stage(1, 1, 8, "new"), status::ok);
  const std::uint64_t before = 6;  // a client; ours is 5
  const auto fence = [&](std::uint32_t clock) {
    return call(verb::fence, {}, {value_tag::none, std::as_bytes(std::span(&before, 1))}, {.clock = clock, .rank = 1})
        .header;
  };
  EXPECT_EQ(fence(1).result, status::ok);
  EXPECT_EQ(stats()["shards"][0]["staged"], 2);
  EXPECT_EQ(fence(1).count, 0U) << "once";
  EXPECT_EQ(stage(1, 1, 3), status::ok) << "the iteration is made again";
  EXPECT_EQ(read(2), 132);
  EXPECT_EQ(call(verb::contains, "new", {}, {.flags = net::flag_bsp_read, .clock = 2}).header.result,
            status::not_found);
  EXPECT_EQ(fence(net::no_clock).result, status::bad_request);
  EXPECT_EQ(call(verb::fence, {}, {value_tag::none, std::as_bytes(std::span("odd"))}, {.clock = 1}).header.result,
            status::bad_request);
  client_ = before;
  const auto refused = call(verb::push, "a", view(0));
  EXPECT_EQ(refused.header.result, status::bad_request);
  EXPECT_EQ(refused.text(), "another process is the worker of rank 0 now");
  client_ = 5;
  EXPECT_EQ(pull("a"), 132);
}

// Nobody reads: what is due is folded in slices when the clock has moved, and takes no memory any more.
TEST_F(BspTest, WhatIsDueIsFoldedInSlicesWhenTheClockHasMoved) {
  constexpr int keys = 100;
  for (int k = 0; k < keys; ++k) {
    for (const std::uint32_t rank : {2U, 1U}) EXPECT_EQ(stage(0, rank, rank, "k" + std::to_string(k)), status::ok);
  }
  stage(1, 0, 5, "k7");
  auto& shard = server_->at(0);
  const auto at_once = [] { return true; };
  EXPECT_FALSE(shard.has_due());
  EXPECT_EQ(call(verb::clock_moved, {}, {}, {.clock = 1}).header.result, status::ok);
  EXPECT_TRUE(shard.has_due());
  EXPECT_TRUE(shard.fold_due(at_once));
  EXPECT_EQ(stats()["shards"][0]["staged"], 2 * keys + 1 - 2) << "one key a slice";
  // A read in between sees all of its iterations, whether they were folded or not.
  EXPECT_EQ(pull("k99", {.flags = net::flag_bsp_read, .clock = 1}), 12);
  EXPECT_EQ(pull("k0", {.flags = net::flag_bsp_read, .clock = 1}), 12);
  int slices = 1;
  while (shard.fold_due(at_once)) ++slices;
  EXPECT_GE(slices, keys - 2);
  EXPECT_EQ(stats()["shards"][0]["staged"], 1);
  for (int k = 0; k < keys; ++k) EXPECT_EQ(pull("k" + std::to_string(k)), 12);
  EXPECT_FALSE(shard.has_due());
  (void)call(verb::clock_moved, {}, {}, {.clock = 2});
  while (shard.fold_due(at_once)) {
  }
  EXPECT_EQ(pull("k7"), 125);
  EXPECT_EQ(stats()["shards"][0]["staged"], 0);
}

// The slowest worker moves the clock one by one, far behind the others, whose updates come in any order.
TEST_F(BspTest, AKeyWithUpdatesOfManyIterationsIsVisitedOnceAClock) {
  auto& shard = server_->at(0);
  constexpr std::uint32_t clocks = 12;
  for (std::uint32_t clock = clocks; clock-- > 0;) EXPECT_EQ(stage(clock, 0, 1), status::ok);
  for (std::uint32_t clock = 1; clock <= clocks; ++clock) {
    (void)call(verb::clock_moved, {}, {}, {.clock = clock});
    int slices = 1;
    while (shard.fold_due([] { return true; })) ++slices;
    EXPECT_LE(slices, 2) << clock;
    EXPECT_EQ(stats()["shards"][0]["staged"], clocks - clock);
  }
  EXPECT_EQ(pull("a"), 111'111'111'111.0);
}

TEST_F(BspTest, AnUpdateThatCannotFitIsRefusedWhenItIsStaged) {
  const with staged{.flags = net::flag_staged, .clock = 0, .rank = 1};
  const std::array<double, 2> two{1, 2};
  const std::array<double, 3> three{1, 2, 3};
  const value_view of_two{value_tag::f64_array, std::as_bytes(std::span(two))};
  const value_view of_three{value_tag::f64_array, std::as_bytes(std::span(three))};
  ASSERT_EQ(call(verb::push, "v", of_two).header.result, status::ok);
  const auto a = call(verb::update, "v", of_three, staged);
  EXPECT_EQ(a.header.result, status::type_mismatch);
  EXPECT_THAT(a.text(), HasSubstr("key \"v\""));
  EXPECT_EQ(call(verb::update, "v", of_two, staged).header.result, status::ok);
  // A key that is not there becomes the first delta; no other size can be added to it.
  EXPECT_EQ(call(verb::update, "new", of_three, staged).header.result, status::ok);
  EXPECT_EQ(call(verb::update, "new", of_two, staged).header.result, status::type_mismatch);
  EXPECT_EQ(call(verb::update, "new", view(1.0), staged).header.result, status::type_mismatch);
  const std::array<std::uint32_t, 2> beyond{7, 0};
  std::vector<std::byte> element(sizeof(std::uint32_t) + sizeof(double));
  std::memcpy(element.data(), beyond.data(), sizeof(std::uint32_t));
  EXPECT_NE(call(verb::update_at, "v", {value_tag::f64_array, element}, staged).header.result, status::ok);
  EXPECT_EQ(stats()["shards"][0]["staged"], 2) << "what was refused is not staged";
  EXPECT_EQ(call(verb::fold, {}, {}, {.clock = 1}).header.result, status::ok);
}

TEST_F(BspTest, WhatCannotBeFoldedIsToldToWhoAsksAndToWhoStagesNext) {
  const auto refuse = function("refuse_negative_update");
  EXPECT_EQ(call(verb::update, "a", view(-1.0), {.function = refuse, .flags = net::flag_staged, .clock = 0, .rank = 4})
                .header.result,
            status::ok);
  EXPECT_EQ(call(verb::fold, {}, {}, {.clock = 0}).header.result, status::ok) << "it is not due";
  (void)call(verb::clock_moved, {}, {}, {.clock = 1});
  while (server_->at(0).fold_due([] { return false; })) {
  }
  for (int time = 0; time < 2; ++time) {
    const auto asked = call(verb::fold, {}, {}, {.clock = 1});
    EXPECT_EQ(asked.header.result, status::plugin_failed);
    EXPECT_THAT(asked.text(), HasSubstr("key \"a\""));
    EXPECT_THAT(asked.text(), HasSubstr("rank 4 in iteration 0"));
    EXPECT_THAT(asked.text(), HasSubstr("a negative delta"));
  }
  EXPECT_EQ(stage(1, 0, 1, "another"), status::plugin_failed);
  push("a", 1);  // whoever writes the key has mended it
  EXPECT_EQ(call(verb::fold, {}, {}, {.clock = 1}).header.result, status::ok);
  EXPECT_EQ(stage(1, 0, 1, "another"), status::ok);
}

TEST_F(BspTest, EveryOrderOfArrivalGivesTheSameBits) {
  std::optional<double> expected;
  std::mt19937 random(3);
  for (int run = 0; run < 20; ++run) {
    ASSERT_EQ(call(verb::clear, "").header.result, status::ok);
    push("a", 0.1);
    std::vector<std::pair<std::uint32_t, double>> updates;
    for (std::uint32_t rank = 0; rank < 8; ++rank) updates.emplace_back(rank, 0.1 * rank);
    std::shuffle(updates.begin(), updates.end(), random);
    for (const auto& [rank, d] : updates) {
      call(verb::update, "a", view(d), {.flags = net::flag_staged, .clock = 0, .rank = rank});
    }
    const auto got = read(1);
    if (!expected) expected = got;
    EXPECT_EQ(std::bit_cast<std::uint64_t>(got), std::bit_cast<std::uint64_t>(*expected));
  }
}

TEST_F(BspTest, AStagedUpdateOfAMissingKeyBecomesItsValueAtTheRead) {
  EXPECT_EQ(stage(0, 0, 5, "new"), status::ok);
  EXPECT_EQ(call(verb::contains, "new").header.result, status::not_found);
  EXPECT_EQ(call(verb::contains, "new", {}, {.flags = net::flag_bsp_read, .clock = 1}).header.result, status::ok);
  EXPECT_EQ(pull("new"), 5);
}

TEST_F(BspTest, AKeyThatIsNeverReadDoesNotGatherItsUpdates) {
  push("b", 0);
  for (std::uint32_t clock = 0; clock < 1000; ++clock) {
    stage(clock, 0, 0, "b");
    read(clock + 1);
  }
  EXPECT_LE(stats()["shards"][0]["staged"], 1);
}

TEST_F(BspTest, PushAndBupdateAreImmediate) {
  stage(0, 0, 7);
  push("a", 3);
  EXPECT_EQ(pull("a"), 3);
  const auto a = call(verb::bupdate, "a", view(1.0), {.function = f_, .flags = net::flag_staged, .clock = 0});
  EXPECT_EQ(a.doubles()[0], 31);
  EXPECT_EQ(read(1), 317);
}

TEST_F(BspTest, RemovingAKeyDropsWhatWasStagedForIt) {
  stage(0, 0, 7);
  EXPECT_EQ(call(verb::remove, "a").header.result, status::ok);
  EXPECT_EQ(stats()["shards"][0]["staged"], 0);
  EXPECT_EQ(call(verb::pull, "a", {}, {.flags = net::flag_bsp_read, .clock = 1}).header.result, status::not_found);
}

TEST_F(BspTest, AManyKeyReadFoldsEachOfItsKeys) {
  push("b", 0);
  EXPECT_EQ(multi(verb::update_multi, {{"a", view(1.0)}, {"b", view(2.0)}},
                  {.function = f_, .flags = net::flag_staged, .clock = 0})
                .items()[1]
                .result,
            status::ok);
  EXPECT_EQ(pull("b"), 0);
  const auto items = multi(verb::pull_multi, {{"a", {}}, {"b", {}}}, {.flags = net::flag_bsp_read, .clock = 1}).items();
  double b = 0;
  std::memcpy(&b, items[1].value.data(), 8);
  EXPECT_EQ(b, 2);
}

TEST_F(BspTest, AStagedUpdateThatFailsIsToldToEveryReaderUntilTheKeyIsWritten) {
  const auto refuse = function("refuse_negative_update");
  const with staged{.function = refuse, .flags = net::flag_staged, .clock = 0, .rank = 4};
  EXPECT_EQ(call(verb::update, "a", view(-1.0), staged).header.result, status::ok);
  for (int reader = 0; reader < 2; ++reader) {
    const auto a = call(verb::pull, "a", {}, {.flags = net::flag_bsp_read, .clock = 1});
    EXPECT_EQ(a.header.result, status::plugin_failed);
    EXPECT_THAT(a.text(), HasSubstr("rank 4"));
    EXPECT_THAT(a.text(), HasSubstr("a negative delta"));
  }
  push("a", 1);
  EXPECT_EQ(read(1), 1);
}

TEST_F(BspTest, AStagedUpdateWithADefaultLooksWhetherTheKeyIsThereWhenItIsFolded) {
  const auto payload = payload_of(view(100), view(1));
  const value_view both{value_tag::none, payload};
  const auto stage_default = [&](std::uint32_t clock, std::uint32_t rank) {
    const auto a = call(verb::update_default, "new", both, {.flags = net::flag_staged, .clock = clock, .rank = rank});
    EXPECT_EQ(a.header.result, status::ok) << a.text();
  };
  for (const auto rank : {2U, 0U, 1U}) stage_default(3, rank);
  EXPECT_EQ(call(verb::contains, "new").header.result, status::not_found) << "staged";
  EXPECT_EQ(pull("new", {.flags = net::flag_bsp_read, .clock = 4}), 102)
      << "the first gives the default, the others update it";

  stage_default(4, 0);
  push("new", 7);  // immediate: the key is there when the update is folded
  EXPECT_EQ(pull("new", {.flags = net::flag_bsp_read, .clock = 5}), 8);
}

TEST_F(BspTest, CasSeesWhatIsFoldedAndIsImmediate) {
  push("a", 1);
  const auto before = call(verb::pull, "a").header.value_version;
  EXPECT_EQ(call(verb::update, "a", view(1), {.flags = net::flag_staged, .clock = 0}).header.result, status::ok);
  const auto payload = expecting(before, view(5));
  const auto late = call(verb::cas, "a", {value_tag::f64, payload}, {.flags = net::flag_bsp_read, .clock = 1});
  EXPECT_EQ(late.header.result, status::conflict) << "the staged update is part of what it looks at";
  const auto right = expecting(late.header.value_version, view(5));
  EXPECT_EQ(call(verb::cas, "a", {value_tag::f64, right}, {.flags = net::flag_bsp_read, .clock = 1}).header.result,
            status::ok);
  EXPECT_EQ(pull("a"), 5);
}

TEST_F(BspTest, ALargeStagedDeltaIsFoldedToo) {
  const std::vector<double> ones(20'000, 1.0);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    auto delta = shared_buffer::allocate(ones.size() * sizeof(double));
    std::memcpy(delta.mutable_data(), ones.data(), delta.size());
    ASSERT_EQ(call_tail(verb::update, "w", value_tag::f64_array, std::move(delta),
                        {.flags = net::flag_staged, .clock = 0, .rank = rank})
                  .header.result,
              status::ok);
  }
  EXPECT_EQ(call(verb::pull, "w", {}, {.flags = net::flag_bsp_read, .clock = 1}).doubles(),
            std::vector<double>(20'000, 3.0));
}

// ---- walks: what the shard adds to scan_test.cpp -------------------------------------------------------------------

value_view payload_of(std::vector<std::byte>& bytes, const auto& request) {
  bytes.clear();
  append(bytes, request);
  return {value_tag::none, bytes};
}

TEST_F(ShardTest, AFilterIsRegisteredUnderAnIdOfItsOwn) {
  const auto registered = call(verb::register_filter, std::string("filters") + '\0' + "ends_with_seven");
  ASSERT_EQ(registered.header.result, status::ok) << registered.text();
  std::uint64_t id = 0;
  std::memcpy(&id, registered.body.data(), sizeof id);
  for (const char* key : {"a7", "a8", "b7"}) push(key, 1);
  std::vector<std::byte> bytes;
  const auto all = call(verb::scan, "", payload_of(bytes, net::scan_request{}), {.function = id});
  EXPECT_EQ(all.header.count, 2U);
  EXPECT_EQ(all.header.flags, 0);
  EXPECT_EQ(call(verb::update, "a7", view(1.0), {.function = id}).header.result, status::unknown_function)
      << "a filter is no update function";
  const auto refused = call(verb::register_filter, std::string("filters") + '\0' + "not_a_filter");
  EXPECT_EQ(refused.header.result, status::plugin_failed);
  EXPECT_THAT(refused.text(), HasSubstr("is an update function, and a filter was asked for"));
  EXPECT_THAT(call(verb::register_filter, std::string("filters") + '\0' + "of_another_abi").text(), HasSubstr("ABI 2"));
  EXPECT_EQ(stats()["shards"][0]["requests"]["scan"], 1);
}

TEST_F(ShardTest, AWalkOfABspReaderFoldsEveryKeyFirst) {
  std::vector<std::byte> bytes;
  push("a", 1);
  for (const char* key : {"a", "b", "c"}) {
    for (const std::uint32_t clock : {0U, 1U}) {
      (void)call(verb::update, key, view(10.0), {.flags = net::flag_staged, .clock = clock});
    }
  }
  const auto sum = [&](std::uint32_t clock) {
    const auto a =
        call(verb::reduce, "", payload_of(bytes, net::reduce_request{}), {.flags = net::flag_bsp_read, .clock = clock});
    EXPECT_EQ(a.header.result, status::ok) << a.text();
    net::scan_reply r;
    net::summary s;
    EXPECT_EQ(decode(a.body, r), nullptr);
    EXPECT_EQ(decode(r.rest, s), nullptr);
    return s.total();
  };
  EXPECT_EQ(sum(0), 1);
  EXPECT_EQ(sum(1), 31);
  EXPECT_EQ(sum(1), 31);
  EXPECT_EQ(stats()["shards"][0]["staged"], 3);
  // One that comes late, for a clock that everybody has folded, does not wait for anything.
  (void)call(verb::update, "late", view(5.0), {.flags = net::flag_staged, .clock = 0});
  EXPECT_EQ(sum(1), 36);
  EXPECT_EQ(sum(2), 66);
  EXPECT_EQ(stats()["shards"][0]["staged"], 0);
  // A staged update that cannot be folded is told to who walks over its key, and forgotten with the key.
  push("text", 1);
  ASSERT_EQ(call(verb::update, "text", view(1.0), {.flags = net::flag_staged, .clock = 2}).header.result, status::ok);
  ASSERT_EQ(call(verb::push, "text", {value_tag::packed, std::as_bytes(std::span("\xa1x", 2))}).header.result,
            status::ok);
  const auto told =
      call(verb::scan, "", payload_of(bytes, net::scan_request{}), {.flags = net::flag_bsp_read, .clock = 3});
  EXPECT_NE(told.header.result, status::ok);
  EXPECT_THAT(told.text(), HasSubstr("a staged update of rank 0"));
  EXPECT_EQ(call(verb::remove_if, "text", payload_of(bytes, net::scan_request{})).header.count, 1U);
  EXPECT_EQ(sum(3), 66);
}

TEST_F(ShardTest, KeysThatAreRemovedByAWalkTakeTheirStagedUpdatesAlong) {
  std::vector<std::byte> bytes;
  push("gone", 1);
  (void)call(verb::update, "gone", view(10.0), {.flags = net::flag_staged, .clock = 0});
  EXPECT_EQ(call(verb::remove_if, "gone", payload_of(bytes, net::scan_request{})).header.count, 1U);
  EXPECT_EQ(stats()["shards"][0]["staged"], 0);
  EXPECT_EQ(call(verb::pull, "gone", {}, {.flags = net::flag_bsp_read, .clock = 1}).header.result, status::not_found);
  EXPECT_EQ(stats()["keys"], 0);
}

// ---- --max-memory ---------------------------------------------------------------------------------------------------

TEST_F(ShardTest, BeyondItsMemoryAServerTakesNoMoreButGoesOn) {
  reset({.max_memory_bytes = 100'000});
  const std::vector<double> value(100);
  int taken = 0;
  auto last = call(verb::push, "k0", view(value));
  while (last.header.result == status::ok && taken < 1000)
    last = call(verb::push, "k" + std::to_string(++taken), view(value));
  EXPECT_EQ(last.header.result, status::out_of_memory);
  EXPECT_THAT(last.text(), HasSubstr("--max-memory"));
  EXPECT_GT(taken, 80);
  EXPECT_LT(taken, 125);
  EXPECT_LE(stats()["memory_bytes"], 100'000);
  // What does not grow it goes on: reads, values in place of others, updates in place.
  EXPECT_EQ(call(verb::pull, "k0").doubles(), value);
  EXPECT_EQ(call(verb::push, "k0", view(value)).header.result, status::ok);
  EXPECT_EQ(call(verb::update, "k0", view(value)).header.result, status::ok);
  const std::vector<double> larger(200);
  EXPECT_EQ(call(verb::push, "k0", view(larger)).header.result, status::out_of_memory);
  EXPECT_EQ(call(verb::update, "new", view(value)).header.result, status::out_of_memory);
  EXPECT_EQ(call(verb::update, "k0", view(value), {.flags = net::flag_staged, .clock = 0}).header.result,
            status::out_of_memory);
  EXPECT_EQ(call(verb::update, "k0", view(value), {.function = function("append_update")}).header.result,
            status::out_of_memory);
  auto tail = shared_buffer::allocate(200'000);
  std::memset(tail.mutable_data(), 0, tail.size());
  EXPECT_EQ(call_tail(verb::push, "tail", value_tag::f64_array, std::move(tail)).header.result, status::out_of_memory);
  const auto items = multi(verb::push_multi, {{"k1", view(value)}, {"new", view(value)}}).items();
  EXPECT_EQ(items[0].result, status::ok);
  EXPECT_EQ(items[1].result, status::out_of_memory);
  EXPECT_EQ(call(verb::pull, "k0").doubles(), value) << "what was refused has changed nothing";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(call(verb::remove, "k" + std::to_string(i)).header.result, status::ok);
  EXPECT_EQ(call(verb::push, "new", view(value)).header.result, status::ok);
}

}  // namespace
}  // namespace paracel::srv
