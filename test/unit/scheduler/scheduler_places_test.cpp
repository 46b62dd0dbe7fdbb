// SPDX-License-Identifier: BSD-3-Clause
//
// Places for processes that no launcher of the job starts.
#include <paracel/error.hpp>

#include "test/support/scheduler_test.hpp"

namespace {

using namespace paracel;
using namespace paracel::test;

class SchedulerPlaces : public scheduler_test {
 protected:
  void SetUp() override { begin(1); }
  void begin(std::uint32_t replicas) {
    subject.emplace(
        srv::scheduler_options{.job = job,
                               .workers = 3,
                               .servers = 2,
                               .replicas = replicas,
                               .heartbeat_limit = 3000ms,
                               .lease_limit = 2200ms,
                               .external = true,
                               .settings = R"({"a":1})",
                               .join_limit = 60s},
        [this](std::string_view line, bool) { events.push_back(json::parse(line)); }, now,
        [](const std::string&, const net::request_header&, std::string_view) {});
  }
  json place(const char* role, int pid, const json& more = json::object()) {
    json body{{"role", role}, {"pid", pid}, {"host", "h"}};
    body.update(more);
    return to(ask(verb::reserve, body)).parsed();
  }
  int index(const char* role, int pid) { return place(role, pid).value("index", -1); }
  void pass(std::chrono::milliseconds time, const std::vector<json>& living) {
    for (; time > 0ms; time -= 500ms) {
      now += 500ms;
      beat_all(living);
      subject->tick(now);
    }
  }
};

TEST_F(SchedulerPlaces, AreGivenInOrderAndKeptForAWhile) {
  EXPECT_EQ(place("worker", 1), (json{{"index", 0}, {"workers", 3}, {"servers", 2}, {"settings", {{"a", 1}}}}));
  EXPECT_EQ(index("worker", 2), 1);
  EXPECT_EQ(index("server", 1), 0);
  EXPECT_EQ(index("worker", 1), 0) << "the same process asks again";
  EXPECT_EQ(index("worker", 3), 2);
  EXPECT_EQ(place("worker", 4), (json{{"taken", "all 3 workers have their processes"}}));
  EXPECT_EQ(place("worker", 4, {{"rank", 1}}), (json{{"taken", "worker 1 is pid 2 on h"}}));
  now += 31s;
  EXPECT_EQ(index("worker", 4), 0);
}

TEST_F(SchedulerPlaces, OneThatIsNamedIsGivenOnce) {
  EXPECT_EQ(place("server", 1, {{"slot", 1}}).value("index", -1), 1);
  EXPECT_EQ(index("server", 2), 0);
  ask(verb::join, worker(2));
  now += 31s;
  EXPECT_EQ(place("worker", 4, {{"rank", 2}}), (json{{"taken", "worker 2 is pid 702 on h"}}));
  EXPECT_EQ(index("worker", 4), 0);
  expect_refused(ask(verb::reserve, {{"role", "worker"}, {"pid", 1}, {"host", "h"}, {"rank", 3}}),
                 "rank 3: the job has 3 workers, counted from 0");
  expect_refused(ask(verb::reserve, {{"role", "boss"}, {"pid", 1}, {"host", "h"}}),
                 "\"role\" must be \"server\" or \"worker\"");
  expect_refused(ask(verb::reserve, {{"role", "worker"}, {"host", "h"}}), "\"pid\" is missing");
}

TEST_F(SchedulerPlaces, OneThatIsSilentBeforeTheJobRunsIsFreeAgain) {
  const int old = ask(verb::join, worker(1));
  ask(verb::join, server(0));
  pass(4s, {server(0)});
  EXPECT_EQ(to(old).result, status::bad_request);
  EXPECT_EQ(kinds(), (std::vector<std::string>{"joined", "joined", "vacated"}));
  EXPECT_EQ(events.back()["cause"], "worker 1 (pid 701 on h) lost: no heartbeat for 3.5 s");
  auto late = to(ask(verb::heartbeat, worker(1)));
  EXPECT_EQ(late.order, instruction::abort) << "it lives, but its place may be another one's";
  pass(4s, {});
  EXPECT_EQ(kinds().back(), "vacated");
  EXPECT_EQ(place("worker", 801, {{"rank", 1}}).value("index", -1), 1);
  auto again = worker(1);
  again["pid"] = 801;
  ask(verb::join, again);
  ask(verb::join, server(0));
  ask(verb::join, server(1));
  ask(verb::join, worker(0));
  ask(verb::join, worker(2));
  EXPECT_EQ(subject->state(), scheduler::phase::running);
}

TEST_F(SchedulerPlaces, OnceTheServersKnowEachOtherALossEndsTheJob) {
  ask(verb::join, server(0));
  ask(verb::join, server(1));
  pass(4s, {server(0)});
  EXPECT_EQ(subject->state(), scheduler::phase::aborted);
  EXPECT_EQ(subject->status(), exit_status::server_lost);
}

TEST_F(SchedulerPlaces, OfARunningJobAreThoseOfLostServers) {
  begin(2);
  EXPECT_EQ(place("server", 501, {{"slot", 1}}).value("index", -1), 1);
  start();
  EXPECT_EQ(place("server", 9), (json{{"taken", "all 2 servers have their processes"}}));
  pass(3s, {server(0), worker(0), worker(1), worker(2)});
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  EXPECT_EQ(place("server", 9, {{"slot", 0}}), (json{{"taken", "server s0 is pid 500 on h"}}));
  EXPECT_EQ(index("server", 9), 1);
  EXPECT_EQ(place("worker", 9), (json{{"taken", "all 3 workers have their processes"}}));
}

TEST_F(SchedulerPlaces, AProcessOfAnotherSchedulerIsToldToEnd) {
  auto foreign = worker(0);
  EXPECT_EQ(to(ask(verb::heartbeat, foreign)).order, instruction::proceed) << "its join may be under way";
  foreign["joined"] = true;
  const auto told = to(ask(verb::heartbeat, foreign));
  EXPECT_EQ(told.order, instruction::abort);
  EXPECT_EQ(told.parsed()["status"], exit_status::scheduler_lost);
}

TEST_F(SchedulerPlaces, AreNotGivenInOtherJobsNorAfterTheEnd) {
  start();
  for (int r = 0; r < 3; ++r) ask(verb::leave, leaving(worker(r)));
  expect_ended(ask(verb::reserve, {{"role", "worker"}, {"pid", 1}, {"host", "h"}}), 0, "");
  make(3, 2);
  expect_refused(ask(verb::reserve, {{"role", "worker"}, {"pid", 1}, {"host", "h"}}),
                 "prun.py starts all processes of this job: want -m external");
}

}  // namespace
