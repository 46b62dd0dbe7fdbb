// SPDX-License-Identifier: BSD-3-Clause
//
// The checkpoint coordinator, without a thread, on a disk that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <paracel/error.hpp>

#include "core/membership.hpp"
#include "server/scheduler/checkpoint_coordinator.hpp"
#include "test/support/crash_disk.hpp"
#include "test/support/replies.hpp"

namespace paracel {
namespace {

using net::status;
using net::verb;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using time_point = net::clock_source::time_point;

class Coordinator : public testing::Test {
 protected:
  struct request {
    std::string to;
    net::request_header header;
    json body;
  };

  Coordinator() {
    for (std::uint32_t slot = 0; slot < 2; ++slot) {
      server_entry s;
      s.slot = slot;
      s.incarnation = slot + 1;
      s.threads = 1;
      s.shards = {"shard" + std::to_string(slot)};
      s.clock = "clock" + std::to_string(slot);
      s.control = "control";
      members_.servers.push_back(s);
    }
    disk_.make_folder("d");
  }
  void make(checkpoint_plan plan = {.folder = "d", .every = 10}, std::uint32_t workers = 2) {
    srv::checkpoint_options o;
    o.plan = std::move(plan);
    o.keep = 2;
    o.program = "p";
    o.gather_limit = std::chrono::milliseconds{1000};
    o.disk = &disk_;
    o.own_thread = false;
    it_.emplace(
        o, 7, workers, [this](std::string_view text, bool) { events_.push_back(json::parse(text)); },
        [this](const std::string& to, net::request_header h, std::string_view body) {
          sent_[h.sequence] = {to, h, body.empty() ? json() : json::parse(body)};
          ++sends_;
        });
  }
  static storage::checkpoint_entry file_of(storage::file_system& disk, const std::string& folder,
                                           const storage::checkpoint_header& h) {
    disk.make_folder(folder);
    const auto name = storage::checkpoint_file_name(h);
    storage::checkpoint_writer w(disk, folder + "/" + name, h);
    return {name, h, w.finish()};
  }
  /// Worker `rank` stops at `clock`; returns the number of its request.
  std::uint64_t stop(std::uint32_t rank, std::uint32_t clock, const std::string& error = "") {
    json body{{"role", "worker"}, {"rank", rank}, {"clock", clock}};
    if (error.empty()) {
      const storage::checkpoint_header h{storage::checkpoint_kind::worker, clock, rank, 7, 0, 2};
      body["file"] = json::parse(storage::to_json(file_of(disk_, "d/" + storage::checkpoint_folder_name(clock), h)));
    } else {
      body["error"] = error;
    }
    return ask(body);
  }
  std::uint64_t ask(const json& body) {
    const auto text = body.dump();
    net::request_view r;
    r.header.what = verb::checkpoint;
    r.body = net::bytes_of(text);
    it_->handle(r, srv::completion(sink_, {}, verb::checkpoint, ++asked_, 0, 0), members_, now_);
    return asked_;
  }
  /// Answers all unanswered requests to servers.
  void serve(status how = status::ok) {
    for (auto& [number, r] : std::exchange(sent_, {})) {
      std::string body = "the disk is full";
      if (how == status::ok) {
        body = "{}";
        if (r.body.is_object() && r.body["do"] == "save") {
          const auto clock = r.body["clock"].get<std::uint32_t>();
          const storage::checkpoint_header h{
              storage::checkpoint_kind::server, clock, r.to == "shard0" ? 0U : 1U, 7, 0, 1};
          body = json{{"file", json::parse(storage::to_json(file_of(disk_, r.body["folder"], h)))},
                      {"functions", json::array()}}
                     .dump();
        }
      }
      answer(number, how, body);
    }
    it_->tick(members_, now_);
  }
  void answer(std::uint64_t number, status how, const std::string& body) {
    net::reply_view reply;
    reply.header.result = how;
    reply.header.clock = 21;
    reply.body = net::bytes_of(body);
    EXPECT_TRUE(it_->on_reply(number, reply, now_));
  }
  [[nodiscard]] bool answered(std::uint64_t number) const { return sink_.all.contains(number); }
  [[nodiscard]] json answer_to(std::uint64_t number) const { return json::parse(sink_.all.at(number).body); }

