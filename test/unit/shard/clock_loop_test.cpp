// SPDX-License-Identifier: BSD-3-Clause
//
// What the head of the clock tells the shards, and when.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/inproc_transport.hpp"
#include "server/node/server_loop.hpp"

namespace paracel::srv {
namespace {

using namespace std::chrono_literals;
using net::status;
using net::verb;

/// The clock of a job with two servers and two replicas, on the server that is its head. The other server, and the
/// shards of both, are ports that the test reads.
class ClockHead : public testing::Test {
 protected:
  ClockHead() {
    for (std::uint32_t slot = 0; slot < 2; ++slot) {
      server_entry s;
      s.slot = slot;
      s.incarnation = 100 + slot;
      const auto prefix = "inproc://s" + std::to_string(slot) + "/";
      s.shards = {prefix + "0"};
      s.clock = prefix + "k";
      s.control = prefix + "c";
      members_.servers.push_back(s);
      shards_[slot] = over_.open();
      shards_[slot]->bind(s.shards[0]);
    }
    members_.job = 5;
    members_.replicas = 2;
    members_.workers = 2;
    head_ = key_router(members_).chain(clock_partition)[0];
    server_options o;
    o.slot = head_;
    o.incarnation = 100 + head_;
    o.job = members_.job;
    o.workers = 2;
    server_.emplace(o);
    port_ = over_.open();
    port_->bind(members_.servers[head_].clock);
    replica_ = over_.open();
    replica_->bind(members_.servers[1 - head_].clock);
    clock_.emplace(loop_context{*server_, *port_, stop_, lease_, synced_, time_}, members_.servers[head_],
                   [this] { return newest_; });
    worker_ = over_.open();
    to_clock_ = worker_->connect(members_.servers[head_].clock);
    begin_epoch(1);
  }
  void begin_epoch(std::uint32_t epoch) {
    members_.epoch = epoch;
    newest_ = std::make_shared<const membership>(members_);
    server_->set_membership(members_);
    run();
  }

  /// Runs until nothing is left to do.
  void run() {
    for (int i = 0; i < 5; ++i) {
      clock_->step(0ms);
      net::incoming in;
      while (!replica_is_silent_ && replica_->receive(in, 0ms)) {
        net::request_view r;
        ASSERT_EQ(net::decode(in.frame, in.tail.size(), r), nullptr);
        net::reply_header h;
        h.what = r.header.what;
        h.sequence = r.header.sequence;
        h.server = 100 + (1 - head_);
        net::reply_bytes bytes;
        net::encode(h, bytes);
        replica_->reply(in.from, {.head = bytes});
      }
    }
  }
  void ask(net::request_header h) {
    h.job = members_.job;
    h.epoch = members_.epoch;
    h.client = 1000 + h.rank;
    h.sequence = ++sequence_;
    net::request_bytes bytes;
    net::encode(h, bytes);
    worker_->send(to_clock_, {.head = bytes});
    run();
  }
  void tick(std::uint32_t rank, std::uint32_t clock) {
    ask({.what = verb::clock_tick, .flags = net::flag_staged, .rank = rank, .clock = clock});
  }
  int answers() {
    net::incoming in;
    int n = 0;
    while (worker_->receive(in, 0ms)) ++n;
    return n;
  }
  /// What each shard has been told since the last call.
  std::vector<std::uint32_t> told() {
    std::vector<std::uint32_t> clocks[2];
    for (std::uint32_t slot = 0; slot < 2; ++slot) {
      net::incoming in;
      while (shards_[slot]->receive(in, 0ms)) {
        net::request_view r;
        EXPECT_EQ(net::decode(in.frame, in.tail.size(), r), nullptr);
        EXPECT_EQ(r.header.what, verb::clock_moved);
        EXPECT_EQ(r.header.epoch, members_.epoch);
        clocks[slot].push_back(r.header.clock);
      }
    }
    EXPECT_EQ(clocks[0], clocks[1]);
    return clocks[0];
  }

