// SPDX-License-Identifier: BSD-3-Clause
#include "net/scheduler_channel.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/scheduler/reply_cache.hpp"
#include "test/support/flaky_transport.hpp"

namespace paracel {
namespace {

using namespace std::chrono_literals;
using net::verb;

/// The scheduler's end: replies "<client> <text>", sometimes at once, sometimes only after the next request of another
/// client.
class echo {
 public:
  explicit echo(net::transport& over) : port_(over.open()), sink_(*port_), address_(port_->bind("inproc://*")) {}
  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] const std::map<std::string, int>& handled() const { return handled_; }
  [[nodiscard]] std::size_t connections() const { return connections_.size(); }
  [[nodiscard]] int pings() const { return pings_; }

  void work() {
    net::incoming in;
    while (port_->receive(in, 0ms)) {
      net::request_view r;
      ASSERT_EQ(net::decode(in.frame, in.tail.size(), r), nullptr);
      connections_.insert(in.from);
      if (!sink_.accepts(r.header, in.from)) continue;
      srv::completion done(sink_, in.from, r.header.what, r.header.sequence, 1, 0);
      if (r.header.what == verb::ping) {
        ++pings_;
        done.ok();
        continue;
      }
      auto text = std::to_string(r.header.client) + " " + std::string(net::text_of(r.body));
      ++handled_[text];
      answer_waiting();
      if (handled_.size() % 3 != 0) done.answer({}, net::bytes_of(text));
      else waiting_.emplace(std::move(done), std::move(text));
    }
  }
  void answer_waiting() {
    if (!waiting_) return;
    shared_buffer tail = shared_buffer::allocate(waiting_->second.size());
    std::ranges::copy(net::bytes_of(waiting_->second), tail.mutable_data());
    waiting_->first.answer({}, {}, std::move(tail));
    waiting_.reset();
  }

 private:
  std::unique_ptr<net::port> port_;
  srv::reply_cache sink_;
  std::string address_;
  std::map<std::string, int> handled_;
  std::set<net::peer> connections_;
  int pings_ = 0;
  std::optional<std::pair<srv::completion, std::string>> waiting_;
};

TEST(QuestionLine, EveryQuestionIsTakenOnceAndAnsweredWhateverBreaks) {
  test::flaky_transport over(7);
  echo scheduler(over);
  constexpr std::uint64_t askers = 3;
  constexpr int questions = 300;
  std::vector<std::unique_ptr<net::scheduler_channel>> lines;
  std::vector<int> asked(askers, 0);
  for (std::uint64_t id = 1; id <= askers; ++id)
    lines.push_back(std::make_unique<net::scheduler_channel>(over, scheduler.address(), id));
  over.set_breaks(true);
  const auto ask = [&](std::size_t i) {
    net::request_header h;
    h.what = verb::join;
    const auto text = "question " + std::to_string(++asked[i]);
    lines[i]->ask(h, net::bytes_of(text));
  };
  for (std::size_t i = 0; i < askers; ++i) ask(i);
  std::size_t finished = 0;
  for (int turn = 0; finished < askers; ++turn) {
    ASSERT_LT(turn, 100'000) << "somebody waits for ever";
    scheduler.work();
    if (turn % 16 == 15) scheduler.answer_waiting();
    for (std::size_t i = 0; i < askers; ++i) {
      net::reply_view answer;
      if (!lines[i]->receive(0ms, answer)) {
        lines[i]->record_silence(100ms);
        continue;
      }
      const auto got = answer.body.empty() ? lines[i]->tail().bytes() : answer.body;
      ASSERT_EQ(net::text_of(got), std::to_string(i + 1) + " question " + std::to_string(asked[i]));
      if (asked[i] < questions) ask(i);
      else ++finished;
    }
  }
  EXPECT_GT(over.broken(), 50U);
  EXPECT_EQ(scheduler.handled().size(), askers * questions);
  for (const auto& [text, times] : scheduler.handled()) EXPECT_EQ(times, 1) << text;
}

TEST(QuestionLine, WhatIsOnlyToldIsNotWaitedFor) {
  net::inproc_transport over;
  echo scheduler(over);
  net::scheduler_channel line(over, scheduler.address(), 5);
  net::request_header h;
  h.what = verb::progress;
  line.tell(h, net::bytes_of("told"));
  line.ask(h, net::bytes_of("asked"));
  scheduler.work();
  net::reply_view answer;
  int others = 0;
  while (!line.receive(0ms, answer)) ASSERT_LT(++others, 5);
  EXPECT_EQ(net::text_of(answer.body), "5 asked");
  EXPECT_EQ(others, 1);
  EXPECT_FALSE(line.receive(0ms, answer));
}

TEST(QuestionLine, WhoeverWaitsLongKeepsItsConnectionWhateverItsRank) {
  net::inproc_transport over;
  echo scheduler(over);
  net::scheduler_channel line(over, scheduler.address(), 5);
  net::request_header h;
  h.what = verb::join;
  h.rank = 3;
  for (int i = 0; i < 3; ++i) line.ask(h, net::bytes_of("question " + std::to_string(i)));  // the third waits
  scheduler.work();
  net::reply_view answer;
  for (int turn = 0; turn < 1000; ++turn) {
    ASSERT_FALSE(line.receive(0ms, answer));
    line.record_silence(100ms);
    scheduler.work();
  }
  EXPECT_EQ(scheduler.connections(), 1U);
  EXPECT_GT(scheduler.pings(), 10);
  scheduler.answer_waiting();
  for (int others = 0; !line.receive(0ms, answer); ++others) ASSERT_LT(others, 1000) << "the reply went elsewhere";
  EXPECT_EQ(net::text_of(line.tail().bytes()), "5 question 2");
}

TEST(QuestionLine, IsAnsweredOverItsNewestConnectionHoweverOftenItWasRenewed) {
  net::inproc_transport over;
  echo scheduler(over);
  const auto port = over.open();
  net::reliable_channel line(*port, scheduler.address(), {.policy = net::on_loss::resend});
  net::request_header h;
  h.what = verb::join;
  h.client = 5;
  for (h.sequence = 1; h.sequence <= 3; ++h.sequence) line.send_kept(h, shared_buffer::copy_of(net::bytes_of("x")), {});
  for (int i = 0; i < 1000; ++i) {
    scheduler.work();
    line.acknowledge_before(3);
    line.renew();
  }
  scheduler.work();
  scheduler.answer_waiting();
  net::incoming in;
  net::reply_view answer;
  do {
    ASSERT_TRUE(port->receive(in, 0ms)) << "the reply went elsewhere";
    ASSERT_EQ(net::decode(in.frame, in.tail.size(), answer), nullptr);
  } while (answer.header.sequence != 3 || answer.header.result != net::status::ok);
  EXPECT_EQ(in.channel, line.connection());
}

}  // namespace
}  // namespace paracel
