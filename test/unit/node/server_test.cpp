// SPDX-License-Identifier: BSD-3-Clause
//
// Guarantees of the server besides those of its shards: one reply to each request, and the clock.
#include "server/node/server.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <paracel/error.hpp>

#include "net/protocol.hpp"
#include "test/support/recorded_reply.hpp"

namespace paracel::srv {
namespace {

using net::status;
using net::verb;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class server_notebook final : public reply_sink {
 public:
  void send(const net::peer&, const net::outgoing& message) override {
    const test::recorded_reply recorded(message);
    const auto& view = recorded.view;
    replies.push_back(view.header);
    texts.emplace_back(net::text_of(view.body));
  }
  /// Sequence numbers of the replies since the last call.
  std::vector<std::uint64_t> answered() {
    std::vector<std::uint64_t> all;
    for (const auto& r : replies) all.push_back(r.sequence);
    replies.clear();
    return all;
  }
  std::vector<net::reply_header> replies;
  std::vector<std::string> texts;
};

completion make(server_notebook& n, std::uint64_t sequence = 1) { return {n, {}, verb::pull, sequence, 7, 3}; }

TEST(Completion, IsAnsweredOnceHoweverOftenItIsAsked) {
  server_notebook n;
  auto c = make(n);
  EXPECT_TRUE(c);
  c.ok();
  EXPECT_FALSE(c);
  c.ok();
  c.fail(status::internal, "again");
  EXPECT_EQ(n.replies.size(), 1U);
}

TEST(Completion, ThatIsDroppedAnswersThatItWas) {
  server_notebook n;
  { const auto c = make(n, 5); }
  ASSERT_EQ(n.replies.size(), 1U);
  EXPECT_EQ(n.replies[0].result, status::internal);
  EXPECT_EQ(n.replies[0].sequence, 5U);
}

TEST(Completion, MayBeMovedAndParkedAndAnswersWithItsOwnNumbers) {
  server_notebook n;
  std::vector<completion> parked;
  for (std::uint64_t s = 1; s <= 3; ++s) parked.push_back(make(n, s));
  EXPECT_THAT(n.replies, IsEmpty());
  std::swap(parked[0], parked[2]);
  for (auto& c : parked) c.ok();
  EXPECT_EQ(n.replies[0].server, 7U);
  EXPECT_EQ(n.replies[0].epoch, 3U);
  EXPECT_EQ(n.replies[0].what, verb::pull);
  EXPECT_THAT(n.answered(), ElementsAre(3, 2, 1));
}

TEST(Completion, ThatIsOverwrittenAnswersFirst) {
  server_notebook n;
  auto c = make(n, 1);
  c = make(n, 2);
  EXPECT_THAT(n.answered(), ElementsAre(1));
  c.ok();
  EXPECT_THAT(n.answered(), ElementsAre(2));
}

class ClockServiceTest : public testing::Test {
 protected:
  void send(verb what, std::uint32_t rank, std::uint32_t clock, std::uint32_t deadline_ms = 0) {
    net::request_view r;
    r.header.what = what;
    r.header.rank = rank;
    r.header.clock = clock;
    r.header.deadline_ms = deadline_ms;
    service_->handle(r, {sink_, {}, what, ++sequence_, 7, 3}, now_);
  }
  void tick(std::uint32_t rank, std::uint32_t finished) { send(verb::clock_tick, rank, finished); }
  void wait(std::uint32_t needed, std::uint32_t deadline_ms = 0) { send(verb::clock_wait, 0, needed, deadline_ms); }

