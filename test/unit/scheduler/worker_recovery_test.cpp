// SPDX-License-Identifier: BSD-3-Clause
//
// Workers that are replaced while the others wait, for a limited time.
#include <paracel/error.hpp>

#include "test/support/scheduler_test.hpp"

namespace {

using namespace paracel;
using namespace paracel::test;

class SchedulerThatWaits : public scheduler_test {
 protected:
  void SetUp() override {
    worker_wait = 10s;
    make(3, 2);
    start();
    events.clear();
  }
  static json dead(int rank, const std::string& why = "killed") {
    auto w = worker(rank);
    w["why"] = why;
    return w;
  }
  static json another(int rank) {
    auto w = worker(rank);
    w["pid"] = 900 + rank;
    return w;
  }
  /// All processes but this rank send heartbeats, for this time.
  void beat_for(std::chrono::milliseconds time, int without) {
    for (const auto end = now + time; now < end;) {
      now += 500ms;
      for (int s = 0; s < 2; ++s) ask(verb::heartbeat, server(s));
      for (int r = 0; r < 3; ++r)
        if (r != without) ask(verb::heartbeat, worker(r));
      subject->tick(now);
    }
  }
};

TEST_F(SchedulerThatWaits, AnotherProcessTakesThePlaceOfAWorkerThatDied) {
  const int first = barrier(2, 3);
  barrier(0, 3);
  const int waits = barrier(1, 3);
  EXPECT_EQ(to(first).result, status::ok);
  EXPECT_EQ(to(waits).result, status::ok);
  EXPECT_EQ(to(ask(verb::report_death, dead(2))).parsed()["continues"], true);
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  EXPECT_EQ(events.back()["event"], "awaited");
  EXPECT_EQ(events.back()["cause"], "worker 2 (pid 702 on h) lost: killed");
  EXPECT_EQ(events.back()["seconds"], 10);
  EXPECT_EQ(to(ask_text(verb::stats, "")).parsed()["workers"][2]["state"], "awaited");
  beat_for(5s, 2);
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  ask(verb::heartbeat, another(2));  // it may overtake the join
  EXPECT_EQ(to(ask(verb::heartbeat, worker(2))).order, instruction::abort) << "the one before, should it live";

  const int joined = ask(verb::join, another(2));
  EXPECT_EQ(to(joined).result, status::ok);
  EXPECT_EQ(to(joined).count, 1U) << "one process was this worker before";
  EXPECT_EQ(to(joined).version, 1U) << "and had called one collective";
  EXPECT_EQ(to(ask_text(verb::stats, "")).parsed()["workers"][2]["state"], "catching up");
  EXPECT_EQ(to(barrier(2, 3)).result, status::ok) << "is answered again";
  auto beat = another(2);
  beat["caught_up"] = true;
  ask(verb::heartbeat, beat);
  EXPECT_EQ(events.back()["event"], "caught_up");
  EXPECT_EQ(events.back()["pid"], 902);
  expect_refused(ask(verb::join, another(2)), "worker 2 (pid 902 on h) has joined already");
  EXPECT_EQ(to(ask_text(verb::stats, "")).parsed()["workers"][2]["state"], "up");
  for (int i = 0; i < 30; ++i) {
    now += 500ms;
    beat_all({server(0), server(1), worker(0), worker(1), another(2)});
    subject->tick(now);
  }
  EXPECT_EQ(subject->state(), scheduler::phase::running) << "nobody is awaited any more";
  for (const auto& w : {worker(0), worker(1), another(2)}) ask(verb::leave, leaving(w));
  EXPECT_EQ(subject->state(), scheduler::phase::done);
}

TEST_F(SchedulerThatWaits, AReplacementBeginsAtTheNewestCommitThatIsKnownOrLater) {
  auto beat = worker(2);
  beat["clock"] = 7;
  ask(verb::heartbeat, beat);
  ask(verb::report_death, dead(2));
  auto next = another(2);
  next["clock"] = 8;  // it died before its next heartbeat
  EXPECT_EQ(to(ask(verb::join, next)).result, status::ok);
  EXPECT_EQ(to(ask_text(verb::stats, "")).parsed()["workers"][2]["clock"], 8);
}

TEST_F(SchedulerThatWaits, AReplacementWhoseStateIsOlderThanWhatCountsEndsTheJob) {
  for (const bool has_state : {true, false}) {
    SetUp();
    auto beat = worker(2);
    beat["clock"] = 7;
    ask(verb::heartbeat, beat);
    ask(verb::report_death, dead(2));
    auto next = another(2);
    if (has_state) next["clock"] = 6;
    EXPECT_NE(to(ask(verb::join, next)).result, status::ok);
    EXPECT_EQ(subject->state(), scheduler::phase::aborted);
    EXPECT_EQ(subject->status(), exit_status::worker_lost);
    EXPECT_EQ(subject->cause(),
              std::string("worker 2 (pid 702 on h) lost: killed; no other process can replace it: it had committed "
                          "iteration 7, and the state found in the folder of the run is of ") +
                  (has_state ? "iteration 6" : "none"));
  }
}

TEST_F(SchedulerThatWaits, AfterThatTimeTheJobEndsWithTheCause) {
  ask(verb::report_death, dead(1));
  beat_for(10s, 1);
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  beat_for(1s, 1);
  EXPECT_EQ(subject->state(), scheduler::phase::aborted);
  EXPECT_EQ(subject->status(), exit_status::worker_lost);
  EXPECT_EQ(subject->cause(),
            "worker 1 (pid 701 on h) lost: killed; no replacement had caught up within 10 s "
            "(--on-worker-death)");
}

TEST_F(SchedulerThatWaits, AProcessThatDoesNotCatchUpInTimeEndsIt) {
  ask(verb::report_death, dead(0));
  ask(verb::join, another(0));
  for (int i = 0; i < 22; ++i) {
    now += 500ms;
    beat_all({server(0), server(1), another(0), worker(1), worker(2)});
    subject->tick(now);
  }
  EXPECT_EQ(subject->state(), scheduler::phase::aborted);
}

TEST_F(SchedulerThatWaits, OneThatDiesAgainIsAwaitedAnew) {
  ask(verb::report_death, dead(2));
  beat_for(6s, 2);
  ask(verb::join, another(2));
  auto again = another(2);
  again["why"] = "killed";
  ask(verb::report_death, again);
  beat_for(6s, 2);
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  auto third = another(2);
  third["pid"] = 950;
  EXPECT_EQ(to(ask(verb::join, third)).count, 2U);
}

TEST_F(SchedulerThatWaits, AJoinThatArrivesAfterItsSendersDeathWasReportedDoesNotCount) {
  ask(verb::report_death, dead(2));
  auto short_lived = another(2);
  short_lived["why"] = "killed";
  EXPECT_EQ(to(ask(verb::report_death, short_lived)).parsed()["continues"], true);
  expect_refused(ask(verb::join, another(2)), "the death of this process has been reported");
  auto next = another(2);
  next["pid"] = 950;
  EXPECT_EQ(to(ask(verb::join, next)).result, status::ok);
}

TEST_F(SchedulerThatWaits, AWorkerThatFallsSilentIsAwaitedToo) {
  beat_for(4s, 1);
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  EXPECT_EQ(events.back()["event"], "awaited");
  EXPECT_EQ(events.back()["index"], 1);
  ask(verb::report_death, dead(1));  // the launcher has killed it
  EXPECT_EQ(events.back()["event"], "awaited") << "once";
}

TEST_F(SchedulerThatWaits, WhereNobodyCanGoOnTheJobEnds) {
  ask(verb::report_death, dead(1));
  auto w = another(1);
  w["clock"] = 4;
  w["cannot"] = "it does not say how";
  const int joined = ask(verb::join, w);
  EXPECT_EQ(subject->status(), exit_status::worker_lost);
  expect_ended(joined, 10,
               "worker 1 (pid 701 on h) lost: killed; no other process can replace it: it does not say how");
}

TEST_F(SchedulerThatWaits, AWorkerIsFoundWhereItIs) {
  make(3, 2);
  const auto at = [](json w, const char* address) {
    w["address"] = address;
    return w;
  };
  const auto found = [&](int rank) { return to(ask(verb::find_worker, {{"rank", rank}})).parsed(); };
  const auto place = [](const char* address, int turn, const char* gone) {
    return json{{"address", address}, {"turn", turn}, {"gone", gone}, {"awaited", false}};
  };
  EXPECT_EQ(found(1), place("", 0, "it has no address for messages")) << "it has not joined yet";
  for (int s = 0; s < 2; ++s) ask(verb::join, server(s));
  ask(verb::join, at(worker(0), "ipc:///x/w0"));
  ask(verb::join, at(worker(1), "ipc:///x/w1"));
  EXPECT_EQ(found(1), place("ipc:///x/w1", 0, "")) << "before the others have joined";
  ask(verb::join, worker(2));
  EXPECT_EQ(found(2), place("", 0, "it has no address for messages"));

  ask(verb::report_death, dead(1));
  EXPECT_EQ(found(1)["gone"], "worker 1 (pid 701 on h) lost: killed");
  EXPECT_EQ(found(1)["awaited"], true);
  ask(verb::join, at(another(1), "ipc:///x/w1.1"));
  EXPECT_EQ(found(1), place("ipc:///x/w1.1", 1, ""));
  ask(verb::leave, leaving(worker(0)));
  EXPECT_EQ(found(0)["gone"], "it has left the job");

  expect_refused(ask(verb::find_worker, {{"rank", 3}}), "\"rank\" is 3, not a whole number up to 2");
  expect_refused(ask(verb::find_worker, {{"rank", -1}}), "\"rank\" is -1, not a whole number up to 2");
  expect_refused(ask(verb::find_worker, json::object()), "\"rank\" is missing");
  EXPECT_EQ(to(ask_text(verb::find_worker, R"({"rank": 0})", job + 1)).result, status::wrong_job);
  ask(verb::abort, {{"status", 1}, {"cause", "enough"}});
  expect_ended(ask(verb::find_worker, {{"rank", 0}}), 1, "enough");
}

TEST_F(SchedulerThatWaits, WhatAnotherProcessHadSentTakesNoPartInCollectives) {
  ask(verb::report_death, dead(1));
  client = 77;
  ask(verb::join, another(1));
  client = 0;
  expect_refused(barrier(1, 3), "another process is worker 1 now");
  client = 77;
  EXPECT_FALSE(answers.contains(barrier(1, 3)));
}

TEST_F(SchedulerThatWaits, AWorkerWhoseJoinIsNotThereYetEndsTheJobAsEver) {
  make(3, 2);
  for (int s = 0; s < 2; ++s) ask(verb::join, server(s));
  ask(verb::join, worker(0));
  ask(verb::report_death, dead(0));
  EXPECT_EQ(subject->state(), scheduler::phase::aborted);
}

TEST_F(SchedulerThatWaits, AWorkerThatNoOtherCanReplaceEndsTheJob) {
  auto reader = dead(0);
  reader["cannot"] = "it has read standard input";
  EXPECT_EQ(to(ask(verb::report_death, reader)).parsed()["continues"], false);
  EXPECT_EQ(subject->status(), exit_status::worker_lost);
  EXPECT_EQ(subject->cause(), "worker 0 (pid 700 on h) lost: killed; it has read standard input");
}

TEST_F(SchedulerThatWaits, SoDoesOneThatIsAwaitedAlready) {
  beat_for(4s, 0);
  ASSERT_EQ(events.back()["event"], "awaited");
  auto reader = dead(0);
  reader["cannot"] = "it has read standard input";
  reader["status"] = 10;  // it was told to exit
  EXPECT_EQ(to(ask(verb::report_death, reader)).parsed()["continues"], false);
  EXPECT_EQ(subject->status(), exit_status::worker_lost);
}

TEST_F(SchedulerThatWaits, AWorkerThatFailsByItselfEndsTheJob) {
  auto failed = dead(1, "it exited with status 3");
  failed["status"] = 3;
  EXPECT_EQ(to(ask(verb::report_death, failed)).parsed()["continues"], false);
  EXPECT_EQ(subject->status(), 3);
}

}  // namespace
