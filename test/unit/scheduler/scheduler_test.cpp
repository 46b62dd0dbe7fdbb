// SPDX-License-Identifier: BSD-3-Clause
#include "test/support/scheduler_test.hpp"

namespace {

using namespace paracel;
using namespace paracel::test;

class Scheduler : public scheduler_test {};

TEST_F(Scheduler, ServersAreAnsweredWhenAllServersAreThereWorkersWhenEverybodyIs) {
  const int w0 = ask(verb::join, worker(0));
  const int s1 = ask(verb::join, server(1));
  EXPECT_TRUE(answers.empty());
  const int s0 = ask(verb::join, server(0));
  EXPECT_EQ(to(s0).result, status::ok);
  EXPECT_EQ(to(s1).result, status::ok);
  EXPECT_FALSE(answers.contains(w0));
  const int w2 = ask(verb::join, worker(2));
  const int w1 = ask(verb::join, worker(1));
  for (const int n : {w0, w1, w2}) {
    const auto m = membership::from_json(to(n).body);
    EXPECT_EQ(m.job, job);
    EXPECT_EQ(m.workers, 3U);
    ASSERT_EQ(m.servers.size(), 2U);
    EXPECT_EQ(m.servers[1].slot, 1U);
    EXPECT_EQ(m.servers[1].incarnation, 101U);
    EXPECT_EQ(m.servers[1].shards, (std::vector<std::string>{"ipc:///x/1_0", "ipc:///x/1_1"}));
    EXPECT_EQ(m.servers[0].clock, "ipc:///x/0_c");
    EXPECT_EQ(m.servers[0].pid, 500);
  }
  EXPECT_EQ(kinds(), (std::vector<std::string>{"joined", "joined", "joined", "joined", "joined", "started"}));
  EXPECT_EQ(events[1]["role"], "server");
  EXPECT_EQ(events[1]["index"], 1);
}

TEST_F(Scheduler, AWeightAndAnIncarnationInHexArePassedOn) {
  auto s = server(0);
  s["weight"] = 0.5;
  s["incarnation"] = "00000000deadbeef";
  ask(verb::join, s);
  ask(verb::join, server(1));
  for (int r = 0; r < 3; ++r) ask(verb::join, worker(r));
  const auto m = membership::from_json(to(last).body);
  EXPECT_EQ(m.servers[0].weight, 0.5);
  EXPECT_EQ(m.servers[0].incarnation, 0xdeadbeefU);
}

TEST_F(Scheduler, ASecondNodeInTheSamePlaceIsRefusedAndTheFirstStays) {
  const int first = ask(verb::join, worker(1));
  expect_refused(ask(verb::join, worker(1)), "worker 1 (pid 701 on h) has joined already");
  EXPECT_FALSE(answers.contains(first));
  ask(verb::join, server(0));
  expect_refused(ask(verb::join, server(0)), "server s0 (pid 500 on h) has joined already");
}

TEST_F(Scheduler, WhatDoesNotFitTheJobIsRefused) {
  expect_refused(ask(verb::join, worker(3)), "rank 3: the job has 3 workers, counted from 0");
  expect_refused(ask(verb::join, server(2)), "slot 2: the job has 2 servers, counted from 0");
  expect_refused(ask(verb::join, worker(1, 4)), "worker 1 was started as one of 4 workers, the job has 3");
  const int other = ask_text(verb::join, worker(0).dump(), job + 1);
  EXPECT_EQ(to(other).result, status::wrong_job);
  EXPECT_EQ(to(other).body, "this is the scheduler of job 00c0ffee12345678, the request is of another");
}

TEST_F(Scheduler, MalformedBodiesAreRefusedWithAReasonAndChangeNothing) {
  expect_refused(ask_text(verb::join, "not json"), "the body is not a JSON object");
  expect_refused(ask_text(verb::join, std::string(2 << 20, ' ')), "the body is longer than a control message can be");
  expect_refused(ask(verb::join, json{{"role", "king"}}), "\"role\" must be \"server\" or \"worker\"");
  expect_refused(ask(verb::join, json{{"role", "worker"}}), "\"rank\" is missing");
  expect_refused(ask(verb::join, json{{"role", "worker"}, {"rank", -1}}),
                 "\"rank\" is -1, not a whole number up to 4294967295");
  const auto broken = [&](const char* key, const json& value) {
    auto s = server(0);
    s[key] = value;
    return to(ask(verb::join, s)).result;
  };
  EXPECT_EQ(broken("threads", 3), status::bad_request);
  EXPECT_EQ(broken("threads", 0), status::bad_request);
  EXPECT_EQ(broken("shards", {"ipc:///a", 7}), status::bad_request);
  EXPECT_EQ(broken("shards", {"ipc:///a", ""}), status::bad_request);
  EXPECT_EQ(broken("clock", ""), status::bad_request);
  for (const char* no : {"nowhere", "tcp://host", "tcp://host:", "tcp://host:70000", "tcp://:80", "tcp://host:8x",
                         "ipc://", "http://host:80", "inproc://"}) {
    EXPECT_EQ(broken("control", no), status::bad_request) << no;
  }
  EXPECT_EQ(broken("control", "ipc:///" + std::string(200, 'x')), status::bad_request) << "longer than a socket's path";
  EXPECT_EQ(broken("incarnation", 0), status::bad_request);
  EXPECT_EQ(broken("weight", 0), status::bad_request);
  EXPECT_EQ(broken("host", std::string(5000, 'h')), status::bad_request);
  EXPECT_EQ(to(ask_text(verb::heartbeat, "[]")).result, status::bad_request);
  EXPECT_EQ(to(ask_text(verb::progress, "7")).result, status::bad_request);
  EXPECT_EQ(to(ask(verb::leave, worker(0))).result, status::bad_request);
  expect_refused(ask_text(verb::pull, "{}"), "pull is not a verb of the scheduler");
  EXPECT_TRUE(events.empty());
  start();  // all slots are still free
}

TEST_F(Scheduler, AWorkerWithoutHeartbeatIsLostAndEverybodyLearnsIt) {
  start();
  const int waits = barrier(0, 3);
  for (int i = 0; i < 7; ++i) {
    now += 500ms;
    beat_all({server(0), server(1), worker(0), worker(2)});
    subject->tick(now);
    if (now - scheduler::time_point(std::chrono::hours(5)) <= 3000ms) {
      EXPECT_EQ(subject->state(), scheduler::phase::running);
    }
  }
  EXPECT_EQ(subject->state(), scheduler::phase::aborted);
  const std::string cause = "worker 1 (pid 701 on h) lost: no heartbeat for 3.5 s";
  EXPECT_EQ(subject->status(), 10);
  expect_ended(waits, 10, cause);
  expect_ended(barrier(2, 3), 10, cause);
  const auto& beat = to(ask(verb::heartbeat, worker(2)));
  EXPECT_EQ(beat.result, status::ok);
  EXPECT_EQ(beat.order, instruction::abort);
  EXPECT_EQ(beat.parsed()["cause"], cause);
  EXPECT_EQ(events.at(6), (json{{"event", "lost"},
                                {"role", "worker"},
                                {"index", 1},
                                {"pid", 701},
                                {"host", "h"},
                                {"cause", cause},
                                {"status", 10}}));
  EXPECT_EQ(events.at(7), (json{{"event", "abort"}, {"status", 10}, {"cause", cause}}));
  EXPECT_EQ(events.size(), 8U);
}

TEST_F(Scheduler, AServerWithoutHeartbeatIsLost) {
  start();
  now += 2s;
  beat_all({server(1), worker(0), worker(1), worker(2)});
  now += 1001ms;
  subject->tick(now);
  EXPECT_EQ(subject->status(), 11);
  EXPECT_EQ(subject->cause(), "server s0 (pid 500 on h) lost: no heartbeat for 3.0 s");
}

TEST_F(Scheduler, ExactlyTheLimitIsStillInTime) {
  start();
  now += 3000ms;
  subject->tick(now);
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  now += 1ms;
  subject->tick(now);
  EXPECT_EQ(subject->state(), scheduler::phase::aborted);
}

TEST_F(Scheduler, ANodeThatWaitsForTheOthersNeedNotBeat) {
  const int w = ask(verb::join, worker(0));
  now += 10s;
  subject->tick(now);
  EXPECT_EQ(subject->state(), scheduler::phase::joining);
  EXPECT_FALSE(answers.contains(w));
  // Once it has sent heartbeats, its silence counts.
  ask(verb::heartbeat, worker(0));
  now += 4s;
  subject->tick(now);
  EXPECT_EQ(subject->cause(), "worker 0 (pid 700 on h) lost: no heartbeat for 4.0 s");
  expect_ended(w, 10, subject->cause());
}

TEST_F(Scheduler, ABeatMayOvertakeItsJoin) {
  const auto& early = to(ask(verb::heartbeat, worker(0)));
  EXPECT_EQ(early.result, status::ok);
  EXPECT_EQ(early.order, instruction::proceed);
}

TEST_F(Scheduler, ABeatFromAnotherProcessInTheSamePlaceIsRefused) {
  start();
  auto impostor = worker(1);
  impostor["pid"] = 9;
  expect_refused(ask(verb::heartbeat, impostor), "worker 1 (pid 701 on h) holds this place");
  now += 3100ms;
  subject->tick(now);
  EXPECT_EQ(subject->state(), scheduler::phase::aborted);  // and it keeps no process alive
}

TEST_F(Scheduler, ALongUserFunctionIsNamedOnceInAWhileAndIsNoDeath) {
  start();
  auto busy = server(1);
  for (int second = 0; second < 40; ++second) {
    busy["busy"] = {{{"shard", 1}, {"function", "libx.so:f"}, {"seconds", 31 + second}}};
    now += 1s;
    beat_all({server(0), busy, worker(0), worker(1), worker(2)});
    subject->tick(now);
  }
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  ASSERT_EQ(events.size(), 8U);
  EXPECT_EQ(events[6], (json{{"event", "busy"},
                             {"role", "server"},
                             {"index", 1},
                             {"pid", 501},
                             {"host", "h"},
                             {"shard", 1},
                             {"function", "libx.so:f"},
                             {"seconds", 31}}));
  EXPECT_EQ(events[7]["seconds"], 61);
  busy["busy"] = {{{"shard", 1}, {"function", "libx.so:g"}, {"seconds", 31}}, 7, {{"shard", -1}}};
  ask(verb::heartbeat, busy);
  EXPECT_EQ(events.size(), 9U);  // a different function is reported again; malformed events are ignored
}

TEST_F(Scheduler, TheJoinDeadlineNamesWhoIsMissing) {
  ask(verb::join, server(1));
  const int w = ask(verb::join, worker(1));
  now += 60s;
  subject->tick(now);
  EXPECT_EQ(subject->state(), scheduler::phase::joining);
  now += 1ms;
  subject->tick(now);
  const std::string cause = "the job did not start within 60.0 s: server s0, worker 0, worker 2 did not join";
  expect_ended(w, 12, cause);
  expect_ended(ask(verb::join, worker(2)), 12, cause);
}

TEST_F(Scheduler, OfManyMissingNodesOnlySomeAreNamed) {
  make(20, 2);
  now += 61s;
  subject->tick(now);
  EXPECT_EQ(
      subject->cause(),
      "the job did not start within 60.0 s: server s0, server s1, worker 0, worker 1, worker 2, worker 3, worker 4, "
      "worker 5, worker 6, worker 7 and 12 more did not join");
}

TEST_F(Scheduler, AnAbortFromANodeEndsTheJobAndTheFirstCauseStays) {
  start();
  const int waits = barrier(1, 3);
  const int told = ask(verb::abort, json{{"status", 5}, {"cause", "liblr.so has the wrong ABI"}});
  EXPECT_EQ(to(told).result, status::ok);
  expect_ended(waits, 5, "liblr.so has the wrong ABI");
  const int late = ask(verb::abort, json{{"status", 4}, {"cause", "something else"}});
  expect_ended(late, 5, "liblr.so has the wrong ABI");
  now += 10s;
  subject->tick(now);
  EXPECT_EQ(subject->status(), 5);
  EXPECT_EQ(kinds().back(), "abort");
  EXPECT_EQ(events.size(), 7U);
}

TEST_F(Scheduler, AnAbortWithoutSenseIsStillAnAbort) {
  start();
  ask(verb::abort, json{{"status", 7000}});
  EXPECT_EQ(subject->status(), 1);
  EXPECT_EQ(subject->cause(), "a node ended the job without saying why");
}

TEST_F(Scheduler, AWorkerThatLeavesWithAFailureEndsTheJobWithItsStatus) {
  start();
  ask(verb::leave, leaving(worker(2), 4));
  EXPECT_EQ(subject->status(), 4);
  EXPECT_EQ(subject->cause(), "worker 2 (pid 702 on h) ended with status 4");
}

TEST_F(Scheduler, AServerThatLeavesEarlyEndsTheJobAfterAMoment) {
  start();
  ask(verb::leave, leaving(server(1)));
  EXPECT_EQ(events.back(), (json{{"event", "left"}, {"role", "server"}, {"index", 1}, {"status", 0}}));
  now += 1s;
  subject->tick(now);
  EXPECT_EQ(subject->state(), scheduler::phase::running);  // a process that knows the cause may still report it
  now += 1s;
  subject->tick(now);
  EXPECT_EQ(subject->status(), 11);
  EXPECT_EQ(subject->cause(), "server s1 (pid 501 on h) left before the workers had finished");
}

TEST_F(Scheduler, WhenAllWorkersHaveLeftTheJobIsDoneAndServersAreShutDown) {
  start();
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(to(ask(verb::heartbeat, server(0))).order, instruction::proceed);
    EXPECT_EQ(to(ask(verb::leave, leaving(worker(r)))).result, status::ok);
    now += 10s;  // processes that have left need no heartbeat
    beat_all({server(0), server(1)});
    for (int other = r + 1; other < 3; ++other) ask(verb::heartbeat, worker(other));
    subject->tick(now);
  }
  EXPECT_EQ(subject->state(), scheduler::phase::done);
  EXPECT_EQ(subject->status(), 0);
  EXPECT_EQ(kinds().back(), "done");
  EXPECT_EQ(to(ask(verb::heartbeat, server(0))).order, instruction::shutdown);
  EXPECT_EQ(to(ask(verb::leave, leaving(server(1)))).result, status::ok);
  now += 10s;
  subject->tick(now);
  EXPECT_EQ(subject->state(), scheduler::phase::done);  // silence does not matter any more
  expect_refused(ask(verb::join, worker(0)), "worker 0 (pid 700 on h) has joined already");
}

