// SPDX-License-Identifier: BSD-3-Clause
//
// Running server nodes, and clients that implement the wire format without the client library.
#include "server/node/server_node.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <paracel/error.hpp>

#include "core/membership.hpp"
#include "net/inproc_transport.hpp"
#include "net/protocol.hpp"
#include "net/zmq_transport.hpp"
#include "server/node/server_node.hpp"
#include "test/support/paths.hpp"
#include "test/support/sanitized.hpp"
#include "test/support/wire_client.hpp"

namespace paracel::srv {
namespace {

using net::status;
using net::verb;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

using test::patience;
using test::view;
using test::wire_client;

constexpr std::uint64_t job = 0xabcd;

enum class kind { inproc, ipc };

class ServerNodeTest : public testing::TestWithParam<kind> {
 protected:
  void SetUp() override {
    if (GetParam() == kind::inproc) {
      transport_ = std::make_unique<net::inproc_transport>();
      bind_ = "inproc://test";
      return;
    }
    if (test::thread_sanitized) GTEST_SKIP() << "libzmq is not instrumented";
    transport_ = std::make_unique<net::zmq_transport>();
    std::string folder = "/tmp/prc-test-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    bind_ = "ipc://" + folder;
  }
  void TearDown() override {
    nodes_.clear();
    transport_.reset();
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  node_options options(std::uint32_t slot = 0, std::uint32_t threads = 2) {
    node_options o;
    o.server.slot = slot;
    o.server.threads = threads;
    o.server.job = job;
    o.server.workers = 2;
    o.server.plugin_folders = {test::plugin_folder()};
    o.bind = bind_;
    o.log = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      log_ += line + "\n";
    };
    return o;
  }
  server_node& start(node_options o) {
    nodes_.push_back(std::make_unique<server_node>(*transport_, std::move(o)));
    return *nodes_.back();
  }
  void start_all(std::uint32_t servers, std::uint32_t threads) {
    members_.job = job;
    members_.workers = 2;
    for (std::uint32_t slot = 0; slot < servers; ++slot) {
      members_.servers.push_back(start(options(slot, threads)).addresses());
    }
    for (auto& n : nodes_) n->set_membership(members_);
  }
  std::string home(std::string_view key) const {
    const auto at = key_router(members_).locate(key);
    return members_.servers[at.server].shards[at.shard];
  }
  std::string log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  static std::uint64_t function(wire_client& c, const std::string& shard, const std::string& symbol) {
    const auto a = c.ask(shard, verb::register_update, "server_updates", {value_tag::none, net::bytes_of(symbol)});
    EXPECT_EQ(a.header.result, status::ok) << a.text();
    std::uint64_t id = 0;
    if (a.body.size() >= sizeof id) std::memcpy(&id, a.body.data(), sizeof id);
    return id;
  }

