// SPDX-License-Identifier: BSD-3-Clause
//
// Staged updates in a shard: when and in which order they are folded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
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
  const std::uint64_t before = 6;  // another client; ours is 5
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

// Without reads: due updates are folded in slices when the clock has advanced, and their memory is released.
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
  // A read in between sees all of its iterations, whether they were already folded or not.
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

// The slowest worker advances the clock step by step, far behind the others, whose updates arrive in any order.
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
  // A missing key is set to the first delta; deltas of other sizes cannot be added to it.
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
  push("a", 1);  // writing the key repairs it
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
  push("new", 7);  // immediate: the key exists when the update is folded
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

}  // namespace
}  // namespace paracel::srv
