// SPDX-License-Identifier: BSD-3-Clause
#include "client/kvclt.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include <paracel/error.hpp>

#include "client/routing_table.hpp"
#include "net/inproc_transport.hpp"

namespace paracel {
namespace {

using namespace std::chrono_literals;
using net::verb;

/// A server thread that records its requests.
class thread_of_server {
 public:
  explicit thread_of_server(net::transport& over) : port_(over.open()), address_(port_->bind("inproc://*")) {}
  [[nodiscard]] const std::string& address() const { return address_; }
  /// The next request's header, if there is one; its key and body are stored in `text`.
  std::optional<net::request_header> next() {
    net::incoming in;
    if (!port_->receive(in, 0ms)) return std::nullopt;
    net::request_view r;
    EXPECT_EQ(net::decode(in.frame, in.tail.size(), r), nullptr);
    text = std::string(r.key()) + "=" + std::string(net::text_of(r.payload()));
    return r.header;
  }
  std::string text;

 private:
  std::unique_ptr<net::port> port_;
  std::string address_;
};

/// A server with two shards, and the context that its client needs.
class KvcltOfOneServer : public testing::Test {
 protected:
  struct server {
    explicit server(net::transport& over) : shard0(over), shard1(over), clock(over), control(over) {}
    [[nodiscard]] server_entry entry(std::uint32_t slot, std::uint64_t incarnation) const {
      return {.slot = slot,
              .incarnation = incarnation,
              .threads = 2,
              .shards = {shard0.address(), shard1.address()},
              .clock = clock.address(),
              .control = control.address()};
    }
    thread_of_server shard0, shard1, clock, control;
  };

  explicit KvcltOfOneServer(bool may_change = true) {
    shared_.port = over_.open();
    shared_.job = 7;
    shared_.incarnation = 99;
    shared_.rank = 5;
    shared_.epoch = 3;
    shared_.may_change = may_change;
  }
  kvclt::sequence send(kvclt& to, std::uint32_t thread, const std::string& key, const std::string& value = "") {
    auto h = kvclt::header_of({.what = verb::push});
    shared_.window.reserve();
    return to.send(thread, 40 + thread, h, key, {}, net::bytes_of(value), {}, nullptr);
  }

