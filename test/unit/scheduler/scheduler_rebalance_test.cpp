// SPDX-License-Identifier: BSD-3-Clause
//
// Partitions that move because of the load, in the scheduler.
#include <paracel/error.hpp>

#include "test/support/scheduler_test.hpp"

namespace {

using namespace paracel;
using namespace paracel::test;

class SchedulerRebalance : public scheduler_test {
 protected:
  /// Three servers; with replicas a lost one does not end the job.
  void begin(bool rebalance = true, std::uint32_t replicas = 2, std::size_t most_placed = 4096) {
    subject.emplace(
        srv::scheduler_options{.job = job,
                               .workers = 3,
                               .servers = 3,
                               .replicas = replicas,
                               .elastic = true,
                               .rebalance = rebalance,
                               .most_placed = most_placed,
                               .heartbeat_limit = 3000ms,
                               .lease_limit = 2200ms,
                               .join_limit = 60s,
                               .checkpoints = {.plan = {.folder = "/nowhere"}}},
        [this](std::string_view line, bool) { events.push_back(json::parse(line)); }, now);
    start(3);
    events.clear();
    // Two hot partitions of one server: one of them is to move.
    const key_router router(subject->members());
    for (std::uint32_t p = 0; hot.size() < 2; p += 2)  // of thread 0
      if (router.locate_partition(static_cast<std::uint16_t>(p)).server == 1) hot.push_back(p);
  }
  json beat_of(int slot, double keys, std::uint32_t epoch, double lasts) {
    auto who = server(slot);
    json partitions = json::array();
    if (slot == 1)
      for (const auto p : hot) partitions.push_back(json::array({p, keys, 1000}));
    who["synced"] = synced;
    who["load"] = {{"epoch", epoch},
                   {"seconds", lasts},
                   {"threads", {slot == 1 ? keys * static_cast<double>(hot.size()) : 10.0, 10.0}},
                   {"partitions", partitions}};
    return who;
  }
  void beat_and_tick(double keys, std::uint32_t epoch, double lasts = 5) {
    now += 600ms;
    for (int s = 0; s < 3; ++s) ask(verb::heartbeat, beat_of(s, keys, epoch, lasts));
    for (int w = 0; w < 3; ++w) ask(verb::heartbeat, worker(w));
    subject->tick(now);
  }

  std::vector<std::uint32_t> hot;
  std::uint32_t synced = 1;
};

TEST_F(SchedulerRebalance, AHotPartitionMovesOnceTheLoadWasMeasuredForLongEnough) {
  begin();
  beat_and_tick(10'000, 1, 3.9);
  EXPECT_EQ(kinds(), std::vector<std::string>{}) << "not for long enough";
  beat_and_tick(10'000, 7);
  EXPECT_EQ(kinds(), std::vector<std::string>{}) << "of another epoch";
  beat_and_tick(10'000, 1);
  ASSERT_EQ(kinds(), std::vector<std::string>{"moving"});
  EXPECT_EQ(events[0]["partitions"], 1);
  EXPECT_EQ(events[0]["epoch"], 2);
  EXPECT_EQ(events[0]["text"], "1 partition: the busiest thread of a server has 5.99 times its fair share");
  EXPECT_EQ(membership::from_json(to(ask(verb::watch, worker(2))).body), subject->members()) << "everybody is told";
  ASSERT_EQ(subject->members().moving.size(), 1U);
  const auto moving = subject->members().moving[0];
  EXPECT_TRUE(moving.partition == hot[0] || moving.partition == hot[1]);
  EXPECT_NE(moving.slot, 1U);
  for (int i = 0; i < 20; ++i) beat_and_tick(10'000, 2);
  EXPECT_EQ(kinds().size(), 1U) << "nothing else while it moves";
  const auto refused = ask(verb::resize, json{{"servers", -1}});
  EXPECT_EQ(to(refused).body, "partitions are moving: try again");
  EXPECT_EQ(to(ask_text(verb::stats, "")).parsed()["moving"], 1);
  synced = 2;
  beat_and_tick(10'000, 2);
  ASSERT_EQ(kinds(), (std::vector<std::string>{"moving", "moved"}));
  EXPECT_EQ(subject->members().placed, std::vector<placement>{moving});
  EXPECT_EQ(key_router(subject->members()).locate_partition(moving.partition).server, moving.slot);
  synced = 3;
  beat_and_tick(10'000, 2);
  EXPECT_EQ(kinds(), (std::vector<std::string>{"moving", "moved", "synced"}));
  const auto report = to(ask_text(verb::stats, "")).parsed();
  EXPECT_EQ(report["moving"], 0);
  EXPECT_EQ(report["placed"], 1);
  EXPECT_EQ(report["settled"], true);
}

TEST_F(SchedulerRebalance, WithoutTheOptionOrWithLittleToDoNothingMoves) {
  begin(false);
  for (int i = 0; i < 30; ++i) beat_and_tick(10'000, 1);
  EXPECT_EQ(kinds(), std::vector<std::string>{});
  hot.clear();
  begin();
  for (int i = 0; i < 30; ++i) beat_and_tick(20, 1);
  EXPECT_EQ(kinds(), std::vector<std::string>{});
  hot.clear();
  begin(true, 2, 0);
  for (int i = 0; i < 30; ++i) beat_and_tick(10'000, 1);
  EXPECT_EQ(kinds(), std::vector<std::string>{}) << "as many as may be are elsewhere";
}

TEST_F(SchedulerRebalance, NothingMovesWhileAServerIsMissing) {
  begin();
  ask(verb::report_death, json{{"role", "server"}, {"slot", 2}, {"pid", 502}, {"why", "killed by signal 9"}});
  events.clear();
  synced = 2;
  for (int i = 0; i < 10; ++i) beat_and_tick(10'000, 2);
  EXPECT_EQ(kinds(), std::vector<std::string>{"synced"});
  EXPECT_TRUE(subject->members().moving.empty());
}

TEST_F(SchedulerRebalance, NothingMovesWhileACheckpointIsMade) {
  begin();
  const auto stopped =
      ask(verb::checkpoint, json{{"role", "worker"}, {"rank", 0}, {"clock", 10}, {"error", "its disk is full"}});
  for (int i = 0; i < 5; ++i) beat_and_tick(10'000, 1);
  EXPECT_EQ(kinds(), std::vector<std::string>{});
  for (int rank = 1; rank < 3; ++rank)
    ask(verb::checkpoint, json{{"role", "worker"}, {"rank", rank}, {"clock", 10}, {"error", "likewise"}});
  EXPECT_EQ(to(stopped).parsed()["ok"], false);
  beat_and_tick(10'000, 1);
  EXPECT_EQ(kinds(), (std::vector<std::string>{"checkpoint_failed", "moving"}));
}

TEST_F(SchedulerRebalance, AServerThatIsLostMeanwhileGetsNothing) {
  begin();
  beat_and_tick(10'000, 1);
  ASSERT_EQ(subject->members().moving.size(), 1U);
  const auto to_slot = static_cast<int>(subject->members().moving[0].slot);
  ask(verb::report_death,
      json{{"role", "server"}, {"slot", to_slot}, {"pid", 500 + to_slot}, {"why", "killed by signal 9"}});
  EXPECT_TRUE(subject->members().moving.empty());
  synced = 3;
  beat_and_tick(10'000, 3);
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  EXPECT_TRUE(subject->members().placed.empty());
  EXPECT_EQ(kinds().back(), "synced");
}

}  // namespace
