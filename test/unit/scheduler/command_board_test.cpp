// SPDX-License-Identifier: BSD-3-Clause
//
// Commands and changes, through the scheduler.
#include "server/scheduler/command_board.hpp"

#include "test/support/scheduler_test.hpp"

namespace {

using namespace paracel;
using namespace paracel::test;

class CommandBoard : public scheduler_test {
 protected:
  static json command(const std::string& name, json more = json::object()) {
    more["to"] = more.value("to", "workers");
    more["command"] = name;
    return more;
  }
  /// A request of a worker. `more`: answers, tell, changes.
  int take(int rank, std::uint64_t after, json more = json::object()) {
    more.update(worker(rank));
    more["after"] = after;
    return ask(verb::take_commands, more);
  }
  void begin(int rank) {
    EXPECT_EQ(to(take(rank, 0, {{"begin", true}})).parsed(), json::object()) << "answered at once";
  }
  void begin_all() {
    for (int r = 0; r < 3; ++r) begin(r);
  }
  static json answering(std::uint64_t number, const std::string& text, bool ok = true) {
    return {{"answers", {{{"number", number}, {"ok", ok}, {"text", text}}}}};
  }
  static json order(std::uint64_t number, const std::string& name, const std::string& body = "") {
    return {{"number", number}, {"command", name}, {"body", body}};
  }
  std::string text_of(int tell, int rank) {
    return to(tell).parsed()["answers"][static_cast<std::size_t>(rank)]["text"];
  }
  /// Where the reply to the next request goes, for one that does not pass through the scheduler.
  net::peer peer_of_next() {
    ++last;
    net::peer who;
    who.size = sizeof last;
    std::memcpy(who.id.data(), &last, sizeof last);
    return who;
  }
  static json dead(int rank) { return {{"role", "worker"}, {"rank", rank}, {"pid", 700 + rank}, {"why", "killed"}}; }
};

TEST_F(CommandBoard, AllWorkersGetACommandAndTheirAnswersComeByRank) {
  start();
  begin_all();
  const int parked = take(0, 0);
  EXPECT_FALSE(answers.contains(parked));
  const int tell = ask(verb::tell, command("rate", {{"body", "0.5"}}));
  EXPECT_EQ(to(parked).parsed()["commands"], json::array({order(1, "rate", "0.5")}));
  EXPECT_EQ(to(take(2, 0)).parsed()["commands"], json::array({order(1, "rate", "0.5")})) << "it asks later";
  EXPECT_EQ(to(take(1, 0)).parsed()["commands"], json::array({order(1, "rate", "0.5")}));
  take(2, 1, answering(1, "two"));
  take(1, 1, answering(1, "no", false));
  EXPECT_FALSE(answers.contains(tell));
  take(0, 1, answering(1, "zero"));
  EXPECT_EQ(to(tell).parsed()["answers"], (json{{{"rank", 0}, {"ok", true}, {"text", "zero"}},
                                                {{"rank", 1}, {"ok", false}, {"text", "no"}},
                                                {{"rank", 2}, {"ok", true}, {"text", "two"}}}));
}

TEST_F(CommandBoard, ACommandIsRepeatedUntilItIsAcknowledgedAndKeepsItsPlace) {
  start();
  begin(1);
  const int first = ask(verb::tell, command("a", {{"index", 1}}));
  const int second = ask(verb::tell, command("b", {{"index", 1}}));
  EXPECT_EQ(to(take(1, 0)).parsed()["commands"], (json{order(1, "a"), order(2, "b")}));
  EXPECT_EQ(to(take(1, 0)).parsed()["commands"], (json{order(1, "a"), order(2, "b")})) << "the reply was lost";
  const int parked = take(1, 2, answering(1, "A"));
  EXPECT_EQ(text_of(first, 0), "A");
  EXPECT_FALSE(answers.contains(parked));
  take(1, 2, answering(1, "again"));  // a repeated answer; the parked request is rejected as stale
  EXPECT_EQ(to(parked).result, status::conflict);
  take(1, 2, answering(2, "B"));
  EXPECT_EQ(text_of(second, 0), "B");
}

TEST_F(CommandBoard, WhoTakesNoCommandsIsNamedAtOnce) {
  start();
  begin(0);
  take(0, 0);
  const int tell = ask(verb::tell, command("a"));
  take(0, 1, answering(1, "A"));
  EXPECT_EQ(text_of(tell, 0), "A");
  EXPECT_EQ(text_of(tell, 1),
            "it accepts no commands: its program registers no function for them (paracel_on_command)");
}

TEST_F(CommandBoard, WhoIsLateIsNamedAndItsAnswerIsDropped) {
  start();
  begin(0);
  const int parked = take(0, 0);
  const int tell = ask(verb::tell, command("a", {{"index", 0}, {"seconds", 1.5}}));
  EXPECT_TRUE(answers.contains(parked));
  now += 1499ms;
  subject->tick(now);
  EXPECT_FALSE(answers.contains(tell));
  subject->was_away(100ms, now);
  now += 100ms;
  subject->tick(now);
  EXPECT_FALSE(answers.contains(tell)) << "the scheduler slept";
  now += 1ms;
  subject->tick(now);
  EXPECT_EQ(text_of(tell, 0), "no answer within 1.5 s; it may still run the command, at its next commit or barrier");
  take(0, 1, answering(1, "A"));
  EXPECT_EQ(subject->state(), scheduler::phase::running);
  const int next = ask(verb::tell, command("b", {{"index", 0}, {"seconds", 1}}));
  now += 1s;
  subject->tick(now);
  EXPECT_TRUE(answers.contains(next));
  EXPECT_FALSE(answers.contains(take(0, 1))) << "nothing is delivered that is too late";
}

TEST_F(CommandBoard, ADeadWorkerIsNamedAndItsReplacementDoesNotGetTheCommand) {
  worker_wait = 30s;
  make(3, 2);
  start();
  begin_all();
  const int tell = ask(verb::tell, command("a"));
  take(0, 0, answering(1, "A"));
  take(2, 0, answering(1, "C"));
  ask(verb::report_death, dead(1));
  EXPECT_EQ(text_of(tell, 1), "worker 1 (pid 701 on h) lost: killed; it is unknown whether it has run the command");
  EXPECT_EQ(text_of(ask(verb::tell, command("b", {{"index", 1}})), 0), "worker 1 (pid 701 on h) lost: killed");
  expect_refused(take(1, 0), "it is not worker 1");
  auto another = worker(1);
  another["pid"] = 999;
  ask(verb::join, another);
  expect_refused(take(1, 0), "it is not worker 1");
  another["after"] = 0;
  expect_refused(ask(verb::take_commands, another), "it has not begun to accept commands");
  another["begin"] = true;
  EXPECT_EQ(to(ask(verb::take_commands, another)).parsed(), json::object());
}

TEST_F(CommandBoard, AWorkerThatEndsOrLeavesAnswersNoMore) {
  start();
  begin_all();
  const int tell = ask(verb::tell, command("a"));
  EXPECT_EQ(to(take(0, 0,
                    [] {
                      auto last = answering(1, "A");
                      last["end"] = true;
                      return last;
                    }()))
                .result,
            status::ok);
  take(1, 0, {{"end", true}});
  ask(verb::leave, leaving(worker(2)));
  EXPECT_EQ(text_of(tell, 0), "A") << "the last request had the answer";
  EXPECT_EQ(text_of(tell, 1), "it accepts no more commands: its program has ended");
  EXPECT_EQ(text_of(tell, 2), "it has left the job; it is unknown whether it has run the command");
  EXPECT_EQ(text_of(ask(verb::tell, command("b", {{"index", 2}})), 0), "it has left the job");
}

TEST_F(CommandBoard, AWorkerGivesACommandOnceHoweverOftenItAsksAndIsToldTheAnswers) {
  start();
  begin(0);
  begin(1);
  auto given = command("a", {{"number", 7}});
  const int first = take(0, 0, {{"tell", given}});
  EXPECT_EQ(to(first).parsed(), (json{{"commands", {order(1, "a")}}})) << "it is one of the workers itself";
  take(0, 1, {{"tell", given}, {"answers", {{{"number", 1}, {"ok", true}, {"text", "own"}}}}});
  EXPECT_EQ(to(take(1, 0)).parsed()["commands"], json::array({order(1, "a")}));
  const int waits = take(0, 1, {{"tell", given}});
  EXPECT_FALSE(answers.contains(waits));
  take(1, 1, answering(1, "other"));
  const auto told = to(waits).parsed()["told"];
  EXPECT_EQ(told["number"], 7);
  EXPECT_EQ(told["answers"][0]["text"], "own");
  EXPECT_EQ(told["answers"][1]["text"], "other");
  EXPECT_EQ(told["answers"][2]["ok"], false) << "worker 2 takes none";
  EXPECT_EQ(to(take(0, 1, {{"tell", given}})).parsed()["told"], told) << "the reply was lost";
  EXPECT_FALSE(answers.contains(take(0, 1))) << "it has arrived";

  given["number"] = 8;
  given["index"] = 3;
  EXPECT_EQ(to(take(0, 1, {{"tell", given}})).parsed()["told"],
            (json{{"number", 8}, {"refused", "\"index\" is 3, not a whole number up to 2"}}));
}

TEST_F(CommandBoard, AnAnswerThatCannotBeGivenFailsAndItsWorkerIsNotRefused) {
  start();
  begin(1);
  const std::vector<std::pair<json, std::string>> bad{
      {std::string(65'537, 'x'), "its answer has 65537 bytes, want at most 65536"}, {7, "its answer is not a text"}};
  std::uint64_t number = 0;
  for (const auto& [text, why] : bad) {
    const int tell = ask(verb::tell, command("a", {{"index", 1}}));
    take(1, number++);
    const int parked = take(1, number, {{"answers", {{{"number", number}, {"ok", true}, {"text", text}}}}});
    EXPECT_FALSE(answers.contains(parked)) << why;
    EXPECT_EQ(to(tell).parsed()["answers"][0], (json{{"rank", 1}, {"ok", false}, {"text", why}}));
  }
}

TEST_F(CommandBoard, ARequestThatMoreAnswersFollowIsAnsweredAtOnce) {
  start();
  begin(1);
  const int first = ask(verb::tell, command("a", {{"index", 1}}));
  const int second = ask(verb::tell, command("b", {{"index", 1}}));
  take(1, 0);
  auto some = answering(1, "A");
  some["more"] = true;
  EXPECT_EQ(to(take(1, 2, some)).parsed(), json::object());
  EXPECT_EQ(text_of(first, 0), "A");
  EXPECT_FALSE(answers.contains(take(1, 2, answering(2, "B"))));
  EXPECT_EQ(text_of(second, 0), "B");
}

TEST_F(CommandBoard, AnswersThatTogetherAreTooLongForAMessageAreLeftOut) {
  srv::command_board board(3, {}, 10);
  const srv::command_board::recipients all{3, 1, [](bool, std::uint32_t) { return srv::command_board::recipient{}; }};
  const auto ask_board = [&](int rank, const json& more) {
    json body{{"after", std::uint64_t{1}}};
    body.update(more);
    srv::completion done(*this, peer_of_next(), verb::take_commands, 0, job, 1);
    board.take(static_cast<std::uint32_t>(rank), body, done, all, now);
  };
  for (const int rank : {0, 1, 2}) ask_board(rank, {{"begin", true}});
  srv::completion done(*this, peer_of_next(), verb::tell, 0, job, 1);
  const int tell = last;
  board.tell(command("a"), done, all, now);
  for (const int rank : {0, 1, 2}) ask_board(rank, answering(1, rank == 1 ? "123456" : "12345"));
  const auto said = to(tell).parsed()["answers"];
  EXPECT_EQ(said[0], (json{{"rank", 0}, {"ok", true}, {"text", "12345"}}));
  EXPECT_EQ(said[1], (json{{"rank", 1},
                           {"ok", false},
                           {"text", "its answer is left out: all answers together have more than 10 bytes"}}));
  EXPECT_EQ(said[2]["text"], "12345");
  board.fail_all(status::job_ended, "the end of the test");
}

TEST_F(CommandBoard, ServersAnswerStatsAndAreAskedAgain) {
  start();
  sent.clear();
  const int tell = ask(verb::tell, command("stats", {{"to", "servers"}}));
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].first, "ipc:///x/0_k");
  EXPECT_EQ(sent[1].first, "ipc:///x/1_k");
  EXPECT_EQ(sent[1].second.what, verb::stats);
  const auto reply = [&](std::size_t i, std::string_view text) {
    net::reply_view r;
    r.header.what = verb::stats;
    r.header.sequence = sent[i].second.sequence;
    r.body = net::bytes_of(text);
    subject->on_reply(r.header.sequence, r, now);
  };
  reply(1, "one");
  now += 1s;
  subject->tick(now);
  ASSERT_EQ(sent.size(), 3U);
  EXPECT_EQ(sent[2].first, "ipc:///x/0_k") << "only the one that has not answered";
  reply(2, "zero");
  reply(0, "zero again");
  EXPECT_EQ(to(tell).parsed()["answers"],
            (json{{{"slot", 0}, {"ok", true}, {"text", "zero"}}, {{"slot", 1}, {"ok", true}, {"text", "one"}}}));
  expect_refused(ask(verb::tell, command("dance", {{"to", "servers"}})),
                 "no command \"dance\": servers accept one command, stats");
}

TEST_F(CommandBoard, ALostServerIsNamed) {
  make(3, 2, 2);
  start();
  ask(verb::report_death, {{"role", "server"}, {"slot", 1}, {"pid", 501}, {"why", "killed"}});
  ASSERT_EQ(subject->state(), scheduler::phase::running);
  EXPECT_EQ(text_of(ask(verb::tell, command("stats", {{"to", "servers"}, {"index", 1}})), 0),
            "server s1 (pid 501 on h) lost: killed");
}

TEST_F(CommandBoard, WorkersWithAFunctionForThemAreToldOfChangesOnceAndInOrder) {
  worker_wait = 30s;
  make(3, 2, 2);
  start();
  begin_all();
  const int waits = take(0, 0, {{"changes", 0}});
  const int other = take(2, 0);
  ask(verb::report_death, {{"role", "server"}, {"slot", 1}, {"pid", 501}, {"why", "killed"}});
  const json died{{"number", 1},     {"server", true}, {"index", 1},
                  {"state", "down"}, {"host", "h"},    {"cause", "server s1 (pid 501 on h) lost: killed"}};
  EXPECT_EQ(to(waits).parsed(), (json{{"changes", {died}}}));
  EXPECT_FALSE(answers.contains(other));
  ask(verb::report_death, dead(1));
  auto another = worker(1);
  another["pid"] = 999;
  ask(verb::join, another);
  const auto changes = to(take(0, 0, {{"changes", 1}})).parsed()["changes"];
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0]["state"], "awaited");
  EXPECT_EQ(changes[0]["cause"], "worker 1 (pid 701 on h) lost: killed");
  EXPECT_EQ(changes[1]["state"], "catching up");
  EXPECT_EQ(changes[1]["number"], 3);
  another["after"] = 0;
  another["changes"] = 0;
  another["begin"] = true;
  EXPECT_EQ(to(ask(verb::take_commands, another)).parsed(), json::object()) << "only what comes after it joined";
  auto back = server(1);
  back["pid"] = 999;
  ask(verb::join, back);
  EXPECT_EQ(to(take(0, 0, {{"changes", 3}})).parsed()["changes"][0]["state"], "joining");
  for (int slot = 0; slot < 2; ++slot) {
    auto beat = slot == 1 ? back : server(0);
    beat["synced"] = subject->members().epoch;
    ask(verb::heartbeat, beat);
  }
  EXPECT_EQ(to(take(0, 0, {{"changes", 4}})).parsed()["changes"][0]["state"], "up");
}

