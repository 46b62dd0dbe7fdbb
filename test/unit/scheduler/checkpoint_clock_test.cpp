// SPDX-License-Identifier: BSD-3-Clause
//
// The clock of a job that writes checkpoints: where it tells the workers to stop, and its state after a handover.
#include <gtest/gtest.h>

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <paracel/error.hpp>

#include "core/membership.hpp"
#include "server/node/server.hpp"
#include "server/shard/clock_service.hpp"
#include "server/store/partition_records.hpp"
#include "test/support/replies.hpp"

namespace paracel {
namespace {

using net::instruction;
using net::verb;
using nlohmann::json;

/// What a replica is sent.
std::vector<std::byte> records_of(srv::clock_service& clock) {
  std::vector<std::byte> records;
  clock.encode_partition(clock_partition, records);
  return records;
}

class CheckpointClock : public testing::Test {
 protected:
  /// The reply to a tick, or to `what`.
  net::reply_header ask(std::uint32_t rank, std::uint32_t clock, verb what = verb::clock_tick) {
    net::request_view r;
    r.header.what = what;
    r.header.rank = rank;
    r.header.clock = clock;
    clock_->handle(r, srv::completion(sink_, {}, what, ++sequence_, 0, 0), {});
    return sink_.all.at(sequence_).header;
  }
  bool stops(std::uint32_t rank, std::uint32_t clock) { return ask(rank, clock).order == instruction::checkpoint; }