  std::unique_ptr<net::transport> transport_;
  std::string bind_;
  std::string folder_;
  membership members_;
  std::mutex mutex_;
  std::string log_;
  std::vector<std::unique_ptr<server_node>> nodes_;  // last: they stop first
};

INSTANTIATE_TEST_SUITE_P(Over, ServerNodeTest, testing::Values(kind::inproc, kind::ipc),
                         [](const auto& of) { return of.param == kind::inproc ? "Inproc" : "Ipc"; });

TEST_P(ServerNodeTest, EveryKeyIsReachedAtTheAddressThatTheRingNames) {
  start_all(3, 2);
  wire_client c(*transport_, job);
  std::vector<double> theta(3);
  for (int i = 0; i < 200; ++i) {
    const auto key = "k" + std::to_string(i);
    theta[0] = i;
    ASSERT_EQ(c.ask(home(key), verb::push, key, view(theta)).header.result, status::ok);
  }
  for (int i = 0; i < 200; ++i) {
    const auto key = "k" + std::to_string(i);
    const auto a = c.ask(home(key), verb::pull, key);
    ASSERT_EQ(a.header.result, status::ok);
    EXPECT_EQ(a.doubles()[0], i);
    EXPECT_EQ(a.header.epoch, 1U);
  }
  std::uint64_t keys = 0;
  for (const auto& s : members_.servers)
    keys += nlohmann::json::parse(c.ask(s.control, verb::stats).text())["keys"].get<int>();
  EXPECT_EQ(keys, 200U);
}

TEST_P(ServerNodeTest, UpdatesOfManyClientsAllCount) {
  start_all(2, 2);
  constexpr int clients = 4, updates = 500;
  std::vector<std::thread> threads;
  for (int t = 0; t < clients; ++t) {
    threads.emplace_back([this] {
      wire_client c(*transport_, job);
      const std::vector<double> ones(50, 1.0);
      for (int i = 0; i < updates; ++i) {
        const auto key = "k" + std::to_string(i % 7);
        ASSERT_EQ(c.ask(home(key), verb::update, key, view(ones)).header.result, status::ok);
      }
    });
  }
  for (auto& t : threads) t.join();
  wire_client c(*transport_, job);
  double sum = 0;
  for (int i = 0; i < 7; ++i) {
    const auto key = "k" + std::to_string(i);
    for (const auto d : c.ask(home(key), verb::pull, key).doubles()) sum += d;
  }
  EXPECT_EQ(sum, clients * updates * 50.0);
}

TEST_P(ServerNodeTest, ALargeValueTravelsInAFrameOfItsOwnBothWays) {
  start_all(1, 2);
  wire_client c(*transport_, job);
  const std::size_t n = 200'000;
  auto value = shared_buffer::allocate(n * sizeof(double));
  std::vector<double> expected(n);
  for (std::size_t i = 0; i < n; ++i) expected[i] = static_cast<double>(i);
  std::memcpy(value.mutable_data(), expected.data(), value.size());
  ASSERT_EQ(c.ask(home("w"), {.what = verb::push}, "w", {value_tag::f64_array, {}}, value).header.result, status::ok);
  ASSERT_EQ(c.ask(home("w"), {.what = verb::update}, "w", {value_tag::f64_array, {}}, value).header.result, status::ok);
  const auto a = c.ask(home("w"), verb::pull, "w");
  for (auto& e : expected) e *= 2;
  EXPECT_TRUE(a.tail);
  EXPECT_EQ(a.doubles(), expected);
}

TEST_P(ServerNodeTest, AClockWaitIsAnsweredByTheTickOfAnother) {
  start_all(2, 1);
  const auto clock = members_.servers[key_router(members_).clock_server()].clock;
  wire_client reader(*transport_, job), slow(*transport_, job);
  EXPECT_EQ(slow.ask(clock, {.what = verb::clock_tick, .rank = 0, .clock = 3}).header.clock, 0U);
  const auto waiting = reader.send(clock, {.what = verb::clock_wait, .clock = 2});
  EXPECT_FALSE(reader.receive(waiting, milliseconds(50)).has_value());
  const auto ticked = steady_clock::now();
  slow.ask(clock, {.what = verb::clock_tick, .rank = 1, .clock = 2});
  const auto a = reader.receive(waiting);
  ASSERT_TRUE(a.has_value());
  EXPECT_EQ(a->header.result, status::ok);
  EXPECT_EQ(a->header.clock, 2U);
  EXPECT_LT(steady_clock::now() - ticked, milliseconds(1000));
  EXPECT_EQ(reader.ask(clock, {.what = verb::clock_wait, .clock = 9, .deadline_ms = 30}).header.result,
            status::deadline_exceeded);
}

TEST_P(ServerNodeTest, TicksBeforeTheServerKnowsTheJobAreNotLost) {
  auto o = options(0, 1);
  o.server.workers = 0;
  auto& node = start(std::move(o));
  wire_client c(*transport_, job);
  const auto t0 = c.send(node.addresses().clock, {.what = verb::clock_tick, .rank = 0, .clock = 1});
  const auto t1 = c.send(node.addresses().clock, {.what = verb::clock_tick, .rank = 1, .clock = 1});
  EXPECT_FALSE(c.receive(t0, milliseconds(30)).has_value());
  members_.job = job;
  members_.workers = 2;
  members_.servers = {node.addresses()};
  node.set_membership(members_);
  const auto a = c.receive(t1);
  ASSERT_TRUE(a.has_value());
  EXPECT_EQ(a->header.clock, 1U);
}

// ---- proxy ------------------------------------------------------------------------------------------------------

TEST_P(ServerNodeTest, AProxyReachesEveryKeyThroughAnyServer) {
  start_all(3, 2);
  wire_client c(*transport_, job);
  const auto& door = members_.servers[0].control;
  const auto proxy = [&](verb what, std::string_view key, const value_view& value, shared_buffer tail = {}) {
    const auto inner = test::frame_of({.what = what}, key, value, tail.size());
    return c.ask(door, {.what = verb::proxy}, {}, {value_tag::none, inner}, std::move(tail));
  };
  for (int i = 0; i < 50; ++i) {
    const auto key = "k" + std::to_string(i);
    const double d = i;
    const auto pushed = proxy(verb::push, key, view(d));
    ASSERT_EQ(pushed.header.result, status::ok) << pushed.text();
    EXPECT_EQ(pushed.header.what, verb::proxy);
    EXPECT_EQ(c.ask(home(key), verb::pull, key).doubles(), std::vector<double>{d});
    const auto pulled = proxy(verb::pull, key, {});
    EXPECT_EQ(pulled.doubles(), std::vector<double>{d});
    EXPECT_EQ(pulled.header.tag, value_tag::f64);
    EXPECT_GT(pulled.header.value_version, 0U);
  }
  EXPECT_EQ(proxy(verb::pull, "missing", {}).header.result, status::not_found);

  const double one = 1;
  std::vector<std::byte> both;
  for (int i = 0; i < 2; ++i) net::append_item(both, {}, view(one));
  for (int i = 0; i < 2; ++i)
    ASSERT_EQ(proxy(verb::update_default, "d", {value_tag::none, both}).header.result, status::ok);
  EXPECT_EQ(proxy(verb::pull, "d", {}).doubles(), std::vector<double>{2});
  std::vector<std::byte> never(sizeof(std::uint64_t) + sizeof one);  // version 0: the key must not exist
  const auto conflict = proxy(verb::cas, "d", {value_tag::f64, never});
  EXPECT_EQ(conflict.header.result, status::conflict);
  EXPECT_EQ(conflict.header.value_version, proxy(verb::pull, "d", {}).header.value_version);

  const std::vector<double> large(50'000, 2.5);
  auto tail = shared_buffer::allocate(large.size() * sizeof(double));
  std::memcpy(tail.mutable_data(), large.data(), tail.size());
  ASSERT_EQ(proxy(verb::push, "w", {value_tag::f64_array, {}}, std::move(tail)).header.result, status::ok);
  EXPECT_EQ(proxy(verb::pull, "w", {}).doubles(), large);
}

TEST_P(ServerNodeTest, AProxyRefusesWhatIsNotARequestOfOneKey) {
  start_all(1, 2);
  wire_client c(*transport_, job);
  const auto& door = members_.servers[0].control;
  const auto ask = [&](const std::vector<std::byte>& inner) {
    return c.ask(door, {.what = verb::proxy}, {}, {value_tag::none, inner});
  };
  EXPECT_EQ(ask({}).header.result, status::bad_request);
  EXPECT_EQ(ask(std::vector<std::byte>(200)).header.result, status::bad_request);
  for (const auto v : {verb::proxy, verb::clear, verb::stop, verb::pull_multi, verb::clock_tick}) {
    const auto a = ask(test::frame_of({.what = v}, "a", {}));
    EXPECT_EQ(a.header.result, status::bad_request);
    EXPECT_THAT(a.text(), HasSubstr(net::name_of(v)));
  }
  auto cut = test::frame_of({.what = verb::pull}, "abc", {});
  cut.pop_back();
  EXPECT_EQ(ask(cut).header.result, status::bad_request);
}

TEST_P(ServerNodeTest, AProxiedRequestWhoseOwnerIsSilentEndsAtItsDeadline) {
  auto o = options(0, 1);
  o.heartbeat_interval = milliseconds(20);
  auto& node = start(std::move(o));
  members_.job = job;
  members_.servers = {node.addresses(), node.addresses()};
  members_.servers[1].slot = 1;
  members_.servers[1].shards = {GetParam() == kind::inproc ? "inproc://nobody" : "ipc://" + folder_ + "/nobody"};
  node.set_membership(members_);
  std::string key = "k";
  while (key_router(members_).locate(key).server != 1) key += "k";
  wire_client c(*transport_, job);
  const auto inner = test::frame_of({.what = verb::pull, .deadline_ms = 50}, key, {});
  const auto a = c.ask(node.addresses().control, {.what = verb::proxy}, {}, {value_tag::none, inner});
  EXPECT_EQ(a.header.result, status::deadline_exceeded);
}

// ---- malformed and malicious frames -----------------------------------------------------------------------------

TEST_P(ServerNodeTest, RandomCutAndFlippedFramesDisturbNobody) {
  start_all(1, 2);
  const auto& self = members_.servers[0];
  std::atomic<bool> done{false};
  std::atomic<int> counted{0};
  std::thread honest([&] {
    wire_client c(*transport_, job);
    while (!done) {
      const auto a = c.ask(home("count"), verb::update, "count", view(1.0));
      ASSERT_EQ(a.header.result, status::ok) << a.text();
      ++counted;
    }
  });
  wire_client c(*transport_, job);
  std::mt19937 random(11);
  std::vector<std::string> doors = self.shards;
  doors.push_back(self.clock);
  doors.push_back(self.control);
  std::vector<std::vector<std::byte>> good;
  const std::vector<double> v(20, 1.0);
  for (int i = 1; i < 90; ++i) {
    // A stop would be executed, a clear would remove the honest client's key.
    if (i == static_cast<int>(verb::stop) || i == static_cast<int>(verb::clear)) continue;
    good.push_back(
        test::frame_of({.what = static_cast<verb>(i), .job = job, .sequence = 1, .count = 3}, "key", view(v)));
  }
  int sent = 0;
  int answered = 0;
  for (int i = 0; i < 6000; ++i) {
    std::vector<std::byte> frame;
    if (i % 3 == 0) {
      frame.resize(random() % 300);
      for (auto& b : frame) b = static_cast<std::byte>(random());
    } else {
      frame = good[random() % good.size()];
      if (i % 3 == 1) frame.resize(random() % frame.size());
      // Not in the verb (it could become stop or clear) and not in the key, which would be a valid request for another
      // key.
      else
        frame[random() % 2 == 0 ? 6 + random() % 90 : 99 + random() % (frame.size() - 99)] ^=
            static_cast<std::byte>(1U << (random() % 8));
    }
    shared_buffer tail;
    if (random() % 10 == 0) tail = shared_buffer::allocate(random() % 100);
    if (tail) std::memset(tail.mutable_data(), 0, tail.size());
    c.send_raw(doors[random() % doors.size()], frame, std::move(tail));
    ++sent;
    while (c.receive_any(milliseconds(0))) ++answered;
  }
  while (answered < sent && c.receive_any(milliseconds(500))) ++answered;
  // A wait for a clock may be parked, and a tail without bytes is absent; everything else is answered.
  EXPECT_GT(answered, sent * 9 / 10);
  done = true;
  honest.join();
  wire_client after(*transport_, job);
  EXPECT_EQ(after.ask(home("count"), verb::pull, "count").doubles(), std::vector<double>{double(counted)});
  EXPECT_GT(counted, 10);
  EXPECT_EQ(nodes_[0]->failure(), "");
  const auto stats = nlohmann::json::parse(after.ask(self.control, verb::stats).text());
  EXPECT_LT(stats["memory_bytes"].get<std::uint64_t>(), 1'000'000U);
}

// ---- life -------------------------------------------------------------------------------------------------------

TEST_P(ServerNodeTest, StoppingAnswersWhoIsParkedAndIsQuick) {
  auto& node = start(options(0, 3));
  wire_client c(*transport_, job);
  const auto s = c.send(node.addresses().clock, {.what = verb::clock_wait, .clock = 5});
  c.ask(node.addresses().clock, verb::ping);  // it is parked now
  const auto begin = steady_clock::now();
  EXPECT_TRUE(node.stop());
  EXPECT_LT(steady_clock::now() - begin, milliseconds(1500));
  EXPECT_TRUE(node.stop()) << "a second time is harmless";
  if (GetParam() == kind::inproc) {  // over ZeroMQ the reply may be lost with the connection
    const auto a = c.receive(s);
    ASSERT_TRUE(a.has_value());
    EXPECT_EQ(a->header.result, status::job_ended);
  }
}

TEST_P(ServerNodeTest, AStopRequestOfTheJobEndsTheNode) {
  auto o = options(0, 1);
  std::atomic<int> told{0};
  o.on_stop = [&] { ++told; };
  auto& node = start(std::move(o));
  wire_client c(*transport_, job);
  const auto wrong = test::frame_of({.what = verb::stop, .job = job + 1, .sequence = 1000}, {}, {});
  c.send_raw(node.addresses().control, wrong);
  const auto refused = c.receive(1000);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->header.result, status::wrong_job);
  EXPECT_EQ(told, 0);
  c.send(node.addresses().control, {.what = verb::stop});
  for (int i = 0; i < 1000 && told == 0; ++i) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(node.stop());
  EXPECT_EQ(node.failure(), "");
}

TEST_P(ServerNodeTest, ALongFunctionIsNamedAndTheOtherThreadsGoOn) {
  auto o = options(0, 2);
  o.function_timeout = milliseconds(100);
  o.heartbeat_interval = milliseconds(20);
  auto& node = start(std::move(o));
  const auto& self = node.addresses();
  wire_client busy(*transport_, job), other(*transport_, job);
  const auto home_of = [&](std::string_view key) { return shard_of(partition_of(hash_key(key)), 2); };
  std::string slow = "a", quick = "b";
  while (home_of(slow) != 0) slow += "a";
  while (home_of(quick) != 1) quick += "b";
  const auto f = function(busy, self.shards[0], "sleep_update");
  ASSERT_EQ(busy.ask(self.shards[0], verb::push, slow, view(0.0)).header.result, status::ok);
  const auto s = busy.send(self.shards[0], {.what = verb::update, .function = f}, slow, view(700.0));
  for (int i = 0; i < 200 && node.long_runs().empty(); ++i) {
    EXPECT_EQ(other.ask(self.shards[1], verb::push, quick, view(1.0)).header.result, status::ok);
    std::this_thread::sleep_for(milliseconds(5));
  }
  const auto runs = node.long_runs();
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].shard, 0U);
  EXPECT_THAT(runs[0].function, HasSubstr("sleep_update"));
  EXPECT_GE(runs[0].time, milliseconds(100));
  EXPECT_THAT(log(), HasSubstr("sleep_update"));
  EXPECT_LT(node.shard_seen(0), node.shard_seen(1)) << "its queue stands still";
  const auto a = busy.receive(s);
  ASSERT_TRUE(a.has_value());
  EXPECT_EQ(a->header.result, status::ok);
  for (int i = 0; i < 200 && !node.long_runs().empty(); ++i) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_TRUE(node.long_runs().empty());
  const auto named = log();
  EXPECT_EQ(named.find("sleep_update"), named.rfind("sleep_update")) << "named once:\n" << named;
}