TEST_F(Scheduler, LeavingTwiceCountsOnce) {
  start();
  for (int i = 0; i < 3; ++i) ask(verb::leave, leaving(worker(0)));
  EXPECT_EQ(subject->state(), scheduler::phase::running);
}

TEST_F(Scheduler, ACollectiveThatWaitsForALeftWorkerFails) {
  start();
  const int waits = barrier(0, 3);
  ask(verb::leave, leaving(worker(1)));
  expect_refused(waits, "collective 0 of communicator 0 waits for rank 1, but worker 1 has left the job");
}

TEST_F(Scheduler, CollectivesRunThroughTheService) {
  start();
  const std::vector<int> parts{barrier(0, 3), barrier(1, 3), barrier(2, 3)};
  for (const int n : parts) EXPECT_EQ(to(n).result, status::ok);
  expect_refused(barrier(0, 4), "a collective among 4 ranks: the job has 3");
}

TEST_F(Scheduler, ProgressIsPassedOnButNotMoreThanAnybodyReads) {
  start();
  events.clear();
  for (int round = 1; round <= 1007; ++round) {
    ask(verb::progress, json{{"round", round}, {"objective", 0.5}, {"event", "done"}});
    now += 1ms;
    subject->tick(now);
  }
  EXPECT_GE(events.size(), 15U);
  EXPECT_LE(events.size(), 25U);
  EXPECT_EQ(events[0], (json{{"event", "progress"}, {"round", 1}, {"objective", 0.5}}));
  for (int r = 0; r < 3; ++r) ask(verb::leave, leaving(worker(r)));
  ASSERT_GE(events.size(), 5U);
  EXPECT_EQ(events[events.size() - 2]["round"], 1007);  // the last one is never dropped
  EXPECT_EQ(kinds().back(), "done");
}