  test::replies_by_sequence sink_;
  std::optional<srv::clock_service> clock_{std::in_place, 3};
  std::uint64_t sequence_ = 0;
};

TEST_F(CheckpointClock, EveryWorkerStopsAtEveryMultipleAndNowhereElse) {
  clock_->checkpoint_every(3);
  for (std::uint32_t c = 1; c <= 9; ++c)
    for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(stops(rank, c), c % 3 == 0) << rank << " at " << c;
  EXPECT_FALSE(stops(0, net::no_clock)) << "who leaves";
}

TEST_F(CheckpointClock, OneThatIsAskedForComesWhereNobodyHasBeen) {
  for (std::uint32_t c = 1; c <= 4; ++c) EXPECT_FALSE(stops(0, c));
  EXPECT_FALSE(stops(1, 1));
  EXPECT_EQ(ask(0, net::no_clock, verb::checkpoint).clock, 5U);
  EXPECT_TRUE(stops(0, 5));
  EXPECT_EQ(ask(0, net::no_clock, verb::checkpoint).clock, 6U) << "while others still come to the first";
  for (std::uint32_t rank = 1; rank < 3; ++rank)
    for (std::uint32_t c = rank == 1 ? 2 : 1; c <= 7; ++c) EXPECT_EQ(stops(rank, c), c == 5 || c == 6);
  EXPECT_TRUE(stops(0, 6));
  EXPECT_FALSE(stops(0, 7));
}

TEST_F(CheckpointClock, ATickThatIsSentAgainIsOrderedToStopAgain) {
  clock_->checkpoint_every(2);
  EXPECT_FALSE(stops(1, 1));
  EXPECT_TRUE(stops(1, 2));
  EXPECT_TRUE(stops(1, 2));
}

TEST_F(CheckpointClock, WhoTakesTheClockOverKnowsWhatWasAskedFor) {
  EXPECT_FALSE(stops(0, 4));
  std::vector<std::byte> records;
  const auto take = [&] {
    clock_->take_changes([&](std::uint16_t partition, std::span<const std::byte> changed) {
      EXPECT_EQ(partition, clock_partition);
      records.assign(changed.begin(), changed.end());
    });
  };
  take();
  EXPECT_FALSE(clock_->has_changes());
  EXPECT_EQ(ask(0, net::no_clock, verb::checkpoint).clock, 5U);
  EXPECT_TRUE(clock_->has_changes()) << "or no copy hears of it";
  EXPECT_TRUE(stops(0, 5));
  take();
  clock_.emplace(3);
  std::string why;
  EXPECT_EQ(clock_->apply_replica(clock_partition, records, why), net::status::ok) << why;
  EXPECT_FALSE(clock_->has_changes()) << "a copy has nothing to send";
  EXPECT_TRUE(stops(1, 5));
  EXPECT_FALSE(stops(2, 4));
  EXPECT_TRUE(stops(2, 5));
}

// A head ticks, removes a worker, is asked for a checkpoint, and loses the clock before its replicas have acknowledged
// it. Its successor knows nothing of that, and the former head is now its replica.
TEST_F(CheckpointClock, AFormerKeeperGivesUpWhatItsSuccessorDoesNotHave) {
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_FALSE(stops(rank, 9));
  srv::clock_service successor(3);
  std::string why;
  EXPECT_EQ(successor.apply_replica(clock_partition, records_of(*clock_), why), net::status::ok) << why;

  EXPECT_FALSE(stops(2, 10));
  ask(2, net::no_clock);
  EXPECT_EQ(ask(0, net::no_clock, verb::checkpoint).clock, 11U);
  ask(0, 0, verb::subscribe);
  EXPECT_TRUE(clock_->is_watched());

  const auto records = records_of(successor);
  EXPECT_EQ(clock_->apply_replica(clock_partition, records, why), net::status::ok) << why;
  EXPECT_EQ(clock_->encode(), successor.encode());
  EXPECT_FALSE(clock_->is_watched());
  ask(0, 10);
  ask(1, 10);
  EXPECT_EQ(clock_->slowest(), 9U) << "the removal has not happened";
  EXPECT_FALSE(stops(0, 11)) << "the others have not been told to stop here";
}

TEST_F(CheckpointClock, AReplicaThatIsDroppedKeepsNothing) {
  ask(0, 0, verb::subscribe);
  EXPECT_EQ(ask(0, net::no_clock, verb::checkpoint).clock, 1U);
  ask(2, net::no_clock);
  std::bitset<partition_count> dropped;
  clock_->drop_partitions(dropped);
  EXPECT_TRUE(clock_->begun()) << "its partition was not among them";
  dropped.set(clock_partition);
  clock_->drop_partitions(dropped);
  EXPECT_TRUE(records_of(*clock_).empty());
  clock_->begin(3, {}, 7);
  srv::clock_service fresh(0);
  fresh.begin(3, {}, 7);
  EXPECT_EQ(clock_->encode(), fresh.encode());
}

TEST_F(CheckpointClock, AStateThatSaysItHasMoreThanThereIsIsRefused) {
  auto state = clock_->encode();
  state.at(4) = std::byte{0xff};
  EXPECT_NE(clock_->replace(state), nullptr);
  EXPECT_NE(clock_->replace(std::span(state).first(4)), nullptr);
}

TEST_F(CheckpointClock, RecordsOfKeysAreNoneOfAClock) {
  std::vector<std::byte> key;
  srv::append(key, srv::record{.kind = srv::record_kind::erase});
  std::string why;
  EXPECT_EQ(clock_->apply_replica(clock_partition, key, why), net::status::bad_request);
  const auto before = clock_->encode();
  std::vector<std::byte> clock;
  srv::append(clock, srv::record{.kind = srv::record_kind::clock, .value = before});
  EXPECT_EQ(clock_->apply_replica(1, clock, why), net::status::bad_request) << "it has one partition";
  EXPECT_EQ(clock_->encode(), before);
}

TEST_F(CheckpointClock, WhatIsServedBeforeItsCopiesAreWholeIsAChange) {
  clock_->take_changes([](std::uint16_t, std::span<const std::byte>) {});
  std::bitset<partition_count> incomplete;
  incomplete.set(clock_partition);
  clock_->watch(&incomplete);
  EXPECT_FALSE(clock_->has_changes());
  ask(0, 0, verb::clock_wait);
  EXPECT_TRUE(clock_->has_changes()) << "or it is answered from a state that only this server has";
  clock_->take_changes([](std::uint16_t, std::span<const std::byte>) {});
  incomplete.reset();
  ask(0, 0, verb::clock_wait);
  EXPECT_FALSE(clock_->has_changes());
}

TEST(CheckpointClockAtTheBeginning, AJobThatGoesOnBeginsAtItsClock) {
  test::replies_by_sequence sink;
  srv::clock_service clock(0);
  clock.begin(2, {}, 40);
  EXPECT_EQ(clock.slowest(), 40U);
  net::request_view r;
  r.header.what = verb::checkpoint;
  r.header.clock = net::no_clock;
  clock.handle(r, srv::completion(sink, {}, verb::checkpoint, 1, 0, 0), {});
  EXPECT_EQ(sink.all.at(1).header.clock, 41U);
}

TEST(CheckpointPlan, TravelsWithTheMembership) {
  membership m;
  EXPECT_EQ(m.to_json().find("checkpoints"), std::string::npos);
  m.checkpoints = {.folder = "/c", .every = 5, .resume = "/c/0000000010", .clock = 10, .workers = 3};
  EXPECT_EQ(membership::from_json(m.to_json()).checkpoints, m.checkpoints);
  auto j = json::parse(m.to_json());
  j["checkpoints"]["clock"] = -1;
  EXPECT_THROW((void)membership::from_json(j.dump()), protocol_error);
}

}  // namespace
}  // namespace paracel