  test::crash_disk disk_;
  membership members_;
  test::replies_by_sequence sink_;
  std::vector<json> events_;
  std::map<std::uint64_t, request> sent_;
  int sends_ = 0;
  std::uint64_t asked_ = 0;
  time_point now_{};
  std::optional<srv::checkpoint_coordinator> it_;
};

TEST_F(Coordinator, TheManifestComesWhenAllHaveWrittenAndThenTheWorkersGoOn) {
  make();
  const auto first = stop(0, 10);
  EXPECT_TRUE(sent_.empty()) << "worker 1 still updates";
  const auto second = stop(1, 10);
  ASSERT_EQ(sent_.size(), 2U);
  EXPECT_EQ(sent_.begin()->second.body, (json{{"do", "save"}, {"folder", "d/0000000010"}, {"clock", 10}}));
  EXPECT_FALSE(answered(first));
  serve();
  EXPECT_EQ(answer_to(first), (json{{"ok", true}}));
  EXPECT_EQ(answer_to(second), (json{{"ok", true}}));
  const auto m = storage::verify_checkpoint(disk_, "d/0000000010");
  EXPECT_EQ(m.files.size(), 4U);
  EXPECT_EQ(m.workers, 2U);
  EXPECT_EQ(events_.back()["event"], "checkpoint");
}

TEST_F(Coordinator, TheOldOnesGo) {
  make();
  for (const std::uint32_t clock : {10U, 20U, 30U}) {
    stop(0, clock);
    stop(1, clock);
    serve();
  }
  EXPECT_THAT(storage::checkpoint_clocks(disk_, "d"), ElementsAre(20, 30));
}

TEST_F(Coordinator, AServerThatCannotWriteMakesItFailAndTheFilesGo) {
  make();
  const auto first = stop(0, 10);
  stop(1, 10);
  serve(status::internal);
  EXPECT_EQ(answer_to(first), (json{{"ok", false}, {"why", "the checkpoint failed: the disk is full"}}));
  EXPECT_EQ(events_.back()["event"], "checkpoint_failed");
  EXPECT_TRUE(storage::checkpoint_clocks(disk_, "d").empty());
}

TEST_F(Coordinator, AManifestThatCannotBeWrittenMakesItFail) {
  make();
  const auto first = stop(0, 10);
  stop(1, 10);
  const auto files = std::exchange(sent_, {});
  sent_ = files;
  // The servers' two files take five steps each and a folder; the next step is the manifest.
  disk_.fill_at(disk_.steps() + 2 * 6);
  serve();
  EXPECT_THAT(answer_to(first)["why"].get<std::string>(), HasSubstr("manifest.json: cannot be written: No space left"));
  disk_.free_space();
  stop(0, 20);
  const auto later = stop(1, 20);
  serve();
  EXPECT_EQ(answer_to(later)["ok"], true) << "the next one works";
}

TEST_F(Coordinator, AWorkerThatHasNothingToWriteIsNamed) {
  make();
  stop(0, 10);
  const auto n = stop(1, 10, "no permission");
  EXPECT_TRUE(sent_.empty());
  EXPECT_EQ(answer_to(n)["why"], "the checkpoint failed: worker 1: no permission");
}

TEST_F(Coordinator, WhoComesTooLateIsSentOn) {
  make();
  const auto n = stop(0, 10);
  now_ += std::chrono::milliseconds{1500};
  it_->tick(members_, now_);
  EXPECT_EQ(answer_to(n)["why"], "the checkpoint failed: worker 1 did not reach clock 10");
  EXPECT_EQ(answer_to(stop(1, 10))["ok"], false);
  const auto next = stop(1, 20);
  EXPECT_FALSE(answered(next));
  stop(0, 20);
  serve();
  EXPECT_EQ(answer_to(next)["ok"], true);
}

TEST_F(Coordinator, WhoeverHasPassedItEndsIt) {
  make();
  const auto n = stop(0, 10);
  const auto beyond = stop(1, 20);
  EXPECT_EQ(answer_to(n)["why"], "the checkpoint failed: worker 1 has passed it");
  EXPECT_FALSE(answered(beyond));
  stop(0, 20);
  serve();
  EXPECT_EQ(answer_to(beyond)["ok"], true);
}

TEST_F(Coordinator, AWorkerThatStoppedAndIsEjectedDoesNotCountForOneThatRuns) {
  make({.folder = "d", .every = 10}, 4);
  stop(3, 10);
  it_->worker_left(3, members_);
  stop(0, 10);
  stop(1, 10);
  EXPECT_TRUE(sent_.empty()) << "worker 2 still updates";
  const auto last = stop(2, 10);
  ASSERT_EQ(sent_.size(), 2U);
  serve();
  EXPECT_EQ(answer_to(last), (json{{"ok", true}}));
  EXPECT_EQ(storage::verify_checkpoint(disk_, "d/0000000010").files.size(), 5U) << "three workers and two servers";
}

TEST_F(Coordinator, AnotherProcessInThePlaceOfOneThatHadStoppedRuns) {
  make({.folder = "d", .every = 10}, 3);
  const auto n = stop(0, 10);
  stop(1, 10);
  it_->worker_passed(1, 10);
  EXPECT_EQ(answer_to(n)["why"], "the checkpoint failed: worker 1 was replaced meanwhile");
  EXPECT_EQ(answer_to(stop(2, 10))["ok"], false);
  EXPECT_TRUE(sent_.empty());
  stop(0, 20);
  stop(1, 20);
  it_->worker_passed(1, 19);  // it reaches 20 again
  stop(2, 20);
  EXPECT_TRUE(sent_.empty());
  const auto last = stop(1, 20);
  ASSERT_EQ(sent_.size(), 2U);
  it_->worker_passed(2, 20);
  EXPECT_EQ(answer_to(last)["why"], "the checkpoint failed: worker 2 was replaced meanwhile") << "while servers write";
}

TEST_F(Coordinator, WithoutAnyWorkerThereIsNone) {
  make();
  stop(0, 10);
  it_->worker_left(1, members_);
  ASSERT_EQ(sent_.size(), 2U);
  serve();
  EXPECT_EQ(storage::verify_checkpoint(disk_, "d/0000000010").files.size(), 3U);
  make();
  stop(0, 20);
  it_->worker_left(0, members_);
  it_->worker_left(1, members_);
  EXPECT_TRUE(sent_.empty());
  EXPECT_EQ(events_.back()["why"], "no worker is left");
}

TEST_F(Coordinator, ALostServerEndsTheOneThatIsBeingSaved) {
  make();
  const auto n = stop(0, 10);
  stop(1, 10);
  it_->servers_changed("server s1 was lost meanwhile");
  EXPECT_THAT(answer_to(n)["why"].get<std::string>(), HasSubstr("s1 was lost"));
}

TEST_F(Coordinator, WhatMovesIsSavedOnceItHasArrived) {
  make();
  EXPECT_FALSE(it_->in_progress());
  members_.moving = {{5, 1}};
  stop(0, 10);
  const auto n = stop(1, 10);
  EXPECT_TRUE(it_->in_progress());
  for (int i = 0; i < 3; ++i) it_->tick(members_, now_ += std::chrono::milliseconds{100});
  EXPECT_TRUE(sent_.empty()) << "its old server would be asked";
  members_.moving.clear();
  members_.epoch = 3;
  it_->tick(members_, now_);
  ASSERT_EQ(sent_.size(), 2U);
  EXPECT_EQ(sent_.begin()->second.header.epoch, 3U);
  for (int i = 0; i < 2; ++i) serve();
  EXPECT_EQ(answer_to(n)["ok"], true);
  EXPECT_EQ(events_.back()["event"], "checkpoint");
  EXPECT_FALSE(it_->in_progress());
  // One that does not arrive does not stop the workers for ever.
  members_.moving = {{5, 0}};
  stop(0, 20);
  const auto late = stop(1, 20);
  it_->tick(members_, now_ += std::chrono::milliseconds{1100});
  EXPECT_EQ(answer_to(late)["ok"], false);
  EXPECT_EQ(events_.back()["why"], "partitions were moving for too long");
}

TEST_F(Coordinator, ALauncherAsksTheClock) {
  make({.folder = "d"});
  ask({{"role", "launcher"}});
  ASSERT_EQ(sent_.size(), 1U);
  const auto clock_server = key_router(members_).clock_server();
  EXPECT_EQ(sent_.begin()->second.to, "clock" + std::to_string(clock_server));
  EXPECT_EQ(sent_.begin()->second.header.clock, net::no_clock);
  answer(sent_.begin()->first, status::ok, "");
  EXPECT_EQ(events_.back(), (json{{"event", "checkpoint_asked"}, {"clock", 21}}));
}

TEST_F(Coordinator, WhatAConnectionLosesGoesAgainAndIsTakenOnce) {
  using std::chrono::seconds;
  make();
  const auto n = stop(0, 10);
  stop(1, 10);
  ASSERT_EQ(sends_, 2);
  now_ += std::chrono::milliseconds{999};
  it_->tick(members_, now_);
  EXPECT_EQ(sends_, 2) << "a server that writes takes its time";
  now_ += seconds{1};
  it_->tick(members_, now_);
  EXPECT_EQ(sends_, 4);
  EXPECT_EQ(sent_.size(), 2U) << "under the numbers that they had";
  const auto [number, first] = *sent_.begin();
  sent_.erase(number);
  serve();  // the other one
  now_ += seconds{10};
  it_->tick(members_, now_);
  EXPECT_EQ(sends_, 5);
  sent_ = {{number, first}};
  serve();
  EXPECT_EQ(answer_to(n), (json{{"ok", true}}));
  EXPECT_EQ(storage::verify_checkpoint(disk_, "d/0000000010").files.size(), 4U);
  EXPECT_FALSE(it_->on_reply(number, {}, now_)) << "the second answer";
  now_ += seconds{100};
  it_->tick(members_, now_);
  EXPECT_EQ(sends_, 5);
}

TEST_F(Coordinator, TheClockIsAskedAgainWhereItIsThen) {
  make({.folder = "d"});
  ask({{"role", "launcher"}});
  ask({{"role", "launcher"}});
  ASSERT_EQ(sends_, 1);
  const auto [number, first] = *sent_.begin();
  for (auto& s : members_.servers) s.clock = "moved";
  now_ += std::chrono::seconds{6};
  it_->tick(members_, now_);
  EXPECT_EQ(sends_, 2);
  EXPECT_EQ(sent_.at(number).to, "moved");
  answer(number, status::ok, "");
  EXPECT_EQ(events_.back()["event"], "checkpoint_asked");
}

TEST_F(Coordinator, AClockThatWakesUpInAnOldEpochIsAskedAgainSoon) {
  make({.folder = "d"});
  ask({{"role", "launcher"}});
  for (const auto refusal : {status::stale_epoch, status::wrong_owner}) {
    const auto number = sent_.begin()->first;
    ASSERT_EQ(sends_, 1);
    answer(number, refusal, "{}");
    EXPECT_TRUE(events_.empty()) << events_.back();
    EXPECT_TRUE(it_->busy());
    ++members_.epoch;
    now_ += std::chrono::milliseconds{10};
    it_->tick(members_, now_);
    EXPECT_EQ(sends_, 2);
    EXPECT_EQ(sent_.at(number).header.epoch, members_.epoch);
    sends_ = 1;
  }
  answer(sent_.begin()->first, status::ok, "");
  EXPECT_EQ(events_.back()["event"], "checkpoint_asked");
}

TEST_F(Coordinator, NonsenseIsRefused) {
  make();
  for (const json& body :
       {json(), json(7), json{{"role", "worker"}}, json{{"role", "worker"}, {"rank", 9}, {"clock", 1}},
        json{{"role", "worker"}, {"rank", -1}, {"clock", 1}}, json{{"role", "server"}}}) {
    EXPECT_EQ(sink_.all.at(ask(body)).header.result, status::bad_request) << body;
  }
  const auto n = ask({{"role", "worker"}, {"rank", 0}, {"clock", 10}, {"file", {{"name", "../x"}}}});
  stop(1, 10);
  EXPECT_EQ(answer_to(n)["ok"], false);
}

TEST_F(Coordinator, ServersReadBeforeTheJobGoesOnAndAreAskedAgainWhenTheyDoNotKnowEnough) {
  make({.folder = "d", .resume = "d/0000000010", .clock = 10, .workers = 2});
  it_->restore(members_, now_);
  EXPECT_FALSE(it_->restored());
  ASSERT_EQ(sent_.size(), 2U);
  const auto [one, two] = std::pair(sent_.begin()->first, std::next(sent_.begin())->first);
  sent_.clear();
  answer(one, status::stale_epoch, "");
  answer(two, status::ok, "{}");
  EXPECT_FALSE(it_->restored());
  EXPECT_TRUE(it_->busy());
  now_ += std::chrono::milliseconds{20};
  it_->tick(members_, now_);
  ASSERT_EQ(sent_.size(), 1U);
  serve();
  EXPECT_TRUE(it_->restored());
  EXPECT_EQ(answer_to(stop(0, 10))["ok"], false) << "this clock has been";
}

TEST_F(Coordinator, WhatAServerCannotReadIsTold) {
  make({.folder = "d", .resume = "d/0000000010", .clock = 10, .workers = 2});
  it_->restore(members_, now_);
  serve(status::internal);
  EXPECT_FALSE(it_->restored());
  EXPECT_EQ(it_->restore_failure(), "the checkpoint cannot be restored: the disk is full");
}

}  // namespace
}  // namespace paracel