TEST_F(Scheduler, EverybodyKnowsWhenAllAreToldOrHadTheLimitToAsk) {
  start();
  EXPECT_FALSE(subject->all_notified(now));
  subject->abort(143, "stopped", now);
  EXPECT_FALSE(subject->all_notified(now));
  beat_all({server(0), server(1), worker(0)});
  ask(verb::leave, leaving(worker(1)));
  EXPECT_FALSE(subject->all_notified(now));
  ask(verb::heartbeat, worker(2));
  EXPECT_TRUE(subject->all_notified(now));

  make(3, 2);
  subject->abort(143, "stopped", now);  // no process has joined; they need time to join and be told
  EXPECT_FALSE(subject->all_notified(now + 3s));
  EXPECT_TRUE(subject->all_notified(now + 3001ms));
}

TEST_F(Scheduler, TextThatIsNoUtf8IsRefused) {
  auto s = server(0).dump();
  s.replace(s.find("\"h\""), 3, "\"\xff\xfe\"");
  expect_refused(ask_text(verb::join, s), "the body is not a JSON object");
  expect_refused(ask_text(verb::abort, "{\"status\":1,\"cause\":\"\xff\"}"), "the body is not a JSON object");
  EXPECT_EQ(subject->state(), scheduler::phase::joining);
}