TEST_P(ServerNodeTest, ManyShortCallsOfAFunctionAreNotALongOne) {
  auto o = options(0, 1);
  o.function_timeout = milliseconds(150);
  o.heartbeat_interval = milliseconds(5);
  auto& node = start(std::move(o));
  wire_client c(*transport_, job);
  const auto f = function(c, node.addresses().shards[0], "sleep_update");
  ASSERT_EQ(c.ask(node.addresses().shards[0], verb::push, "a", view(0.0)).header.result, status::ok);
  std::vector<std::uint64_t> sent;
  for (int i = 0; i < 150; ++i) {
    sent.push_back(c.send(node.addresses().shards[0], {.what = verb::update, .function = f}, "a", view(2.0)));
  }
  EXPECT_TRUE(c.receive(sent.back()).has_value());
  EXPECT_THAT(log(), testing::Not(HasSubstr("sleep_update")));
}

class counting_handler final : public request_handler {
 public:
  void handle(unsigned shard, const net::request_view& request, shared_buffer tail, completion done) override {
    ++seen;
    if (request.header.what == verb::contains) {  // answered by the next request
      parked_.push_back(std::move(done));
      return;
    }
    for (auto& p : std::exchange(parked_, {})) p.ok();
    behind->handle(shard, request, std::move(tail), std::move(done));
  }
  void closing(unsigned) override {
    for (auto& p : std::exchange(parked_, {})) p.fail(status::job_ended);
  }
  server* behind = nullptr;
  std::atomic<int> seen{0};