  server_notebook sink_;
  std::uint64_t sequence_ = 0;
  clock_service::time_point now_{};
  std::optional<clock_service> service_{std::in_place, 3};
};

TEST_F(ClockServiceTest, AWaitIsAnsweredWhenTheSlowestHasComeSoFar) {
  wait(1);  // 1
  wait(2);  // 2
  wait(0);  // 3
  EXPECT_THAT(sink_.answered(), ElementsAre(3));
  tick(0, 1);  // 4
  tick(1, 2);  // 5
  EXPECT_THAT(sink_.answered(), ElementsAre(4, 5));
  tick(2, 1);  // 6
  EXPECT_EQ(sink_.replies.back().clock, 1U);
  EXPECT_THAT(sink_.answered(), ElementsAre(6, 1));
  tick(2, 2);  // 7
  tick(0, 2);  // 8
  EXPECT_THAT(sink_.answered(), ElementsAre(7, 8, 2));
  EXPECT_EQ(service_->parked(), 0U);
}

TEST_F(ClockServiceTest, ManyWaitsForTheSameClockAreAnsweredTogether) {
  for (int i = 0; i < 1000; ++i) wait(1);
  EXPECT_EQ(service_->parked(), 1000U);
  for (std::uint32_t rank = 0; rank < 3; ++rank) tick(rank, 1);
  EXPECT_EQ(sink_.answered().size(), 1003U);
}

TEST_F(ClockServiceTest, AWorkerThatLeavesHoldsNobodyUp) {
  tick(0, 5);
  tick(1, 5);
  wait(5);
  sink_.answered();
  send(verb::clock_tick, 2, net::no_clock);
  EXPECT_EQ(sink_.answered().size(), 2U);
  EXPECT_EQ(service_->slowest(), 5U);
}

TEST_F(ClockServiceTest, ARankThatDoesNotExistIsABadRequest) {
  tick(3, 1);
  EXPECT_EQ(sink_.replies.back().result, status::bad_request);
  send(verb::clock_tick, 3, net::no_clock);
  EXPECT_EQ(sink_.replies.back().result, status::bad_request);
}

TEST_F(ClockServiceTest, AWaitEndsAtItsDeadlineAndTheOthersGoOn) {
  wait(1, 50);   // 1
  wait(1, 100);  // 2
  wait(1);       // 3
  service_->expire(now_ += milliseconds(49));
  EXPECT_THAT(sink_.answered(), IsEmpty());
  service_->expire(now_ += milliseconds(1));
  ASSERT_EQ(sink_.replies.size(), 1U);
  EXPECT_EQ(sink_.replies[0].result, status::deadline_exceeded);
  EXPECT_THAT(sink_.answered(), ElementsAre(1));
  service_->expire(now_ += milliseconds(50));
  EXPECT_THAT(sink_.answered(), ElementsAre(2));
  for (std::uint32_t rank = 0; rank < 3; ++rank) tick(rank, 1);
  EXPECT_THAT(sink_.answered(), ElementsAre(4, 5, 6, 3));
}

TEST_F(ClockServiceTest, AtTheEndOfTheJobEveryWaitHearsTheCause) {
  wait(1);
  wait(2);
  service_->fail_all(status::job_ended, "worker 2 is lost");
  ASSERT_EQ(sink_.replies.size(), 2U);
  for (const auto& r : sink_.replies) EXPECT_EQ(r.result, status::job_ended);
  EXPECT_EQ(sink_.texts[0], "worker 2 is lost");
  tick(0, 1);
  EXPECT_EQ(sink_.replies.back().result, status::job_ended);
}

TEST_F(ClockServiceTest, RequestsBeforeTheNumberOfWorkersIsKnownAreHeld) {
  service_.emplace(0);
  tick(1, 1);
  tick(0, 1);
  wait(1);
  tick(7, 1);
  EXPECT_THAT(sink_.replies, IsEmpty());
  service_->begin(2, now_);
  EXPECT_EQ(service_->slowest(), 1U);
  EXPECT_THAT(sink_.answered(), UnorderedElementsAre(1, 2, 3, 4));
  wait(1);
  EXPECT_THAT(sink_.answered(), ElementsAre(5));
}

TEST_F(ClockServiceTest, OtherVerbsAreBadRequests) {
  send(verb::pull, 0, 0);
  EXPECT_EQ(sink_.replies.back().result, status::bad_request);
}

TEST(Server, AMembershipThatNobodyGoesByIsNotKept) {
  membership m;
  m.elastic = true;
  server_entry e;
  e.shards = {"inproc://x"};
  m.servers.push_back(e);
  server s({.workers = 0});
  s.set_membership(m);
  const std::weak_ptr first = s.replicas();
  auto held = s.replicas();
  ++m.epoch;
  s.set_membership(m);
  const std::weak_ptr second = s.replicas();
  EXPECT_FALSE(first.expired()) << "a thread goes by it";
  held.reset();
  ++m.epoch;
  s.set_membership(m);
  EXPECT_TRUE(first.expired());
  EXPECT_TRUE(second.expired());
  EXPECT_EQ(s.replicas()->members.epoch, 3U);
}

TEST(Server, OnlyTheOwnerOfTheClockPartitionKeepsTheClock) {
  membership m;
  m.workers = 2;
  for (std::uint32_t slot = 0; slot < 2; ++slot) {
    server_entry e;
    e.slot = slot;
    e.shards = {"inproc://x"};
    m.servers.push_back(e);
  }
  const auto owner = key_router(m).clock_server();
  for (std::uint32_t slot = 0; slot < 2; ++slot) {
    server s({.slot = slot, .workers = 0});
    s.set_membership(m);
    s.tend_clock({});
    server_notebook n;
    net::request_view r;
    r.header.what = verb::clock_tick;
    r.header.rank = 1;
    r.header.clock = 1;
    s.handle_clock(r, s.completion_for(n, {}, r.header), {});
    EXPECT_EQ(n.replies.at(0).result, slot == owner ? status::ok : status::wrong_owner);
  }
}

TEST(Server, RefusesOptionsThatCannotBe) {
  EXPECT_THROW(server({.threads = 0}), usage_error);
  EXPECT_THROW(server({.threads = 100'000}), usage_error);
  EXPECT_THROW(server({.max_message_bytes = 10}), usage_error);
}

TEST(Server, AValueAlwaysFitsAMessage) {
  const server s({.max_value_bytes = std::size_t{1} << 40, .max_message_bytes = std::size_t{1} << 24});
  EXPECT_LT(s.options().max_value_bytes, s.options().max_message_bytes);
}

TEST(Server, IncarnationsDiffer) { EXPECT_NE(server({}).options().incarnation, server({}).options().incarnation); }

}  // namespace
}  // namespace paracel::srv