TEST_F(Scheduler, AReportSaysWhoIsThereHowFarAndHowItEnded) {
  auto said = answers[ask_text(verb::stats, "")].parsed();
  EXPECT_EQ(said["phase"], "joining");
  EXPECT_EQ(said["workers"][2]["state"], "missing");
  start();
  auto beat = worker(1);
  beat["clock"] = 41;
  now += 1s;
  ask(verb::heartbeat, beat);
  ask(verb::progress, {{"round", 7}});
  now += 500ms;
  said = answers[ask_text(verb::stats, "")].parsed();
  EXPECT_EQ(said["phase"], "running");
  EXPECT_EQ(said["seconds"], 1.5);
  EXPECT_EQ(said["servers"].size(), 2U);
  EXPECT_EQ(said["servers"][1]["incarnation"], "0000000000000065");
  EXPECT_EQ(said["workers"][1],
            (json{{"rank", 1}, {"state", "up"}, {"pid", 701}, {"host", "h"}, {"clock", 41}, {"silent", 0.5}}));
  EXPECT_EQ(said["workers"][0]["silent"], 1.5);
  EXPECT_EQ(said["progress"]["round"], 7);
  ask(verb::abort, {{"status", 9}, {"cause", "no luck"}});
  said = answers[ask_text(verb::stats, "")].parsed();
  EXPECT_EQ(said["phase"], "aborted");
  EXPECT_EQ(said["status"], 9);
  EXPECT_EQ(said["cause"], "no luck");
}