TEST_F(CommandBoard, WhatIsMalformedIsRefused) {
  expect_refused(ask(verb::tell, command("a")), "the job has not started yet");
  start();
  expect_refused(ask(verb::tell, {{"to", "all"}, {"command", "a"}}), R"("to" must be "workers" or "servers")");
  expect_refused(ask(verb::tell, {{"to", "workers"}}), "\"command\" is missing or empty");
  expect_refused(ask(verb::tell, command("a", {{"body", 7}})), "\"body\" is not a string");
  expect_refused(ask(verb::tell, command("a", {{"body", std::string(65537, 'x')}})),
                 "\"body\" has 65537 bytes, want at most 65536");
  expect_refused(ask(verb::tell, command("a", {{"seconds", 0}})),
                 "\"seconds\" is 0, not a number above 0 and up to 86400");
  expect_refused(ask(verb::tell, command("a", {{"seconds", "7"}})),
                 "\"seconds\" is \"7\", not a number above 0 and up to 86400");
  expect_refused(ask(verb::tell, command("a", {{"index", -1}})), "\"index\" is -1, not a whole number up to 2");
  expect_refused(ask_text(verb::tell, "[]"), "the body is not a JSON object");
  expect_refused(ask(verb::take_commands, server(0)), "only workers accept commands");
  expect_refused(take(0, 0), "it has not begun to accept commands");
  begin(0);
  expect_refused(take(0, 0, {{"answers", {7}}}), "an answer is not an object");
  expect_refused(take(0, 0, {{"answers", {{{"ok", true}}}}}), "\"number\" is missing");
  expect_refused(take(0, 0, {{"tell", 7}}), "\"tell\" is not an object");
  EXPECT_FALSE(answers.contains(take(0, 0, answering(99, "of no command"))));
}

TEST_F(CommandBoard, WhatIsOpenEndsWithTheJob) {
  start();
  begin(0);
  const int parked = take(0, 0);
  const int tell = ask(verb::tell, command("a", {{"index", 0}}));
  const int waits = take(0, 1);
  ask(verb::abort, {{"status", 1}, {"cause", "enough"}});
  EXPECT_TRUE(answers.contains(parked));
  expect_ended(tell, 1, "enough");
  expect_ended(waits, 1, "enough");
  expect_ended(ask(verb::tell, command("a")), 1, "enough");
}

TEST_F(CommandBoard, TooManyOpenCommandsAreRefused) {
  start();
  begin(0);
  for (std::size_t i = 0; i < srv::command_board::most_open; ++i) ask(verb::tell, command("a", {{"index", 0}}));
  expect_refused(ask(verb::tell, command("a", {{"index", 0}})),
                 "1024 commands are waiting for answers: try again when some have been answered");
  EXPECT_EQ(to(take(0, 0)).parsed()["commands"].size(), 8U) << "a reply has a few";
}

}  // namespace
