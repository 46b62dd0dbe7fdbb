// SPDX-License-Identifier: BSD-3-Clause
//
// Replication in the scheduler: losses that the job survives, replacements, fencing, and notifications.
#include <algorithm>

#include <paracel/error.hpp>

#include "core/hex.hpp"
#include "test/support/scheduler_test.hpp"

namespace {

using namespace paracel;
using namespace paracel::test;

class SchedulerWithReplicas : public scheduler_test {
 protected:
  void SetUp() override { begin(3, 2); }
  void begin(int servers, std::uint32_t replicas) {
    make(3, static_cast<std::uint32_t>(servers), replicas);
    start(servers);
    events.clear();
  }
  static json dead(int slot, const std::string& why = "killed by signal 9") {
    return {{"role", "server"}, {"slot", slot}, {"pid", 500 + slot}, {"why", why}};
  }
  static json another(int slot) {
    auto s = server(slot);
    s["pid"] = 900 + slot;
    s["incarnation"] = 200 + slot;
    return s;
  }
  int watch(const json& who, std::uint32_t epoch) {
    net::request_header h;
    h.what = verb::watch;
    h.job = job;
    h.epoch = epoch;
    h.sequence = static_cast<std::uint64_t>(++last);
    const auto body = who.dump();
    h.body_bytes = static_cast<std::uint32_t>(body.size());
    return deliver(h, body);
  }
  int beat(json who, std::uint32_t synced) {
    who["synced"] = synced;
    return ask(verb::heartbeat, who);
  }
  void lose(int slot) { ASSERT_EQ(to(ask(verb::report_death, dead(slot))).parsed()["continues"], true); }
  membership members() { return membership::from_json(to(watch(worker(2), 0)).body); }
  server_state state_of(std::uint32_t slot) { return members().servers[slot].state; }
};

TEST_F(SchedulerWithReplicas, ALostServerIsANewEpochThatWhoeverWatchesHearsOfAtOnce) {
  const int s0 = watch(server(0), 1);
  const int w1 = watch(worker(1), 1);
  EXPECT_FALSE(answers.contains(s0));
  const auto said = to(ask(verb::report_death, dead(1))).parsed();
  EXPECT_EQ(said, (json{{"continues", true}, {"epoch", 2}, {"cause", ""}}));
  for (const int n : {s0, w1}) {
    const auto m = membership::from_json(to(n).body);
    EXPECT_EQ(m.epoch, 2U);
    EXPECT_EQ(m.replicas, 2U);
    EXPECT_EQ(m.servers[1].state, server_state::down);
    EXPECT_EQ(m.servers[0].state, server_state::up);
  }
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  ASSERT_EQ(kinds(), std::vector<std::string>{"lost"});
  EXPECT_EQ(events[0]["continues"], true);
  EXPECT_EQ(events[0]["epoch"], 2);
  EXPECT_EQ(events[0]["cause"], "server s1 (pid 501 on h) lost: killed by signal 9");
}

TEST_F(SchedulerWithReplicas, WhoWatchesWithAnOldEpochIsAnsweredAtOnce) {
  lose(0);
  EXPECT_EQ(membership::from_json(to(watch(worker(0), 1)).body).epoch, 2U);
  EXPECT_FALSE(answers.contains(watch(worker(0), 2)));
}

TEST_F(SchedulerWithReplicas, AServerIsLostAfterItsLeaseAWorkerAfterTheLimit) {
  now += 2200ms;
  subject->tick(now);
  EXPECT_TRUE(events.empty());
  beat_all({server(0), server(2), worker(0), worker(1), worker(2)});
  now += 1ms;
  subject->tick(now);
  ASSERT_EQ(kinds(), std::vector<std::string>{"lost"});
  EXPECT_EQ(events[0]["cause"], "server s1 (pid 501 on h) lost: no heartbeat for 2.2 s");
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  now += 2s;
  beat_all({server(0), server(2), worker(0), worker(2)});
  now += 1001ms;
  subject->tick(now);
  EXPECT_EQ(subject->status(), exit_status::worker_lost);
}

TEST_F(SchedulerWithReplicas, ASecondLossBeforeTheCopiesAreRestoredEndsTheJob) {
  lose(1);
  beat(server(0), 2);  // s2 has not reported it yet
  const auto said = to(ask(verb::report_death, dead(2))).parsed();
  EXPECT_EQ(said["continues"], false);
  EXPECT_EQ(subject->state(), scheduler::phase::aborted);
  EXPECT_EQ(subject->status(), exit_status::server_lost);
  EXPECT_EQ(
      subject->cause(),
      "server s2 (pid 502 on h) lost: killed by signal 9; lost before the replicas of s1's partitions were restored");
}

// Both determine its partitions on the ring: with other values it would own partitions that were not copied to it.
TEST_F(SchedulerWithReplicas, AReplacementHasTheWeightAndTheThreadsOfTheLostServer) {
  lose(1);
  auto other = another(1);
  other["weight"] = 2;
  expect_refused(ask(verb::join, other),
                 "a replacement of s1 must have its weight 1.0 and its 2 threads, not 2.0 and 2");
  other.erase("weight");
  other["threads"] = 1;
  other["shards"] = {"ipc:///x/one"};
  expect_refused(ask(verb::join, other),
                 "a replacement of s1 must have its weight 1.0 and its 2 threads, not 1.0 and 1");
  EXPECT_EQ(state_of(1), server_state::down);
  EXPECT_EQ(to(ask(verb::join, another(1))).result, status::ok);
  EXPECT_EQ(state_of(1), server_state::joining);
}

TEST_F(SchedulerWithReplicas, ASecondLossAfterTheCopiesAreRestoredIsBorne) {
  lose(1);
  beat(server(0), 2);
  beat(server(2), 2);
  EXPECT_EQ(kinds(), (std::vector<std::string>{"lost", "synced"}));
  lose(2);
  EXPECT_EQ(to(ask(verb::report_death, dead(0))).parsed()["continues"], false);
  EXPECT_NE(subject->cause().find("before the replicas of s2"), std::string::npos) << subject->cause();
}

TEST_F(SchedulerWithReplicas, TheLastServerCannotBeLost) {
  begin(2, 2);
  lose(1);
  beat(server(0), 2);
  EXPECT_EQ(to(ask(verb::report_death, dead(0))).parsed()["continues"], false);
  EXPECT_EQ(subject->cause(),
            "server s0 (pid 500 on h) lost: killed by signal 9; there is no other replica of its partitions");
}

TEST_F(SchedulerWithReplicas, OfTwoServersEitherMayBeLostOnceTheOtherServesAgain) {
  begin(2, 2);
  lose(1);
  beat(server(0), 2);
  ask(verb::join, another(1));
  beat(server(0), 3);
  beat(another(1), 3);
  EXPECT_EQ(kinds().back(), "serving");
  lose(0);
  EXPECT_EQ(subject->state(), scheduler::phase::running);
}

TEST_F(SchedulerWithReplicas, ThreeCopiesBearTwoLossesAtOnceAndAsManyAsAreLeftLater) {
  begin(4, 3);
  lose(0);
  lose(3);
  beat(server(1), 3);
  beat(server(2), 3);  // two replicas now: there are two servers
  lose(1);
  EXPECT_EQ(to(ask(verb::report_death, dead(2))).parsed()["continues"], false);
}

TEST_F(SchedulerWithReplicas, AnOldSyncedCountsForNothing) {
  lose(1);
  beat(server(0), 1);
  beat(server(2), 1);
  EXPECT_EQ(kinds(), std::vector<std::string>{"lost"});
  EXPECT_EQ(to(ask(verb::report_death, dead(2))).parsed()["continues"], false);
}

TEST_F(SchedulerWithReplicas, AReplacementJoinsWhenTheOthersHaveGivenItsCopies) {
  lose(1);
  ask(verb::heartbeat, another(1));  // its heartbeats may overtake its join
  const auto m = membership::from_json(to(ask(verb::join, another(1))).body);
  EXPECT_EQ(m.epoch, 3U);
  EXPECT_EQ(m.servers[1].state, server_state::joining);
  EXPECT_EQ(m.servers[1].incarnation, 201U);
  const int w = watch(worker(0), 3);
  beat(another(1), 3);
  beat(server(0), 3);
  EXPECT_FALSE(answers.contains(w));
  beat(server(2), 3);
  EXPECT_EQ(kinds(), (std::vector<std::string>{"lost", "joined", "serving"}));
  EXPECT_EQ(membership::from_json(to(w).body).epoch, 4U);
  EXPECT_EQ(state_of(1), server_state::up);
  lose(0);  // everything was restored in epoch 3
  EXPECT_EQ(subject->state(), scheduler::phase::running);
}

TEST_F(SchedulerWithReplicas, AReplacementThatDiesCostsNothing) {
  lose(1);
  ask(verb::join, another(1));
  auto d = dead(1);
  d["pid"] = 901;
  EXPECT_EQ(to(ask(verb::report_death, d)).parsed()["continues"], true);
  EXPECT_EQ(state_of(1), server_state::down);
  beat(server(0), 4);
  beat(server(2), 4);
  lose(0);
}

TEST_F(SchedulerWithReplicas, ASlotThatIsNotDownIsNotGivenAway) {
  expect_refused(ask(verb::join, another(1)), "server s1 (pid 501 on h) has joined already");
}

TEST_F(SchedulerWithReplicas, AServerThatWasTakenForLostIsToldToEnd) {
  lose(1);
  const auto& said = to(ask(verb::heartbeat, server(1)));
  EXPECT_EQ(said.order, instruction::abort);
  EXPECT_EQ(said.parsed()["status"], exit_status::server_lost);
  EXPECT_EQ(said.parsed()["cause"], "server s1 (pid 501 on h) was considered lost; the job continues without it");
  ask(verb::join, another(1));
  const auto& again = to(ask(verb::heartbeat, server(1)));
  EXPECT_EQ(again.order, instruction::abort);
  EXPECT_EQ(again.parsed()["cause"], "another process has replaced it; the job continues without it");
  EXPECT_EQ(to(ask(verb::heartbeat, another(1))).order, instruction::proceed);
}

TEST_F(SchedulerWithReplicas, OnlyTheProcessThatHasThePlaceHoldsALease) {
  EXPECT_EQ(to(ask(verb::heartbeat, server(1))).count, net::known_sender);
  lose(1);
  EXPECT_EQ(to(ask(verb::heartbeat, another(1))).count, 0U) << "it has not joined";
  ask(verb::join, another(1));
  EXPECT_EQ(to(ask(verb::heartbeat, another(1))).count, net::known_sender);
  EXPECT_EQ(to(ask(verb::heartbeat, server(1))).count, 0U);
}

TEST_F(SchedulerWithReplicas, AProcessThatWasReplacedIsToldToEndAlsoWhenItsSuccessorIsLost) {
  lose(1);
  ask(verb::join, another(1));
  auto d = dead(1);
  d["pid"] = 901;
  ask(verb::report_death, d);
  ASSERT_EQ(state_of(1), server_state::down);
  const auto& said = to(ask(verb::heartbeat, server(1)));
  EXPECT_EQ(said.order, instruction::abort);
  EXPECT_EQ(said.count, 0U);
  EXPECT_EQ(said.parsed()["cause"], "another process has replaced it; the job continues without it");
}

TEST_F(SchedulerWithReplicas, AnIncarnationTellsTwoProcessesOfOneNumberApart) {
  auto b = server(1);
  b["incarnation"] = to_hex(101);
  EXPECT_EQ(to(ask(verb::heartbeat, b)).result, status::ok);
  b["incarnation"] = to_hex(7);
  EXPECT_EQ(to(ask(verb::heartbeat, b)).result, status::bad_request);
}

TEST_F(SchedulerWithReplicas, TheDeathOfAnotherProcessIsNoDeath) {
  auto d = dead(1);
  d["pid"] = 1;
  EXPECT_EQ(to(ask(verb::report_death, d)).parsed(), (json{{"continues", true}, {"epoch", 1}, {"cause", ""}}));
  lose(1);
  EXPECT_EQ(to(ask(verb::report_death, dead(1))).parsed()["epoch"], 2) << "the same death, told twice";
}

TEST_F(SchedulerWithReplicas, AServerThatLeavesIsALossThatIsBorne) {
  ask(verb::leave, leaving(server(2)));
  EXPECT_EQ(state_of(2), server_state::down);
  EXPECT_EQ(subject->state(), scheduler::phase::running);
}

TEST_F(SchedulerWithReplicas, AFunctionThatEndedAServerIsCalledNoMore) {
  auto words = leaving(server(2), exit_status::server_lost);
  words["last_words"] = {{"function", "00000000000000ff"}, {"how", "SIGSEGV"}, {"where", "libx.so:f at \"k\""}};
  ask(verb::leave, words);
  EXPECT_EQ(state_of(2), server_state::down);
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  const auto& refused = subject->members().refused;
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].id, 0xffU);
  EXPECT_NE(refused[0].why.find("SIGSEGV in libx.so:f at \"k\""), std::string::npos) << refused[0].why;
  EXPECT_NE(events.back()["cause"].get<std::string>().find("SIGSEGV in libx.so:f"), std::string::npos) << events.back();
}

