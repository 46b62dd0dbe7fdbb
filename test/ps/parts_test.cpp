// SPDX-License-Identifier: BSD-3-Clause
//
// The parts of the programming model of ps-lite that need no other node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <paracel/error.hpp>

#include "net/inproc_transport.hpp"
#include "ps/internal/key_store.h"
#include "ps/machine.hpp"
#include "ps/node_channels.hpp"
#include "ps/node_table.hpp"
#include "ps/ps.h"
#include "ps/wire.hpp"

namespace paracel::ps_compat {
namespace {

using ::ps::Control;
using ::ps::Key;
using ::ps::Message;
using ::ps::Node;
using ::ps::SArray;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::ThrowsMessage;

// ---- SArray

TEST(PsArray, CopiesSlicesAndCastsShareTheMemory) {
  SArray<int> a{1, 2, 3, 4};
  const SArray<int> b = a;
  const auto slice = a.segment(1, 3);
  const SArray<char> bytes(a);
  a[1] = 20;
  EXPECT_EQ(b[1], 20);
  EXPECT_EQ(slice[0], 20);
  EXPECT_EQ(bytes.size(), 16U);
  SArray<int> back;
  back = bytes;
  EXPECT_EQ(back.data(), a.data());
  a.clear();
  EXPECT_EQ(slice[1], 3) << "the memory lives as long as a slice";
  EXPECT_THAT([&] { SArray<double> d(SArray<char>(12)); }, testing::Throws<dmlc::Error>());
  EXPECT_THAT([&] { (void)b.segment(2, 5); }, testing::Throws<dmlc::Error>());
}

TEST(PsArray, CopiesInto) {
  int memory[4] = {1, 2, 3, 4};
  SArray<int> a(memory, 4);
  a.CopyFrom(a.data() + 1, 3);
  EXPECT_EQ(memory[0], 2) << "into the memory that it shares";
  EXPECT_EQ(a.size(), 3U);
  const int more[] = {7, 8, 9, 10, 11};
  a.CopyFrom(more, 5);
  EXPECT_EQ(a[4], 11);
  EXPECT_EQ(memory[0], 2);
}

TEST(PsArray, GrowsAsAVectorDoes) {
  SArray<int> a;
  std::vector<int> v;
  for (int i = 0; i < 100; ++i) {
    a.push_back(i);
    v.push_back(i);
  }
  a.append(a);
  v.insert(v.end(), v.begin(), v.begin() + 100);
  a.resize(203, 7);
  v.resize(203, 7);
  EXPECT_EQ(std::vector<int>(a.begin(), a.end()), v);
  a.pop_back();
  EXPECT_EQ(a.size(), 202U);
  const auto found = ::ps::FindRange(SArray<int>{1, 3, 5, 7, 9}, 2, 7);
  EXPECT_EQ(found.begin(), 1U);
  EXPECT_EQ(found.end(), 3U);
  EXPECT_EQ(::ps::DebugStr(a.data(), 3), "[3]: 0 1 2 ");
  EXPECT_EQ(::ps::DebugStr(a.data(), 100, 2), "[100]: 0 1 ... 98 99 ");
  static_assert(::ps::GetDataType<std::uint16_t>() == ::ps::UINT16 && ::ps::GetDataType<long>() == ::ps::INT64);
}

// ---- macros

TEST(PsLogging, ChecksSayWhatFailedAndLeaveTheElseToTheProgram) {
  EXPECT_THAT([] { CHECK_EQ(1 + 1, 3) << "sum"; },
              ThrowsMessage<dmlc::Error>(HasSubstr("Check failed: 1 + 1 == 3 (2 vs. 3) sum")));
  EXPECT_THAT([] { CHECK(false) << "why"; }, ThrowsMessage<dmlc::Error>(HasSubstr("Check failed: false why")));
  EXPECT_THAT([] { LOG(FATAL) << "end"; }, ThrowsMessage<dmlc::Error>(HasSubstr("end")));
  int evaluated = 0;
  CHECK_GE(++evaluated, 1);
  EXPECT_EQ(evaluated, 1);
  bool otherwise = false;
  if (evaluated == 2) CHECK(false);
  else otherwise = true;
  EXPECT_TRUE(otherwise);
  int x = 5;
  EXPECT_EQ(CHECK_NOTNULL(&x), &x);
}

// ---- the store of the default handle

TEST(PsKeyStore, HoldsWhatAMapHolds) {
  std::mt19937_64 random(3);
  ::ps::internal::key_store<Key, std::int64_t> store;
  std::map<Key, std::vector<std::int64_t>> expected;
  for (int round = 0; round < 300; ++round) {
    std::map<Key, std::size_t> chosen;
    for (std::size_t i = random() % 30; i > 0; --i) {
      const Key key = random() % 200 * (round % 2 == 0 ? 1 : 0x100000000U);
      const auto known = expected.find(key);
      chosen[key] = known != expected.end() ? known->second.size() : random() % 3 + 1;
    }
    SArray<Key> keys;
    SArray<std::int64_t> vals, got;
    SArray<int> lens, got_lens;
    for (const auto& [key, n] : chosen) {
      keys.push_back(key);
      lens.push_back(static_cast<int>(n));
      expected[key].resize(n);
      for (auto& e : expected[key]) {
        vals.push_back(static_cast<std::int64_t>(random() % 100));
        e += vals.back();
      }
    }
    store.add(keys, vals, lens);
    store.get(keys, &got, &got_lens);
    std::vector<std::int64_t> sums;
    for (const auto& [key, n] : chosen) sums.insert(sums.end(), expected[key].begin(), expected[key].end());
    ASSERT_EQ(std::vector<std::int64_t>(got.begin(), got.end()), sums);
  }
  EXPECT_EQ(store.size(), expected.size());
  const auto& [key, values] = *expected.begin();
  const SArray<Key> keys{key};
  const SArray<std::int64_t> too_many(values.size() + 1, 1);
  EXPECT_THAT([&] { store.add(keys, too_many, {}); }, ThrowsMessage<dmlc::Error>(HasSubstr("were pushed")));
  EXPECT_EQ(store[key], values[0]) << "a refused push has changed nothing";
}

// ---- messages

Message some_message(std::size_t large) {
  Message m;
  m.meta.head = 7;
  m.meta.app_id = 1;
  m.meta.customer_id = 2;
  m.meta.timestamp = 3;
  m.meta.sender = 9;
  m.meta.recver = 8;
  m.meta.priority = -1;
  m.meta.request = true;
  m.meta.push = true;
  m.meta.body = "text";
  m.AddData(SArray<Key>{1, 2, 3});
  m.AddData(SArray<float>(large, 2.5F));
  m.AddData(SArray<int>());
  return m;
}

TEST(PsWire, MessagesComeBackAsTheyWere) {
  for (const std::size_t large : {1U, 100'000U}) {
    const auto bytes = encode(some_message(large));
    EXPECT_EQ(bytes.tail.size(), large == 1 ? 0U : large * 4);
    const auto m = decode(bytes.body, bytes.tail);
    EXPECT_EQ(m.meta.DebugString(), some_message(large).meta.DebugString());
    EXPECT_EQ(m.meta.priority, -1);
    EXPECT_EQ(m.meta.body, "text");
    EXPECT_THAT(m.data, SizeIs(3));
    const SArray<float> values(m.data[1]);
    EXPECT_EQ(values.size(), large);
    EXPECT_EQ(values[large - 1], 2.5F);
    EXPECT_EQ(m.meta.data_type, some_message(large).meta.data_type);
  }
}

TEST(PsWire, NothingThatIsCutOffOrChangedIsRead) {
  for (const std::size_t large : {1U, 100'000U}) {
    const auto bytes = encode(some_message(large));
    for (std::size_t n = 0; n < bytes.body.size(); ++n)
      EXPECT_THROW((void)decode(std::span(bytes.body).first(n), bytes.tail), protocol_error) << n;
    auto longer = bytes.body;
    longer.emplace_back();
    EXPECT_THROW((void)decode(longer, bytes.tail), protocol_error);
    EXPECT_THROW((void)decode(bytes.body, large == 1 ? shared_buffer::allocate(8) : shared_buffer()), protocol_error);
    for (const std::size_t at : {0U, 1U, 3U, 40U, 48U, 52U}) {
      auto changed = bytes.body;
      changed[at] = std::byte{0xff};
      EXPECT_THROW((void)decode(changed, bytes.tail), protocol_error) << at;
    }
  }
}

TEST(PsWire, ControlMessagesOfOthersAreRefused) {
  for (const char* text :
       {"", "{}", "[1]", "[{}]", "{\"client\": -1}", "{\"group\": \"x\", \"customers\": 3}", "\xff"}) {
    EXPECT_THROW((void)join_request::in(text), protocol_error) << text;
    EXPECT_THROW((void)barrier_end::in(text), protocol_error) << text;
    EXPECT_THROW((void)loss::in(text), protocol_error) << text;
    EXPECT_THROW((void)job_table::in(text), protocol_error) << text;
  }
}

// ---- the scheduler's table

struct sent_control {
  std::uint64_t client;
  Control::Command what;
  std::string text;
};

class PsTable : public testing::Test {
 protected:
  static join_request request(std::uint64_t client, Node::Role role, int customer = 0, int rank = -1) {
    return {.client = client,
            .role = role,
            .customer = customer,
            .preferred_rank = rank,
            .workers = 2,
            .servers = 1,
            .host = "host",
            .machine = "machine",
            .addresses = {"inproc://" + std::to_string(client)},
            .pid = 1,
            .started = 1};
  }
  /// What was sent since the last call.
  std::vector<sent_control> sent() { return std::exchange(sent_, {}); }
  void complete() {
    table_.join(request(10, Node::SERVER));
    table_.join(request(11, Node::WORKER));
    table_.join(request(12, Node::WORKER));
    (void)sent();
  }

  std::vector<sent_control> sent_;
  node_table table_{2, 1, {}, [this](std::uint64_t client, Control::Command what, const std::string& text) {
                      sent_.push_back({client, what, text});
                    }};
};

TEST_F(PsTable, RanksFollowTheWishesAndThenTheOrder) {
  table_.join(request(10, Node::SERVER));
  table_.join(request(11, Node::WORKER, 0, 1));
  table_.join(request(11, Node::WORKER, 0, 1));  // again: nothing new
  EXPECT_FALSE(table_.complete());
  EXPECT_THAT(sent(), IsEmpty());
  table_.join(request(12, Node::WORKER, 0, 0));
  EXPECT_TRUE(table_.complete());
  const auto all = sent();
  ASSERT_THAT(all, SizeIs(4)) << "the scheduler and three processes";
  const auto processes = job_table::in(all[1].text).processes;
  for (const auto& p : processes) EXPECT_EQ(p.id(), p.facts.client == 10 ? 8 : p.facts.client == 12 ? 9 : 11);
}

TEST_F(PsTable, CustomersOfAProcessAreNodesOfTheirOwn) {
  table_.join(request(10, Node::SERVER));
  table_.join(request(11, Node::WORKER, 0));
  table_.join(request(11, Node::WORKER, 1));
  EXPECT_TRUE(table_.complete());
  const auto* p = table_.find(11);
  ASSERT_THAT(p->instances, SizeIs(2));
  EXPECT_EQ(p->instances[0].id, 9);
  EXPECT_EQ(p->instances[1].id, 11);
}

TEST_F(PsTable, WhoeverIsTooManyOrCountsOtherwiseIsRefused) {
  auto other = request(20, Node::WORKER);
  other.workers = 3;
  table_.join(other);
  auto all = sent();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].what, Control::REFUSED);
  EXPECT_THAT(all[0].text, HasSubstr("it was started for 3 workers and 1 servers, the scheduler for 2 and 1"));
  complete();
  table_.join(request(13, Node::WORKER));
  all = sent();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_THAT(all[0].text, HasSubstr("all 2 workers have joined already"));
}

TEST_F(PsTable, OneThatFallsSilentBeforeTheJobIsCompleteIsToldAndAnotherTakesItsPlace) {
  table_.join(request(10, Node::SERVER));
  table_.join(request(11, Node::WORKER));
  table_.remove(11, "no heartbeat", false);
  const auto all = sent();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].client, 11U);
  EXPECT_EQ(all[0].what, Control::DEAD);
  table_.join(request(12, Node::WORKER));
  EXPECT_FALSE(table_.complete());
  table_.join(request(13, Node::WORKER));
  EXPECT_TRUE(table_.complete());
}

