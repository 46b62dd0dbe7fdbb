// SPDX-License-Identifier: BSD-3-Clause
//
// Samples of what the processes have used, for the curves of a report.
#include "test/support/scheduler_test.hpp"

namespace {

using namespace paracel;
using namespace paracel::test;

class Samples : public scheduler_test {
 public:
  static json using_some(json who, double seconds, json more = json::object()) {
    who.update(more);
    who["usage"] = {{"seconds", seconds}};
    return who;
  }
  std::vector<json> of_kind(const std::string& kind) const {
    std::vector<json> found;
    std::ranges::copy_if(events, std::back_inserter(found), [&](const json& e) { return e["event"] == kind; });
    return found;
  }
};

TEST_F(Samples, TheLastUsageOfEachIsPassedOnOnceASecond) {
  start();
  ask(verb::heartbeat, using_some(worker(1), 0.1, {{"clock", 3}}));
  ask(verb::heartbeat, using_some(worker(1), 0.5, {{"clock", 7}}));
  ask(verb::heartbeat, using_some(server(0), 0.4, {{"memory_bytes", 5}, {"resident_bytes", 9}}));
  subject->tick(now += 300ms);
  EXPECT_EQ(of_kind("sample").size(), 0U) << "too early";
  subject->tick(now += 400ms);
  const json first{
      {"event", "sample"},
      {"workers", {{{"index", 1}, {"clock", 7}, {"usage", {{"seconds", 0.5}}}}}},
      {"servers", {{{"index", 0}, {"memory_bytes", 5}, {"resident_bytes", 9}, {"usage", {{"seconds", 0.4}}}}}}};
  EXPECT_EQ(of_kind("sample"), std::vector{first});
  subject->tick(now += 900ms);
  EXPECT_EQ(of_kind("sample").size(), 1U);
  subject->tick(now += 200ms);
  EXPECT_EQ(of_kind("sample").size(), 2U);
  const auto status = json::parse(to(ask_text(verb::stats, "")).body);
  EXPECT_EQ(status["workers"][1]["usage"], (json{{"seconds", 0.5}}));
  EXPECT_FALSE(status["workers"][0].contains("usage"));
}

TEST_F(Samples, WithoutUsageThereAreNone) {
  start();
  beat_all({server(0), worker(0)});
  for (const json& odd : {json(7), json(nullptr), json{{"x", std::string(70000, 'x')}}}) {
    auto who = worker(2);
    who["usage"] = odd;
    EXPECT_EQ(to(ask(verb::heartbeat, who)).result, status::ok);
  }
  subject->tick(now += 2s);
  EXPECT_EQ(of_kind("sample").size(), 0U);
}

TEST_F(Samples, AProcessThatLeavesTellsItsLastOne) {
  start();
  auto leaves = leaving(worker(2));
  leaves["usage"] = {{"seconds", 1.5}};
  leaves["clock"] = 30;
  ask(verb::leave, leaves);
  const json want{{"event", "usage"}, {"role", "worker"}, {"index", 2}, {"clock", 30}, {"usage", {{"seconds", 1.5}}}};
  EXPECT_EQ(of_kind("usage"), std::vector{want});
  ask(verb::leave, leaving(worker(0)));
  EXPECT_EQ(of_kind("usage").size(), 1U);
  auto other = leaving(server(1));
  other["pid"] = 4711;  // not the process that holds the place
  other["usage"] = {{"seconds", 9}};
  ask(verb::leave, other);
  EXPECT_EQ(of_kind("usage").size(), 1U);
}

TEST_F(Samples, AnAbortTellsWhatAllHadUsed) {
  start();
  ask(verb::heartbeat, using_some(worker(0), 0.2));
  ask(verb::abort, json{{"status", 5}, {"cause", "no"}});
  ASSERT_EQ(of_kind("sample").size(), 1U);
  EXPECT_EQ(events.back()["event"], "abort");
}

TEST_F(Samples, WhatWasLoadedIsPassedOnAtOnce) {
  start();
  ask(verb::progress, json{{"loaded", {{"rows", 7}}}});
  EXPECT_EQ(events.back(), (json{{"event", "loaded"}, {"what", {{"rows", 7}}}}));
  ask(verb::progress, json{{"output", "out"}});
  EXPECT_EQ(events.back(), (json{{"event", "output"}, {"what", "out"}}));
}

}  // namespace