  net::inproc_transport over_;
  server one_{over_};
  client_context shared_;
};

TEST_F(KvcltOfOneServer, ARequestGoesToTheThreadThatIsNamedAndSaysWhoAsks) {
  kvclt client(shared_, one_.entry(2, 1000));
  EXPECT_EQ(client.shards(), 2U);
  const auto s = send(client, 1, "key", "value");
  EXPECT_FALSE(one_.shard0.next());
  const auto h = one_.shard1.next();
  ASSERT_TRUE(h);
  EXPECT_EQ(one_.shard1.text, "key=value");
  EXPECT_EQ(h->sequence, s);
  EXPECT_EQ(h->client, 99U);
  EXPECT_EQ(h->job, 7U);
  EXPECT_EQ(h->rank, 5U);
  EXPECT_EQ(h->epoch, 3U);
  EXPECT_EQ(h->low_watermark, s) << "it is the lowest that is not answered";
  EXPECT_TRUE(shared_.window.is_open(s));
  EXPECT_EQ(shared_.window.at(s).channel, 41U);
  client.check_health(client.threads() - 1, 1s, {});
  EXPECT_FALSE(one_.clock.next());
  const auto ping = one_.control.next();
  ASSERT_TRUE(ping);
  EXPECT_EQ(ping->what, verb::ping);
  EXPECT_EQ(ping->count, net::ping_alive);
  EXPECT_EQ(ping->sequence, 0U);
  EXPECT_EQ(ping->client, 99U);
  EXPECT_EQ(shared_.window.in_flight(), 1U) << "a ping is no request of the window";
}

TEST_F(KvcltOfOneServer, ClientsOfTwoServersShareNumbersAndWatermarkSoThatARequestMayMove) {
  server two(over_);
  kvclt a(shared_, one_.entry(0, 1));
  kvclt b(shared_, two.entry(1, 2));
  const auto first = send(a, 0, "k", "first");
  const auto second = send(b, 0, "l", "second");
  EXPECT_EQ(second, first + 1);
  shared_.window.close(shared_.window.at(second));
  (void)two.shard0.next();
  // The first one's server is lost: the client of the other server resends it.
  auto& lost = *shared_.window.at(first).retained;
  ++shared_.epoch;
  b.resend(1, lost.header, lost.body, lost.tail);
  const auto h = two.shard1.next();
  ASSERT_TRUE(h);
  EXPECT_EQ(two.shard1.text, "k=first");
  EXPECT_EQ(h->sequence, first) << "under its number, by which servers know it";
  EXPECT_EQ(h->low_watermark, first) << "or it would be refused as expired";
  EXPECT_EQ(h->epoch, 4U);
}

TEST_F(KvcltOfOneServer, ARenewedConnectionBeginsItsStreamAndForgetsTheSetsOfItsThread) {
  kvclt client(shared_, one_.entry(0, 1));
  send(client, 0, "a");
  EXPECT_NE(one_.shard0.next()->flags & net::flag_first, 0);
  send(client, 0, "b");
  EXPECT_EQ(one_.shard0.next()->flags & net::flag_first, 0);
  send(client, 1, "c");
  EXPECT_NE(one_.shard1.next()->flags & net::flag_first, 0) << "of another thread";
  const digest128 set{1, 2};
  client.record_set(0, set);
  client.record_set(1, set);
  const auto before = client.connection(0);
  client.take(0, {.what = verb::push, .result = net::status::connection_reset}, client.connection(0));
  EXPECT_TRUE(client.is_broken(0));
  EXPECT_FALSE(client.is_broken(1));
  client.renew(0);
  EXPECT_FALSE(client.is_broken(0));
  EXPECT_FALSE(client.has_set(0, set));
  EXPECT_TRUE(client.has_set(1, set));
  EXPECT_EQ(shared_.prepared_sets, 1U);
  send(client, 0, "d");
  EXPECT_NE(client.connection(0), before);
  EXPECT_NE(one_.shard0.next()->flags & net::flag_first, 0);
}

TEST_F(KvcltOfOneServer, WhatIsForAServerThatServesNoMoreIsRetainedAndLeftBehind) {
  kvclt client(shared_, one_.entry(0, 1));
  client.set_serves(false);
  const auto s = send(client, 0, "k", "v");
  EXPECT_FALSE(one_.shard0.next());
  EXPECT_TRUE(shared_.left_behind);
  ASSERT_TRUE(shared_.window.is_open(s));
  EXPECT_EQ(shared_.window.at(s).retained->slot, 0U);
}

TEST_F(KvcltOfOneServer, AKeyThatIsTooLongIsRefused) {
  EXPECT_THROW(kvclt::check_key(std::string(net::max_key_bytes + 1, 'k')), protocol_error);
  EXPECT_NO_THROW(kvclt::check_key(std::string(net::max_key_bytes, 'k')));
}

TEST_F(KvcltOfOneServer, ANewMembershipKeepsTheConnectionsOfProcessesThatStay) {
  server two(over_);
  server replacement(over_);
  membership m;
  m.job = 7;
  m.replicas = 2;
  m.servers = {one_.entry(0, 1), two.entry(1, 2)};
  routing_table routes(shared_, m);
  EXPECT_EQ(routes.channels(), 8U);
  send(routes.client(0), 0, "a");
  send(routes.client(1), 0, "b");
  const auto* stays = &routes.client(0);
  const auto connection = stays->connection(0);
  EXPECT_EQ(routes.channel_behind(connection), routes.channel_of(0, 0));
  m.epoch = 9;
  m.servers[1] = replacement.entry(1, 3);
  EXPECT_EQ(routes.apply(m), (std::vector<std::uint32_t>{1})) << "the one that is to be told of functions and tables";
  EXPECT_EQ(shared_.epoch, 9U);
  EXPECT_EQ(&routes.client(0), stays);
  EXPECT_EQ(routes.client(0).connection(0), connection);
  EXPECT_EQ(routes.client(1).connection(0), -1);
  EXPECT_FALSE(routes.find(1, 2, 0)) << "that process is gone";
  EXPECT_EQ(routes.find(1, 3, 1), routes.channel_of(1, 1));
  std::vector<std::uint32_t> shards;
  routes.for_each_shard([&](std::uint32_t c) { shards.push_back(c); });
  EXPECT_EQ(shards, (std::vector<std::uint32_t>{0, 1, 4, 5}));
}

}  // namespace
}  // namespace paracel
