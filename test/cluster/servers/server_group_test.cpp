// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <paracel/codec.hpp>
#include <paracel/error.hpp>

#include "client/server_group.hpp"
#include "net/inproc_transport.hpp"
#include "test/support/cluster.hpp"
#include "test/support/scripted_port.hpp"

namespace paracel {
namespace {

using test::cluster;

std::int64_t number_in(const kv_result& r) { return decode<std::int64_t>(r.value()); }

TEST(ServerGroup, KeepsTheOrderOfRequestsForOneKeyWithThousandsInFlight) {
  cluster c({.workers = 1, .servers = 2, .threads = 2});
  const auto client = c.client();
  const encoded<std::int64_t> one(1);
  constexpr int requests = 5000;  // more than the initial window
  std::vector<std::int64_t> seen;
  for (int i = 0; i < requests; ++i)
    client->request({.what = net::verb::bupdate}, "k", one.view(),
                    [&](const kv_result& r) { seen.push_back(number_in(r)); });
  EXPECT_GT(client->in_flight(), 1024U);
  client->wait_all();
  ASSERT_EQ(seen.size(), static_cast<std::size_t>(requests));
  for (int i = 0; i < requests; ++i) ASSERT_EQ(seen[static_cast<std::size_t>(i)], i + 1);
}

TEST(ServerGroup, BytesInFlightStayBelowTheLimit) {
  cluster c({.workers = 1, .servers = 1});
  kvclt_options o;
  o.max_outstanding_bytes = 100'000;
  const auto client = c.client(o);
  const std::vector<double> numbers(1000, 1.0);  // 8 kB
  const encoded<std::vector<double>> value(numbers);
  std::size_t most = 0;
  for (int i = 0; i < 200; ++i) {
    client->request({.what = net::verb::update}, "k", value.view(), nullptr);
    most = std::max(most, client->in_flight());
  }
  client->wait_all();
  EXPECT_LE(most, 12U);
  EXPECT_GE(most, 2U);
}

TEST(ServerGroup, AHandlerMayMakeRequests) {
  cluster c({.workers = 1, .servers = 1});
  const auto client = c.client();
  const encoded<std::int64_t> one(1);
  int left = 50;
  std::function<void(const kv_result&)> again = [&](const kv_result& r) {
    ASSERT_TRUE(r.ok());
    if (--left > 0) client->request({.what = net::verb::update}, "k", one.view(), again);
  };
  client->request({.what = net::verb::update}, "k", one.view(), again);
  client->wait_all();
  EXPECT_EQ(left, 0);
}

TEST(ServerGroup, AMultiRequestIsCutIntoChunksAndComesBackWhole) {
  cluster c({.workers = 1, .servers = 3, .threads = 2});
  kvclt_options o;
  o.multi_chunk_bytes = 500;
  const auto client = c.client(o);
  std::vector<std::string> keys;
  std::vector<encoded<std::int64_t>> values;
  std::vector<value_view> views;
  values.reserve(2000);
  for (std::int64_t i = 0; i < 2000; ++i) {
    keys.push_back("key_" + std::to_string(i));
    values.emplace_back(i);
    views.push_back(values.back().view());
  }
  client->many().multi({.what = net::verb::push_multi}, keys, views,
                       [](std::size_t, const net::reply_item& item) { ASSERT_EQ(item.result, net::status::ok); });
  std::vector<std::int64_t> got(keys.size(), -1);
  client->many().multi({.what = net::verb::pull_multi}, keys, {},
                       [&](std::size_t i, const net::reply_item& item) { got[i] = decode<std::int64_t>(item.value); });
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], static_cast<std::int64_t>(i));
}

TEST(ServerGroup, AServerThatNeverAnswersIsGivenUpAndNothingIsClaimedAboutTheRequest) {
  net::inproc_transport nobody;
  membership m;
  m.servers.push_back(
      {.shards = {"inproc://nobody_shard"}, .clock = "inproc://nobody_clock", .control = "inproc://nobody_control"});
  kvclt_options o;
  o.timeout = std::chrono::milliseconds{300};
  server_group client(nobody, m, 0, o);
  const auto start = std::chrono::steady_clock::now();
  try {
    client.wait(client.request({.what = net::verb::pull}, "k", {}, nullptr));
    FAIL() << "no error";
  } catch (const network_error& e) {
    EXPECT_TRUE(e.may_have_been_applied());
    EXPECT_NE(std::string(e.what()).find("pull"), std::string::npos) << e.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{3});
}

TEST(ServerGroup, AnAnswerThatHasArrivedWhenTheTimeIsUpIsTaken) {
  // As after a pause of this process: nothing arrives in time, and then it is there.
  test::scripted_transport over([](test::scripted_port& p, net::incoming& out, std::chrono::milliseconds timeout) {
    std::this_thread::sleep_for(timeout);
    if (timeout.count() != 0) return false;
    p.answer(out, {});
    return true;
  });
  membership m;
  m.servers.push_back({.shards = {"shard"}, .clock = "clock", .control = "control"});
  kvclt_options o;
  o.timeout = std::chrono::milliseconds{100};
  server_group client(over, m, 0, o);
  bool answered = false;
  client.wait(client.request({.what = net::verb::pull}, "k", {}, [&](const kv_result& r) { answered = r.ok(); }));
  EXPECT_TRUE(answered);
}

TEST(ServerGroup, ARequestOverTheLimitIsRefusedBeforeItLeaves) {
  cluster c({.workers = 1, .servers = 1});
  kvclt_options o;
  o.max_message_bytes = 1000;
  const auto client = c.client(o);
  const std::vector<double> numbers(1000, 1.0);
  const encoded<std::vector<double>> value(numbers);
  try {
    client->request({.what = net::verb::push}, "k", value.view(), nullptr);
    FAIL() << "no error";
  } catch (const network_error& e) {
    EXPECT_FALSE(e.may_have_been_applied());
  }
  EXPECT_EQ(client->in_flight(), 0U);
  EXPECT_THROW(client->request({.what = net::verb::pull}, std::string(70'000, 'k'), {}, nullptr), protocol_error);
}

TEST(ServerGroup, AnEndedJobEndsABlockedCall) {
  cluster c({.workers = 2, .servers = 1});
  const auto ended = std::make_shared<abort_signal>();
  const auto client = c.client({}, ended);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
    ended->raise(exit_status::server_lost, "server s1 lost");
  });
  try {
    client->wait(client->clock_request(net::verb::clock_wait, 5, nullptr));  // no worker will ever tick
    ADD_FAILURE() << "no error";
  } catch (const job_error& e) {
    EXPECT_EQ(e.status(), exit_status::server_lost);
  }
  other.join();
}

}  // namespace
}  // namespace paracel
