// SPDX-License-Identifier: BSD-3-Clause
//
// Servers that join and leave a running job, in the scheduler.
#include <paracel/error.hpp>

#include "test/support/scheduler_test.hpp"

namespace {

using namespace paracel;
using namespace paracel::test;

class SchedulerResize : public scheduler_test {
 protected:
  void begin(int servers, std::uint32_t replicas, bool elastic = true) {
    make(3, static_cast<std::uint32_t>(servers), replicas, false, elastic);
    start(servers);
    events.clear();
  }
  membership members() {
    net::request_header h;
    h.what = verb::watch;
    h.job = job;
    h.sequence = static_cast<std::uint64_t>(++last);
    const auto body = worker(2).dump();
    h.body_bytes = static_cast<std::uint32_t>(body.size());
    return membership::from_json(to(deliver(h, body)).body);
  }
  answer resize(int by) { return to(ask(verb::resize, json{{"servers", by}})); }
  std::string refused(int by) {
    const auto a = resize(by);
    EXPECT_EQ(a.result, status::bad_request) << a.body;
    return a.body;
  }
  instruction beat(int slot, std::uint32_t synced) {
    auto who = server(slot);
    who["synced"] = synced;
    return to(ask(verb::heartbeat, who)).order;
  }
  void all_synced(std::initializer_list<int> slots, std::uint32_t epoch) {
    for (const auto s : slots) beat(s, epoch);
  }
  int dead(int slot) { return dead(slot, 500 + slot); }
  int dead(int slot, int pid) {
    return ask(verb::report_death,
               json{{"role", "server"}, {"slot", slot}, {"pid", pid}, {"why", "killed by signal 9"}});
  }
};

TEST_F(SchedulerResize, AServerEntersWhenItHasBeenStartedAndHasItsCopies) {
  begin(2, 1);
  EXPECT_EQ(resize(1).parsed(), (json{{"slot", 2}, {"epoch", 1}}));
  EXPECT_EQ(kinds(), std::vector<std::string>{"wanted"});
  ask(verb::heartbeat, server(2));  // may overtake its join
  const auto m = membership::from_json(to(ask(verb::join, server(2))).body);
  EXPECT_EQ(m.epoch, 2U);
  EXPECT_TRUE(m.elastic);
  EXPECT_EQ(m.servers[2].state, server_state::entering);
  beat(0, 2);
  EXPECT_EQ(members().epoch, 2U);
  beat(1, 2);
  EXPECT_EQ(members().epoch, 3U);
  EXPECT_EQ(members().servers[2].state, server_state::up);
  EXPECT_EQ(kinds(), (std::vector<std::string>{"wanted", "joined", "serving", "entered"}));
}

TEST_F(SchedulerResize, AServerLeavesWhenOthersHaveWhatItHasAndEndsWhenNobodyAsksIt) {
  begin(3, 2, false);
  EXPECT_EQ(resize(-1).parsed(), (json{{"slot", 2}, {"epoch", 2}}));
  EXPECT_EQ(members().servers[2].state, server_state::leaving);
  all_synced({0, 1}, 2);
  EXPECT_EQ(members().epoch, 2U);  // it still serves, and has not reported that it has left
  EXPECT_EQ(beat(2, 2), instruction::proceed);
  EXPECT_EQ(members().epoch, 3U);
  EXPECT_EQ(members().servers[2].state, server_state::left);
  EXPECT_EQ(beat(2, 3), instruction::proceed);
  all_synced({0, 1}, 3);
  EXPECT_EQ(members().epoch, 3U);
  EXPECT_EQ(beat(2, 3), instruction::shutdown);
  EXPECT_EQ(kinds(), (std::vector<std::string>{"leaving", "serving", "synced", "retired"}));
  now += 10s;
  beat_all({server(0), server(1), worker(0), worker(1), worker(2)});
  subject->tick(now);
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  // its slot can be reused
  EXPECT_EQ(resize(1).parsed()["slot"], 2);
  auto another = server(2);
  another["incarnation"] = 300;
  another["pid"] = 902;
  dead(2);  // a late report about the server that has left
  EXPECT_EQ(events.back()["event"], "wanted");
  EXPECT_EQ(to(ask(verb::heartbeat, another)).result, status::ok);  // may overtake its join
  EXPECT_EQ(membership::from_json(to(ask(verb::join, another)).body).servers[2].state, server_state::entering);
}

TEST_F(SchedulerResize, AServerThatLeavesAnAbortedJobWithoutHavingEnteredIsMissing) {
  begin(2, 1);
  EXPECT_EQ(resize(1).parsed()["slot"], 2);
  ask(verb::abort, json{{"status", 1}, {"cause", "enough"}});
  ask(verb::leave, server(2));
  const auto a = to(ask(verb::stats, json::object()));
  ASSERT_EQ(a.result, status::ok) << a.body;
  EXPECT_FALSE(a.parsed()["servers"][2].contains("incarnation")) << a.body;
}

TEST_F(SchedulerResize, WhatCannotBeIsRefusedWithItsReason) {
  begin(2, 1, false);
  EXPECT_EQ(refused(1), "that needs a job that was started with --replicas 2 or more, or with --elastic");
  begin(1, 1);
  EXPECT_EQ(refused(-1), "the last server cannot leave");
  EXPECT_EQ(refused(2), "\"servers\" must be 1 or -1: one server at a time");
  EXPECT_EQ(refused(0), "\"servers\" must be 1 or -1: one server at a time");
  begin(3, 3);
  EXPECT_EQ(refused(-1), "3 replicas need as many servers, and there are 3");
  make(3, 2, 1, false, true);
  EXPECT_EQ(refused(1), "the job has not started yet");
}

TEST_F(SchedulerResize, OneChangeIsMadeAtATime) {
  begin(3, 1);
  resize(1);
  EXPECT_EQ(refused(-1), "one change at a time: s3 is being started");
  ask(verb::join, server(3));
  EXPECT_EQ(refused(1), "one change at a time: s3 is entering");
  all_synced({0, 1, 2}, 2);
  EXPECT_EQ(refused(-1), "the replicas are not complete yet: try again");
  all_synced({0, 1, 2, 3}, 3);
  resize(-1);
  EXPECT_EQ(refused(1), "one change at a time: s3 is leaving");
  all_synced({0, 1, 2, 3}, 4);
  EXPECT_EQ(refused(1), "one change at a time: s3 is still ending");
  all_synced({0, 1, 2}, 5);
  EXPECT_EQ(resize(1).result, status::ok);
}

TEST_F(SchedulerResize, AServerThatDiesBeforeItServesCostsNothing) {
  begin(2, 1);
  resize(1);
  EXPECT_EQ(to(dead(2)).parsed()["continues"], true);
  EXPECT_EQ(events.back()["event"], "not_entered");
  EXPECT_EQ(resize(1).parsed()["slot"], 2);
  ask(verb::join, server(2));
  EXPECT_EQ(to(dead(2)).parsed()["continues"], true);
  EXPECT_EQ(members().servers[2].state, server_state::gone);
  EXPECT_EQ(events.back()["continues"], true);
  all_synced({0, 1}, 3);
  EXPECT_EQ(resize(1).result, status::ok);
  now += 61s;
  beat_all({server(0), server(1), worker(0), worker(1), worker(2)});
  subject->tick(now);
  EXPECT_EQ(events.back()["cause"], "it did not join within 60.0 s");
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  EXPECT_EQ(to(ask(verb::join, server(2))).result, status::bad_request);  // too late
}

TEST_F(SchedulerResize, ALateReportOfADeathIsNotTakenForThatOfTheServerThatIsStarted) {
  begin(2, 1);
  const auto enter = [&](int pid, int incarnation) {
    ASSERT_EQ(resize(1).parsed()["slot"], 2);
    auto who = server(2);
    who["pid"] = pid;
    who["incarnation"] = incarnation;
    EXPECT_EQ(to(ask(verb::join, who)).result, status::ok);
  };
  enter(601, 301);
  dead(2, 601);
  all_synced({0, 1}, members().epoch);
  enter(602, 302);
  dead(2, 602);
  all_synced({0, 1}, members().epoch);
  ASSERT_EQ(resize(1).result, status::ok);
  events.clear();
  for (const int pid : {601, 602}) EXPECT_EQ(to(dead(2, pid)).parsed()["continues"], true);
  EXPECT_TRUE(events.empty()) << events.back();
  dead(2, 603);  // its own death, before it joined
  EXPECT_EQ(kinds(), std::vector<std::string>{"not_entered"});
}

TEST_F(SchedulerResize, AServerThatNeverCameDoesNotKeepTheSchedulerFromEnding) {
  begin(2, 1);
  resize(1);
  for (int rank = 0; rank < 3; ++rank) {
    auto who = worker(rank);
    who["status"] = 0;
    ask(verb::leave, who);
  }
  ASSERT_EQ(subject->state(), scheduler::phase::done);
  EXPECT_FALSE(subject->all_notified(now));
  beat_all({server(0), server(1)});
  EXPECT_TRUE(subject->all_notified(now));
}

TEST_F(SchedulerResize, AServerThatIsLostWhileItLeavesIsALossLikeAnyOther) {
  begin(3, 2);
  resize(-1);
  EXPECT_EQ(to(dead(2)).parsed()["continues"], true);
  EXPECT_EQ(members().servers[2].state, server_state::down);
  begin(2, 1);
  resize(-1);
  EXPECT_EQ(to(dead(1)).parsed()["continues"], false);
  EXPECT_EQ(subject->cause(),
            "server s1 (pid 501 on h) lost: killed by signal 9; there is no other replica of its partitions");
}

TEST_F(SchedulerResize, AServerStaysUntilThereAreEnoughWithoutIt) {
  begin(3, 2);
  resize(-1);
  EXPECT_EQ(to(dead(0)).parsed()["continues"], true);
  all_synced({1, 2}, 3);
  EXPECT_EQ(members().servers[2].state, server_state::leaving);
  EXPECT_EQ(to(ask(verb::stats, json::object())).parsed()["spare"], 1);  // it still has its replicas
  auto another = server(0);
  another["incarnation"] = 300;
  ask(verb::join, another);
  all_synced({1, 2}, 4);
  EXPECT_EQ(members().servers[0].state, server_state::up);
  EXPECT_EQ(members().servers[2].state, server_state::left);
}

TEST_F(SchedulerResize, OneThatHasLeftMayDieAndWhoAskedItIsAnsweredByANewEpoch) {
  begin(2, 1);
  resize(-1);
  all_synced({0, 1}, 2);
  EXPECT_EQ(to(dead(1)).parsed()["continues"], true);
  EXPECT_EQ(members().epoch, 4U);
  EXPECT_EQ(members().servers[1].state, server_state::gone);
  EXPECT_EQ(events.back()["event"], "retired");
}

}  // namespace