TEST(PsProcessWatch, AProcessThatEndedBeforeOrWhosePidIsInUseAgainHasEnded) {
  const auto child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  const auto started = start_of_process(child);
  EXPECT_GT(started, 0U) << "a zombie still has a start";
  EXPECT_TRUE(process_watch(child, started).has_ended());
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(process_watch(child, started).has_ended());
  EXPECT_FALSE(process_watch(::getpid(), start_of_process(::getpid())).has_ended());
  EXPECT_TRUE(process_watch(::getpid(), start_of_process(::getpid()) - 1).has_ended()) << "another process had its pid";
  EXPECT_FALSE(process_watch(0, 0).has_ended()) << "it runs on another machine";
}

TEST(PsChannels, TimeInWhichThisProcessIsSuspendedIsNoSilenceOfTheOthers) {
  using namespace std::chrono_literals;
  paracel::net::inproc_transport over;
  const auto deaf = over.open();
  const auto address = deaf->bind("inproc://*");
  node_channels channels(over, {.job = 1, .client = 2}, {"inproc://*"});
  channels.connect(3, address);
  channels.send(3, {});
  std::this_thread::sleep_for(20ms);
  EXPECT_GE(channels.unacknowledged(3), 20ms);
  channels.was_away(1min);
  EXPECT_LT(channels.unacknowledged(3), 0ms);
}

