// SPDX-License-Identifier: BSD-3-Clause
//
// Verbs of one key on a shard, its errors and counters, and its behaviour at the memory limit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "net/protocol.hpp"
#include "server/shard/shard.hpp"
#include "test/support/shard_test.hpp"

namespace paracel::srv {
namespace {

using net::status;
using net::verb;
using testing::ElementsAre;
using testing::HasSubstr;
using ShardTest = test::shard_test;

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
  // Updates that can fail are executed before the reply.
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

// ---- ownership -------------------------------------------------------------------------------------------------

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
  // Operations that need no more memory still work: reads, replacing values, updates in place.
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

TEST_F(ShardTest, NanThatAnUpdateStoresIsCountedWithFunctionAndKey) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinite = std::numeric_limits<double>::infinity();
  push("good", 1);
  push("far", infinite);
  for (int i = 0; i < 100; ++i) {
    call(verb::update, "good", view(1.0));
    call(verb::update, "far", view(1.0));
  }
  EXPECT_FALSE(stats().contains("nan")) << "infinity is a distance";
  call(verb::update, "good", view(nan));
  for (int i = 0; i < 40; ++i) call(verb::update, "good", view(1.0));
  const auto all = stats()["nan"];
  const auto seen = all.begin();
  EXPECT_THAT(seen.key(), HasSubstr("paracel_add"));
  const int noticed = seen.value()["updates"];
  EXPECT_GE(noticed, 2) << "one in eight is checked, at most 15 apart";
  EXPECT_THAT(seen.value()["first"].get<std::string>(), HasSubstr("\"good\""));
  // Of a long array other elements are checked each time.
  ASSERT_EQ(call(verb::push, "list", view(std::vector<double>(1000))).header.result, status::ok);
  std::vector<double> delta(1000);
  delta[777] = nan;
  const auto count = [&] {
    const auto now = stats()["nan"];
    return now.begin().value()["updates"].get<int>();
  };
  for (int i = 0; i < 4 * 8 * 1000 / 16; ++i) call(verb::update, "list", view(delta));
  EXPECT_GT(count(), noticed);
}

TEST_F(ShardTest, NanIsNoticedWhateverTheRhythmOfTheUpdates) {
  for (int i = 0; i < 8; ++i) push("key " + std::to_string(i), 1);
  call(verb::update, "key 0", view(std::numeric_limits<double>::quiet_NaN()));
  for (int round = 0; round < 100 && !stats().contains("nan"); ++round)
    for (int i = 0; i < 8; ++i) call(verb::update, "key " + std::to_string(i), view(1.0));
  EXPECT_TRUE(stats().contains("nan")) << "every eighth update is that of one key";
}

}  // namespace
}  // namespace paracel::srv