TEST_F(Scheduler, TheOthersGoOnWithoutAWorkerWhenTheyAreToldTo) {
  make(3, 2, 1, true);
  start();
  auto beat = worker(2);
  beat["clock"] = 12;
  ask(verb::heartbeat, beat);
  const int waits = barrier(0, 3);
  barrier(1, 3);
  EXPECT_FALSE(answers.contains(waits));
  auto dead = worker(2);
  dead["why"] = "killed";
  EXPECT_EQ(answers[ask(verb::report_death, dead)].parsed()["continues"], true);
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  EXPECT_EQ(answers[waits].result, status::ok);  // the barrier that waited for it
  const auto& said = events.back();
  EXPECT_EQ(said["event"], "ejected");
  EXPECT_EQ(said["index"], 2);
  EXPECT_EQ(said["clock"], 12);
  EXPECT_EQ(said["cause"], "worker 2 (pid 702 on h) lost: killed");
  EXPECT_EQ(said["reaped"], true);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].first, clock_keeper());
  EXPECT_EQ(sent[0].second.what, verb::clock_tick);
  EXPECT_EQ(sent[0].second.rank, 2U);
  EXPECT_EQ(sent[0].second.clock, net::no_clock);
  EXPECT_EQ(sent[0].second.epoch, subject->members().epoch);
  // If it turns out to be alive it is told, and it joins no collective.
  EXPECT_EQ(answers[ask(verb::heartbeat, worker(2))].order, instruction::abort);
  EXPECT_EQ(answers[barrier(2, 3)].result, status::bad_request);
  const auto report = answers[ask_text(verb::stats, "")].parsed();
  EXPECT_EQ(report["workers"][2]["state"], "ejected");
  EXPECT_EQ(report["losses"][0]["cause"], "worker 2 (pid 702 on h) lost: killed");
  ask(verb::leave, leaving(worker(0)));
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  ask(verb::leave, leaving(worker(1)));
  EXPECT_EQ(subject->state(), scheduler::phase::done);
}