 private:
  std::vector<completion> parked_;
};

TEST_P(ServerNodeTest, AnEmbeddingProgramMayAnswerForItself) {
  counting_handler handler;
  auto o = options(0, 1);
  o.handler = &handler;
  auto& node = start(std::move(o));
  handler.behind = &node.object();
  const auto& shard = node.addresses().shards[0];
  wire_client c(*transport_, job);
  const auto parked = c.send(shard, {.what = verb::contains}, "a");
  EXPECT_FALSE(c.receive(parked, milliseconds(50)).has_value());
  c.send(shard, {.what = verb::push}, "a", view(4.0));
  const auto a = c.receive(parked);
  ASSERT_TRUE(a.has_value());
  EXPECT_EQ(a->header.result, status::ok);
  EXPECT_EQ(c.ask(shard, verb::pull, "a").doubles(), std::vector<double>{4.0});
  EXPECT_EQ(handler.seen, 3);
  const auto last = c.send(shard, {.what = verb::contains}, "a");
  while (handler.seen != 4) std::this_thread::sleep_for(milliseconds(1));
  node.stop();
  if (GetParam() == kind::inproc) {
    const auto end = c.receive(last);
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->header.result, status::job_ended);
  }
}

TEST_P(ServerNodeTest, AnAddressThatCannotBeBoundIsSaid) {
  auto wrong = options();
  wrong.bind = "udp://127.0.0.1:*";
  EXPECT_THROW(server_node(*transport_, wrong), usage_error);
  wrong.bind = "tcp://127.0.0.1:7000";
  EXPECT_THROW(server_node(*transport_, wrong), usage_error);
  if (GetParam() == kind::ipc) {
    wrong.bind = "ipc://" + folder_ + "/not/there";
    EXPECT_THROW(server_node(*transport_, wrong), network_error);
  }
  start(options());
  if (GetParam() == kind::inproc) {
    EXPECT_THROW(server_node(*transport_, options()), network_error);  // the same slot
  }
}

TEST_P(ServerNodeTest, ANodeThatIsIdleUsesNoTime) {
  start(options(0, 4));
  std::this_thread::sleep_for(milliseconds(50));
  const auto begin = std::clock();
  std::this_thread::sleep_for(milliseconds(500));
  const auto used = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_LT(used, 0.1);
}

}  // namespace
}  // namespace paracel::srv