TEST_F(SchedulerWithReplicas, WordsOfAnotherKindAreNoFunction) {
  auto words = leaving(server(2));
  words["last_words"] = {{"function", 5}, {"where", std::string(9000, 'x')}};
  ask(verb::leave, words);
  EXPECT_EQ(state_of(2), server_state::down);
  EXPECT_TRUE(subject->members().refused.empty());
}

TEST_F(SchedulerWithReplicas, AWorkersDeathEndsTheJob) {
  EXPECT_EQ(to(ask(verb::report_death, {{"role", "worker"}, {"rank", 1}, {"pid", 701}, {"why", "exit status 3"}}))
                .parsed()["continues"],
            false);
  EXPECT_EQ(subject->status(), exit_status::worker_lost);
}

TEST_F(SchedulerWithReplicas, TheEndOfTheJobAnswersWhoWatches) {
  const int w = watch(server(0), 1);
  ask(verb::abort, {{"status", 9}, {"cause", "no luck"}});
  expect_ended(w, 9, "no luck");
}

TEST_F(SchedulerWithReplicas, ThatOfAWorkerIsAnsweredWhenItLeaves) {
  const int w = watch(worker(1), 1);
  const int other = watch(worker(0), 1);
  ask(verb::leave, leaving(worker(1)));
  EXPECT_EQ(to(w).result, status::conflict);
  EXPECT_FALSE(answers.contains(other));
}