TEST_F(Scheduler, WithoutWorker0NobodyWritesTheResults) {
  make(3, 2, 1, true);
  start();
  ask(verb::report_death, worker(0));
  EXPECT_EQ(subject->state(), scheduler::phase::aborted);
  EXPECT_EQ(subject->status(), 10);
  ASSERT_EQ(events[events.size() - 2]["event"], "lost");
  EXPECT_EQ(events[events.size() - 2]["why_not"], "worker 0 writes the results: it cannot be ejected");
}

TEST_F(Scheduler, ASilentWorkerIsEjectedToo) {
  make(3, 2, 1, true);
  start();
  for (int i = 0; i < 5; ++i) {
    now += 700ms;
    beat_all({server(0), server(1), worker(0), worker(2)});
    subject->tick(now);
  }
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  EXPECT_EQ(events.back()["event"], "ejected");
  EXPECT_EQ(events.back()["index"], 1);
  EXPECT_EQ(events.back()["reaped"], false) << "which tells a launcher to kill it";
  EXPECT_TRUE(sent.empty()) << "its process may live, and take part";
  EXPECT_EQ(answers[ask(verb::report_death, worker(1))].parsed()["continues"], true);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].second.rank, 1U);
  ask(verb::report_death, worker(1));
  EXPECT_EQ(sent.size(), 1U) << "told twice";
}

class SchedulerThatEjects : public scheduler_test {
 protected:
  void begin(std::uint32_t replicas) {
    make(3, 3, replicas, true);
    start(3);
    events.clear();
    ask(verb::report_death, worker(2));
    ASSERT_EQ(sent.size(), 1U);
  }
  void reply(status result) {
    net::reply_view r;
    r.header.result = result;
    subject->on_reply(sent.back().second.sequence, r, now);
  }
  /// All but worker 2 send heartbeats, for this time.
  void beat_for(std::chrono::milliseconds time, int without_server = -1) {
    for (const auto end = now + time; now < end;) {
      now += 100ms;
      for (int s = 0; s < 3; ++s)
        if (s != without_server) ask(verb::heartbeat, server(s));
      for (int r = 0; r < 2; ++r) ask(verb::heartbeat, worker(r));
      subject->tick(now);
    }
  }
};