  net::inproc_transport over_;
  membership members_;
  std::shared_ptr<const membership> newest_;
  std::uint32_t head_ = 0;
  std::optional<server> server_;
  std::atomic<bool> stop_{false};
  std::atomic<std::int64_t> lease_{std::numeric_limits<std::int64_t>::max()};
  std::atomic<std::uint32_t> synced_{0};
  net::boot_time_source time_;
  std::unique_ptr<net::port> port_, replica_, shards_[2], worker_;
  std::optional<clock_loop> clock_;
  int to_clock_ = 0;
  std::uint64_t sequence_ = 0;
  bool replica_is_silent_ = false;
};

using clocks = std::vector<std::uint32_t>;

TEST_F(ClockHead, TellsTheShardsWhatAllReplicasHave) {
  tick(0, 1);
  EXPECT_EQ(told(), clocks{});
  tick(1, 1);
  EXPECT_EQ(told(), clocks{1});
  EXPECT_EQ(answers(), 2);

  replica_is_silent_ = true;
  tick(0, 2);
  tick(1, 2);
  tick(0, 3);
  tick(1, 3);
  EXPECT_EQ(told(), clocks{}) << "a worker that dies with this server has finished one iteration only";
  EXPECT_EQ(answers(), 0);
  replica_is_silent_ = false;
  run();
  EXPECT_EQ(told(), clocks{3});
  EXPECT_EQ(answers(), 4);
}

TEST_F(ClockHead, TellsTheShardsOfANewEpochWhenItsReplicasAreComplete) {
  tick(0, 1);
  tick(1, 1);
  EXPECT_EQ(told(), clocks{1});
  replica_is_silent_ = true;
  begin_epoch(2);
  EXPECT_EQ(told(), clocks{});
  replica_is_silent_ = false;
  run();
  EXPECT_EQ(told(), clocks{1}) << "they may have refused it in the old one";
}

TEST(ClockWithoutReplicas, AnswersTheLastTickThatCameBeforeItsMembershipWhenTheShardsKnowOfIt) {
  net::inproc_transport over;
  membership members;
  members.job = 5;
  members.workers = 1;
  members.epoch = 1;
  server_entry self;
  self.incarnation = 100;
  self.shards = {"inproc://s0/0"};
  self.clock = "inproc://s0/k";
  self.control = "inproc://s0/c";
  members.servers.push_back(self);
  const auto shard = over.open();
  shard->bind(self.shards[0]);
  server_options options;
  options.incarnation = self.incarnation;
  options.job = members.job;
  options.workers = 1;
  server of(options);
  const auto port = over.open();
  port->bind(self.clock);
  std::shared_ptr<const membership> newest;
  std::atomic<bool> stop{false};
  std::atomic<std::int64_t> lease{std::numeric_limits<std::int64_t>::max()};
  std::atomic<std::uint32_t> synced{0};
  net::boot_time_source time;
  clock_loop clock(loop_context{of, *port, stop, lease, synced, time}, self, [&] { return newest; });

  const auto worker = over.open();
  net::request_bytes bytes;
  net::encode({.what = verb::clock_tick,
               .flags = net::flag_staged,
               .job = members.job,
               .client = 1000,
               .sequence = 1,
               .clock = net::no_clock,
               .epoch = 1},
              bytes);
  worker->send(worker->connect(self.clock), {.head = bytes});
  clock.step(0ms);
  newest = std::make_shared<const membership>(members);
  of.set_membership(members);
  for (int i = 0; i < 3; ++i) clock.step(0ms);
  net::incoming in;
  EXPECT_FALSE(worker->receive(in, 0ms)) << "the shard may still have updates of the worker";

  ASSERT_TRUE(shard->receive(in, 0ms));
  net::request_view fence;
  ASSERT_EQ(net::decode(in.frame, in.tail.size(), fence), nullptr);
  ASSERT_EQ(fence.header.what, verb::fence);
  net::reply_header done;
  done.what = verb::fence;
  done.sequence = fence.header.sequence;
  done.server = self.incarnation;
  net::reply_bytes answer;
  net::encode(done, answer);
  shard->reply(in.from, {.head = answer});
  for (int i = 0; i < 3; ++i) clock.step(0ms);
  ASSERT_TRUE(worker->receive(in, 0ms));
  net::reply_view reply;
  ASSERT_EQ(net::decode(in.frame, in.tail.size(), reply), nullptr);
  EXPECT_EQ(reply.header.result, status::ok);
}

}  // namespace
}  // namespace paracel::srv
