// SPDX-License-Identifier: BSD-3-Clause
//
// A scheduler that was suspended itself, with the whole job or alone.
#include <paracel/error.hpp>

#include "test/support/scheduler_test.hpp"

namespace paracel {
namespace {

using namespace test;

class SchedulerThatWasAway : public scheduler_test {
 protected:
  void SetUp() override {
    make(3, 2, 2);
    start();
  }
  void be_away(scheduler::time_point::duration time) {
    now += time;
    subject->was_away(time, now);
    subject->tick(now);
  }
  static std::vector<json> everybody() { return {server(0), server(1), worker(0), worker(1), worker(2)}; }
};

TEST_F(SchedulerThatWasAway, JudgesNobodyBeforeAnotherWholeInterval) {
  be_away(1h);
  now += 2200ms;
  subject->tick(now);
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  beat_all(everybody());
  now += 2200ms;
  subject->tick(now);
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  for (const auto& e : events) EXPECT_NE(e["event"], "lost");
}

TEST_F(SchedulerThatWasAway, FindsWhoDiedMeanwhile) {
  be_away(1h);
  beat_all({server(0), worker(0), worker(1), worker(2)});
  now += 2200ms;
  beat_all({server(0), worker(0), worker(1), worker(2)});
  subject->tick(now);
  EXPECT_NE(events.back()["event"], "lost");
  now += 1ms;
  subject->tick(now);
  EXPECT_EQ(events.back()["event"], "lost");
  EXPECT_EQ(events.back()["cause"], "server s1 (pid 501 on h) lost: no heartbeat for 2.2 s");
  EXPECT_EQ(subject->state(), scheduler::phase::running);
}

TEST_F(SchedulerThatWasAway, CountsThatTimeForNoOtherLimitEither) {
  make(3, 2);
  ask(verb::join, server(0));
  be_away(1h);
  EXPECT_EQ(subject->state(), scheduler::phase::joining);
  now += 60s + 1ms;
  subject->tick(now);
  EXPECT_EQ(subject->status(), exit_status::timeout);
}

TEST_F(SchedulerThatWasAway, WaitsAsLongAsEverForAWorkerInTheOldOnesPlace) {
  worker_wait = 10s;
  make(3, 2);
  start();
  ask(verb::report_death, {{"role", "worker"}, {"rank", 2}, {"pid", 702}, {"why", "killed"}});
  be_away(1h);
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  for (int i = 0; i < 21; ++i) {
    now += 500ms;
    beat_all({server(0), server(1), worker(0), worker(1)});
    subject->tick(now);
  }
  EXPECT_EQ(subject->status(), exit_status::worker_lost);
}

/// Two pods of one index: the host's name and the pid are the same.
TEST_F(SchedulerThatWasAway, TellsTwoWorkersOfOneNameAndPidApart) {
  worker_wait = 10s;
  make(3, 2);
  auto first = worker(2);
  auto second = first;
  first["incarnation"] = "00000000000000aa";
  second["incarnation"] = "00000000000000bb";
  for (int s = 0; s < 2; ++s) ask(verb::join, server(s));
  for (const auto& w : {worker(0), worker(1), first}) ask(verb::join, w);
  EXPECT_EQ(to(ask(verb::heartbeat, first)).count, net::known_sender);
  expect_refused(ask(verb::heartbeat, second), "worker 2 (pid 702 on h) holds this place");
  for (int i = 0; i < 7; ++i) {
    now += 500ms;
    beat_all({server(0), server(1), worker(0), worker(1)});
    subject->tick(now);
  }
  EXPECT_EQ(kinds().back(), "awaited");
  ask(verb::join, second);
  const auto& told = to(ask(verb::heartbeat, first));
  EXPECT_EQ(told.order, instruction::abort);
  EXPECT_EQ(told.parsed()["cause"], "another process has replaced it; the job continues without it");
  EXPECT_EQ(to(ask(verb::heartbeat, second)).count, net::known_sender);
  ask(verb::leave, leaving(first, 1));  // the words of the first one end nothing any more
  EXPECT_EQ(subject->state(), scheduler::phase::running);
}

}  // namespace
}  // namespace paracel