TEST_F(SchedulerThatEjects, RepeatsToTheClockThatAWorkerLeavesUntilItIsAcknowledged) {
  begin(1);
  reply(status::wrong_owner);
  beat_for(100ms);
  EXPECT_EQ(sent.size(), 1U);
  beat_for(100ms);
  EXPECT_EQ(sent.size(), 2U) << "it was refused";
  beat_for(1000ms);
  EXPECT_EQ(sent.size(), 3U) << "it is not answered";
  EXPECT_EQ(sent[2].second.rank, 2U);
  reply(status::ok);
  beat_for(30s);
  EXPECT_EQ(sent.size(), 3U);
  EXPECT_EQ(subject->state(), scheduler::phase::running);
}

TEST_F(SchedulerThatEjects, TellsTheServerThatKeepsTheClockNow) {
  begin(2);
  const auto before = sent[0].first;
  const int keeper = before[before.size() - 3] - '0';
  auto dead = server(keeper);
  dead["why"] = "killed";
  ask(verb::report_death, dead);
  subject->tick(now);
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_NE(sent[1].first, before);
  EXPECT_EQ(sent[1].first, clock_keeper());
  EXPECT_EQ(sent[1].second.epoch, subject->members().epoch);
}

TEST_F(SchedulerThatEjects, EndsTheJobWhenTheClockDoesNotAnswer) {
  begin(1);
  beat_for(20s);
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  beat_for(200ms);
  EXPECT_EQ(subject->status(), exit_status::worker_lost);
  EXPECT_EQ(subject->cause(), "worker 2 (pid 702 on h) lost: its process has ended, and the others could not be told");
}

TEST_F(SchedulerThatEjects, EndsTheJobWhenAWorkerFailsByItself) {
  make(3, 2, 1, true);
  start();
  auto failed = worker(1);
  failed["why"] = "it exited with status 4";
  failed["status"] = 4;
  EXPECT_EQ(answers[ask(verb::report_death, failed)].parsed()["continues"], false);
  EXPECT_EQ(subject->state(), scheduler::phase::aborted);
  EXPECT_EQ(subject->status(), 4);
  EXPECT_EQ(subject->cause(), "worker 1 (pid 701 on h) lost: it exited with status 4");
}

TEST_F(SchedulerThatEjects, EndsTheJobWhenAWorkerDiesBeforeAllHaveJoined) {
  make(3, 2, 1, true);
  ask(verb::join, worker(0));
  auto dead = worker(2);  // it has not joined
  dead["why"] = "it was killed";
  EXPECT_EQ(answers[ask(verb::report_death, dead)].parsed()["continues"], false);
  EXPECT_EQ(subject->status(), exit_status::worker_lost);
  EXPECT_EQ(subject->cause(),
            "worker 2 lost: it was killed; the others continue without a worker only when all have joined");
}

TEST_F(SchedulerThatEjects, SaysThatAWorkerFailedAfterTheEndOfTheJob) {
  make(3, 2, 1, true);
  start();
  for (int r = 0; r < 3; ++r) ask(verb::leave, leaving(worker(r)));
  auto failed = worker(1);
  EXPECT_EQ(answers[ask(verb::report_death, failed)].parsed()["continues"], true) << "killed, with nothing left to do";
  failed["status"] = 3;
  EXPECT_EQ(answers[ask(verb::report_death, failed)].parsed()["continues"], false);
  EXPECT_EQ(subject->state(), scheduler::phase::done);
}

}  // namespace