TEST_F(PsTable, AReplacementTakesTheIdOfTheDead) {
  complete();
  table_.remove(11, "killed", false);
  auto all = sent();
  ASSERT_THAT(all, SizeIs(4)) << "the process itself, which may live after all, the scheduler and two others";
  EXPECT_EQ(all[0].client, 11U);
  EXPECT_EQ(all[0].what, Control::DEAD);
  EXPECT_EQ(loss::in(all[2].text).why, "killed");
  table_.join(request(11, Node::WORKER));
  EXPECT_THAT(sent()[0].text, HasSubstr("it was considered dead: killed"));
  table_.join(request(14, Node::WORKER));
  all = sent();
  ASSERT_THAT(all, SizeIs(4));
  EXPECT_EQ(table_.find(14)->id(), 9);
  EXPECT_TRUE(table_.find(14)->replaced);
  EXPECT_EQ(table_.find(11), nullptr);
}

TEST_F(PsTable, BarriersEndForEverybodyTogether) {
  complete();
  table_.barrier(11, 0, ::ps::kWorkerGroup, false);
  EXPECT_THAT(sent(), IsEmpty());
  table_.barrier(10, 0, ::ps::kServerGroup, false);
  EXPECT_THAT(sent(), SizeIs(1)) << "another group, of one";
  table_.barrier(12, 0, ::ps::kWorkerGroup, false);
  const auto all = sent();
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_THAT(barrier_end::in(all[0].text).failure, IsEmpty());
  EXPECT_FALSE(table_.over());
  for (const std::uint64_t client : {0U, 10U, 11U, 12U}) table_.barrier(client, 0, 7, true);
  EXPECT_TRUE(table_.over());
  (void)sent();
  table_.remove(11, "its process has ended", false);
  EXPECT_THAT(sent(), IsEmpty()) << "all had left together";
}

TEST_F(PsTable, ABarrierFailsForADeadNodeThatIsNotReplaced) {
  complete();
  table_.barrier(11, 0, ::ps::kWorkerGroup, false);
  table_.remove(12, "killed", false);
  for (const auto& s : sent()) EXPECT_EQ(s.what, Control::DEAD) << "a replacement may still come";
  table_.give_up(12);
  auto all = sent();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(barrier_end::in(all[0].text).failure, "worker 1 (node 11): killed");
  table_.join(request(14, Node::WORKER));
  (void)sent();
  table_.barrier(14, 0, ::ps::kWorkerGroup, false);
  EXPECT_THAT(sent(), IsEmpty());
  table_.barrier(11, 0, ::ps::kWorkerGroup, false);
  all = sent();
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_THAT(barrier_end::in(all[0].text).failure, IsEmpty());
}

TEST_F(PsTable, ABarrierFailsForANodeThatHasLeft) {
  complete();
  table_.remove(11, "it has left the job", true);
  (void)sent();
  table_.barrier(12, 0, ::ps::kWorkerGroup, false);
  const auto all = sent();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(barrier_end::in(all[0].text).failure, "worker 0 (node 9): it has left the job");
}

}  // namespace
}  // namespace paracel::ps_compat