TEST_F(SchedulerWithReplicas, ASecondWatchOfOneNodeReplacesTheFirst) {
  const int first = watch(server(0), 1);
  const int second = watch(server(0), 1);
  EXPECT_EQ(to(first).result, status::conflict);
  lose(1);
  EXPECT_EQ(to(second).result, status::ok);
}

TEST_F(SchedulerWithReplicas, WithOneCopyALossEndsTheJob) {
  begin(3, 1);
  EXPECT_EQ(to(ask(verb::report_death, dead(1))).parsed()["continues"], false);
  EXPECT_EQ(subject->cause(), "server s1 (pid 501 on h) lost: killed by signal 9");
  EXPECT_FALSE(events[0].contains("continues"));
}

TEST_F(SchedulerWithReplicas, AReportSaysWhatCanStillBeLost) {
  EXPECT_EQ(to(ask_text(verb::stats, "")).parsed()["spare"], 1);
  lose(1);
  auto said = to(ask_text(verb::stats, "")).parsed();
  EXPECT_EQ(said["replicas"], 2);
  EXPECT_EQ(said["spare"], 0);
  EXPECT_EQ(said["servers"][1]["state"], "down");
  ask(verb::join, another(1));
  said = to(ask_text(verb::stats, "")).parsed();
  EXPECT_EQ(said["servers"][1]["state"], "joining");
  EXPECT_EQ(said["servers"][0]["state"], "up");
}

TEST_F(SchedulerWithReplicas, NothingCanBeLostBeforeAllHaveJoined) {
  make(3, 3, 2);
  for (int s = 0; s < 3; ++s) ask(verb::join, server(s));
  EXPECT_EQ(to(ask_text(verb::stats, "")).parsed()["spare"], 0) << "the workers are missing";
  for (int r = 0; r < 3; ++r) ask(verb::join, worker(r));
  EXPECT_EQ(to(ask_text(verb::stats, "")).parsed()["spare"], 1);
}

TEST_F(SchedulerWithReplicas, AServerWhoseFunctionHangsIsReplacedAndTheFunctionNamed) {
  hang_limit = 60s;
  begin(3, 2);
  auto b = server(1);
  b["busy"] = json::array({{{"shard", 1}, {"function", "libmy_update.so:slow"}, {"seconds", 59.9}}});
  ask(verb::heartbeat, b);
  EXPECT_EQ(state_of(1), server_state::up);
  b["busy"][0]["seconds"] = 60.5;
  EXPECT_EQ(to(ask(verb::heartbeat, b)).order, instruction::abort) << "it is told to end";
  EXPECT_EQ(state_of(1), server_state::up) << "its other threads may still answer";
  const auto told = now;
  while (now - told < 2s) {
    now += 500ms;
    beat_all({server(0), b, server(2), worker(0), worker(1), worker(2)});
    subject->tick(now);
    EXPECT_EQ(state_of(1), server_state::up);
  }
  now += 500ms;
  beat_all({server(0), b, server(2), worker(0), worker(1), worker(2)});
  subject->tick(now);
  EXPECT_EQ(state_of(1), server_state::down) << "though it beats";
  EXPECT_EQ(events.back()["cause"],
            "server s1 (pid 501 on h) lost: libmy_update.so:slow has been running for 60.5 s in thread 1");
  EXPECT_EQ(to(ask(verb::heartbeat, b)).order, instruction::abort);
  begin(3, 2);
  ask(verb::heartbeat, b);
  ask(verb::report_death, dead(1));
  EXPECT_EQ(state_of(1), server_state::down) << "the process has ended";
  EXPECT_EQ(events.back()["cause"],
            "server s1 (pid 501 on h) lost: libmy_update.so:slow has been running for 60.5 s in thread 1");
  begin(3, 1);
  ask(verb::heartbeat, b);
  EXPECT_EQ(subject->state(), scheduler::phase::aborted) << "without replicas the job ends with that cause";
  EXPECT_NE(subject->cause().find("slow has been running"), std::string::npos);
}

TEST_F(SchedulerWithReplicas, EverybodyKnowsTheEndThoughASlotIsEmpty) {
  lose(1);
  for (int r = 0; r < 3; ++r) ask(verb::leave, leaving(worker(r)));
  EXPECT_EQ(subject->state(), scheduler::phase::done);
  EXPECT_FALSE(subject->all_notified(now));
  beat_all({server(0), server(2)});
  EXPECT_TRUE(subject->all_notified(now));
}

}  // namespace
