// SPDX-License-Identifier: BSD-3-Clause
//
// Everything that a server or a scheduler holds for others is bounded, and requests beyond the bound are rejected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <paracel/error.hpp>

#include "core/membership.hpp"
#include "net/inbound_watch.hpp"
#include "net/row_codec.hpp"
#include "server/node/server.hpp"
#include "server/plugin/plugin_registry.hpp"
#include "server/replication/replication_chain.hpp"
#include "server/request/byte_budget.hpp"
#include "server/request/dedup_window.hpp"
#include "server/request/deferred_requests.hpp"
#include "server/request/sender_connections.hpp"
#include "server/scheduler/reply_cache.hpp"
#include "server/shard/clock_service.hpp"
#include "server/shard/subscriptions.hpp"
#include "test/support/recorded_reply.hpp"

namespace paracel::srv {
namespace {

using net::status;
using net::verb;
using bytes = std::vector<std::byte>;

struct statuses final : reply_sink {
  void send(const net::peer&, const net::outgoing& message) override {
    all.push_back(test::recorded_reply(message).view.header.result);
  }
  completion due(const net::request_header& h) { return {*this, {}, h.what, h.sequence, 7, 0}; }
  std::vector<status> all;
};

net::peer peer_of(std::uint32_t name) {
  net::peer p;
  p.size = sizeof name;
  std::memcpy(p.id.data(), &name, sizeof name);
  return p;
}

net::request_header of_stream(std::uint64_t client, bool first) {
  net::request_header h;
  h.what = verb::join;
  h.client = client;
  h.sequence = 1;
  h.flags = static_cast<std::uint16_t>(net::flag_stream | (first ? net::flag_first : 0));
  return h;
}

TEST(ByteBudget, GivesUpToItsLimitAndTakesBackWhatGoes) {
  byte_budget b(100);
  {
    held_bytes first;
    EXPECT_TRUE(first.take(b, 60));
    held_bytes second;
    EXPECT_FALSE(second.take(b, 41));
    EXPECT_TRUE(second.take(b, 40));
    EXPECT_FALSE(first.take(b, ~std::size_t{0})) << "a sum that does not fit 64 bits";
    EXPECT_EQ(b.held(), 100U);
    EXPECT_EQ(b.refused(), 2U);
    const auto moved = std::move(first);
    EXPECT_EQ(b.held(), 100U);
  }
  EXPECT_EQ(b.held(), 0U);
}

TEST(Bounds, SendersBeyondTheBudgetTakeThePlaceOfThoseThatBeganFirst) {
  byte_budget budget(3 * sender_connections::sender_bytes);
  sender_connections s(&budget);
  for (std::uint32_t c = 1; c <= 3; ++c) EXPECT_TRUE(s.accepts(of_stream(c, true), peer_of(c)));
  EXPECT_TRUE(s.accepts(of_stream(1, true), peer_of(9))) << "a new connection of one that is known";
  EXPECT_TRUE(s.accepts(of_stream(4, true), peer_of(4)));
  EXPECT_FALSE(s.accepts(of_stream(2, false), peer_of(2))) << "began longest ago; it begins again";
  EXPECT_TRUE(s.accepts(of_stream(1, false), peer_of(9)));
  for (std::uint32_t c = 10; c < 10'000; ++c) EXPECT_TRUE(s.accepts(of_stream(c, true), peer_of(c)));
  EXPECT_EQ(s.size(), 3U);
  EXPECT_LE(budget.held(), budget.limit());
  s.end(of_stream(9'999, false));
  EXPECT_EQ(s.size(), 2U);
}

TEST(Bounds, WhatWasAppliedIsForgottenByBytesTheOldestOfWhoeverHasMost) {
  constexpr std::size_t limit = std::size_t{1} << 20;
  dedup_window w(limit);
  const bytes answer(4000);
  w.add(2, 1, 1, 0, {0, answer});
  for (std::uint64_t s = 1; s <= 2000; ++s) {
    w.add(1, 1, s, 0, {0, answer});
    EXPECT_LE(w.budget().held(), limit);
  }
  dedup_window::answer a;
  EXPECT_EQ(w.find(1, 2000, 0, a), dedup_window::verdict::applied);
  EXPECT_EQ(w.find(1, 1, 0, a), dedup_window::verdict::expired) << "and not applied again";
  EXPECT_EQ(w.find(2, 1, 0, a), dedup_window::verdict::applied) << "another client's";
  for (std::uint16_t p = 0; p < 500; ++p) w.add(3, 1, 1, p, {0, answer});  // one request more than fits
  EXPECT_LE(w.budget().held(), limit);
  EXPECT_EQ(w.find(3, 1, 0, a), dedup_window::verdict::expired);
  w.drop_if([](std::uint16_t) { return true; });
  EXPECT_EQ(w.budget().held(), 3 * dedup_window::client_bytes);
}

TEST(Bounds, AClientThatInventsNamesIsRefusedAndKnownOnesAreNot) {
  dedup_window w(std::size_t{1} << 20);
  std::uint64_t client = 0;
  while (w.admits(client + 1) && client < 1'000'000) w.add(++client, 1, 1, 0, {});
  EXPECT_LT(client, 2000U);
  EXPECT_EQ(w.budget().refused(), 1U);
  EXPECT_TRUE(w.admits(1));
  EXPECT_LT(w.budget().held(), std::size_t{2} << 20);
}

TEST(Bounds, WaitsForTheClockAreCounted) {
  clock_service clock(1);
  statuses sink;
  net::request_header h;
  h.what = verb::clock_wait;
  h.clock = 5;
  while (sink.all.empty()) clock.handle({h, {}}, sink.due(h), {});
  EXPECT_EQ(sink.all.back(), status::internal);
  EXPECT_LE(clock.budget().held(), clock.budget().limit());
  EXPECT_GT(clock.budget().held(), clock.budget().limit() / 2);
  clock.refuse_waiting(sink, status::job_ended, {});
  EXPECT_EQ(clock.budget().held(), 0U);
}

TEST(Bounds, NobodyAsksForCheckpointsAtEveryClockThereIs) {
  clock_service clock(1);
  statuses sink;
  net::request_header h;
  h.what = verb::checkpoint;
  for (h.clock = 1; h.clock <= 5000; ++h.clock) clock.handle({h, {}}, sink.due(h), {});
  EXPECT_EQ(std::ranges::count(sink.all, status::ok), 4096);
  h.clock = 1;
  clock.handle({h, {}}, sink.due(h), {});
  EXPECT_EQ(sink.all.back(), status::ok) << "one that is asked for already";
}

TEST(Bounds, ARequestThatWaitsForAKeySetCountsAlsoWithoutABody) {
  deferred_requests room;
  statuses sink;
  net::request_header h;
  h.what = verb::contains;
  h.client = 3;
  ASSERT_TRUE(room.refused(3, {}));
  ASSERT_EQ(room.judge({h, {}}), deferred_requests::verdict::hold);
  int held = 0;
  while (room.hold({h, {}}, {}, sink.due(h))) ++held;
  EXPECT_GT(held, 100'000);
  EXPECT_LE(room.budget().held(), deferred_requests::most_bytes);
  room.close(status::job_ended, {});
  EXPECT_EQ(room.budget().held(), 0U);
}

TEST(Bounds, ASubscriptionCountsAlsoWithoutAKey) {
  std::atomic<const ownership*> everything{nullptr};
  key_store keys(shard_settings{}, everything);
  subscriptions s(keys);
  statuses sink;
  net::request_header h;
  h.what = verb::subscribe;
  h.clock = 1;
  for (h.client = 1; h.client <= 1000; ++h.client) s.subscribe({h, {}}, sink.due(h));
  EXPECT_EQ(s.parked(), 1000U);
  EXPECT_GT(s.budget().held(), 1000U * sizeof(net::request_header));
  s.close(status::job_ended, {});
  EXPECT_EQ(s.budget().held(), 0U);
}

TEST(Bounds, ChannelsToTheSchedulerAreForgottenTheOldestFirst) {
  struct nowhere final : net::port {
    std::string bind(const std::string& a) override { return a; }
    int connect(const std::string&) override { return 0; }
    void disconnect(int) override {}
    void send(int, const net::outgoing&) override {}
    void reply(const net::peer&, const net::outgoing&) override { ++replies; }
    bool receive(net::incoming&, std::chrono::milliseconds) override { return false; }
    int replies = 0;
  };
  nowhere port;
  reply_cache channels(port);
  const auto answer = [&](std::uint32_t c, std::size_t size) {
    const auto h = of_stream(c, true);
    ASSERT_TRUE(channels.accepts(h, peer_of(c)));
    completion(channels, peer_of(c), h.what, h.sequence, 7, 0).answer({}, bytes(size));
  };
  for (std::uint32_t c = 1; c <= reply_cache::most_channels + 10; ++c) answer(c, 0);
  EXPECT_EQ(channels.size(), reply_cache::most_channels);
  EXPECT_FALSE(channels.accepts(of_stream(1, false), peer_of(1))) << "it begins again";
  EXPECT_TRUE(channels.accepts(of_stream(1, true), peer_of(1)));
  for (std::uint32_t c = 1; c <= 64; ++c) answer(100'000 + c, std::size_t{16} << 20);
  EXPECT_LE(channels.size(), reply_cache::most_bytes / (std::size_t{16} << 20));
}

TEST(Bounds, LargeRepliesOfTheSchedulerAreKeptUpToALimit) {
  struct recorder final : net::port {
    std::string bind(const std::string& a) override { return a; }
    int connect(const std::string&) override { return 0; }
    void disconnect(int) override {}
    void send(int, const net::outgoing&) override {}
    void reply(const net::peer&, const net::outgoing& o) override {
      results.push_back(test::recorded_reply(o).view.header.result);
      tails.push_back(o.tail.size());
    }
    bool receive(net::incoming&, std::chrono::milliseconds) override { return false; }
    std::vector<status> results;
    std::vector<std::size_t> tails;
  } port;
  constexpr std::size_t size = 100'000;
  reply_cache channels(port, 3 * size);
  const auto ask = [&](std::uint32_t c, std::uint64_t number) {
    auto h = of_stream(c, true);
    h.sequence = number;
    return channels.accepts(h, peer_of(c));
  };
  const auto answer = [&](std::uint32_t c, std::uint64_t number, const shared_buffer& tail) {
    ASSERT_TRUE(ask(c, number));
    completion(channels, peer_of(c), verb::collective, number, 7, 0).answer({}, {}, tail);
  };
  const auto shared = shared_buffer::allocate(size);
  for (std::uint32_t c = 1; c <= 10; ++c) answer(c, 1, shared);
  EXPECT_EQ(channels.tail_bytes(), size) << "one memory";
  for (std::uint32_t c = 11; c <= 14; ++c) answer(c, 1, shared_buffer::allocate(size));
  EXPECT_EQ(channels.tail_bytes(), 3 * size);
  const auto repeated = [&](std::uint32_t c) {
    EXPECT_FALSE(ask(c, 1)) << "it has been executed";
    return std::pair(port.results.back(), port.tails.back());
  };
  EXPECT_EQ(repeated(14), std::pair(status::ok, size));
  EXPECT_EQ(repeated(1).first, status::too_large) << "the oldest were dropped";
  EXPECT_EQ(repeated(11).first, status::too_large);
  for (std::uint32_t c = 1; c <= 14; ++c) EXPECT_TRUE(ask(c, 2)) << c;
  EXPECT_EQ(channels.tail_bytes(), 0U) << "their next requests show that the replies have arrived";
}

TEST(Bounds, FunctionsThatCanBeRegisteredAreCounted) {
  plugin_registry plugins({});
  const auto load = [&](int i) {
    return plugins.load_update({}, std::string("paracel_adagrad") + '\0' + "lr=" + std::to_string(i)).id;
  };
  const auto first = load(1);
  for (int i = 2; i <= 1024; ++i) load(i);
  EXPECT_THROW(load(1025), plugin_error);
  EXPECT_EQ(load(1), first) << "one that is registered already";
}

class BoundsOfAServer : public testing::Test {
 protected:
  void start(server_options o) {
    o.incarnation = 7;
    server_ = std::make_unique<server>(o);
  }
  status send(net::request_header h, const bytes& body) {
    h.client = 5;
    h.sequence = ++sequence_;
    h.body_bytes = static_cast<std::uint32_t>(body.size());
    server_->handle(0, {h, body}, {}, sink_.due(h));
    return sink_.all.back();
  }
  status open(const std::string& name) {
    net::table_definition d;
    d.element = value_tag::f32;
    d.width = 2;
    net::request_header h;
    h.what = verb::table_open;
    h.key_bytes = static_cast<std::uint32_t>(name.size());
    bytes body(net::bytes_of(name).begin(), net::bytes_of(name).end());
    const auto definition = net::encode(d);
    body.insert(body.end(), definition.begin(), definition.end());
    return send(h, body);
  }
  [[nodiscard]] nlohmann::json stats() const { return nlohmann::json::parse(server_->stats_json()); }

  std::unique_ptr<server> server_;
  statuses sink_;
  std::uint64_t sequence_ = 0;
};

TEST_F(BoundsOfAServer, StagedRowsAreWithinTheLimitOfMemory) {
  constexpr std::size_t limit = std::size_t{4} << 20;
  start({.max_memory_bytes = limit});
  ASSERT_EQ(open("t"), status::ok);
  net::request_header h;
  h.what = verb::rows_update;
  h.table = net::table_id("t");
  h.tag = value_tag::f32;
  h.flags = net::flag_staged;
  h.clock = 1;
  h.count = 1000;
  bytes body(h.count * (sizeof(std::uint64_t) + 2 * sizeof(float)));
  for (std::uint64_t i = 0; i < h.count; ++i) std::memcpy(body.data() + i * sizeof i, &i, sizeof i);
  int staged = 0;
  while (send(h, body) == status::ok && staged < 10'000) ++staged;
  EXPECT_EQ(sink_.all.back(), status::out_of_memory);
  EXPECT_GT(staged, 50);
  EXPECT_LE(stats()["memory_bytes"], limit);
  EXPECT_GT(stats()["memory_bytes"], limit / 2);
  // Folding releases the memory.
  h.what = verb::rows_pull;
  h.flags = net::flag_bsp_read;
  h.clock = 2;
  body.resize(h.count * sizeof(std::uint64_t));
  EXPECT_EQ(send(h, body), status::ok);
  EXPECT_EQ(stats()["shards"][0]["staged"], 0);
  EXPECT_LT(stats()["memory_bytes"], limit / 2);
}

TEST_F(BoundsOfAServer, TablesAreCounted) {
  start({.threads = 16});
  for (int i = 0; i < 1024; ++i) ASSERT_EQ(open("table " + std::to_string(i)), status::ok);
  EXPECT_EQ(open("one more"), status::out_of_memory);
  EXPECT_EQ(open("table 0"), status::ok) << "one that is open already";
}

TEST_F(BoundsOfAServer, ClientsThatAreFencedOffAreCounted) {
  start({});
  net::request_header h;
  h.what = verb::fence;
  h.clock = 1;
  EXPECT_EQ(send(h, bytes(65'537 * sizeof(std::uint64_t))), status::out_of_memory);
  EXPECT_EQ(send(h, bytes(8)), status::ok);
}

TEST_F(BoundsOfAServer, StatsShowEveryLimit) {
  start({});
  const auto held = stats()["held"];
  for (const char* kind : {"parked", "pieces", "replies", "streams", "proxied", "clock_waits", "key_sets",
                           "key_set_waits", "subscriptions", "applied"}) {
    ASSERT_TRUE(held.contains(kind)) << kind;
    EXPECT_GT(held[kind]["limit_bytes"], 0) << kind;
    EXPECT_EQ(held[kind]["bytes"], 0) << kind;
    EXPECT_EQ(held[kind]["refused"], 0) << kind;
  }
}

// ---- memory of incoming connections --------------------------------------------------------------------------------

class InboundWatch : public testing::Test {
 protected:
  InboundWatch() {
    greeting_.resize(64);
    greeting_[0] = std::byte{0xff};
    greeting_[9] = std::byte{0x7f};
    greeting_[10] = std::byte{3};
  }
  static bytes part(unsigned flags, std::size_t size) {
    bytes b{static_cast<std::byte>(flags)};
    if ((flags & 2U) == 0) b.push_back(static_cast<std::byte>(size));
    else
      for (int i = 7; i >= 0; --i) b.push_back(static_cast<std::byte>(size >> (8 * i)));
    return b;
  }
  /// Feeds the parts in pieces of every length.
  bool all_of(const std::vector<bytes>& parts, std::size_t at_once) {
    bytes whole = greeting_;
    for (const auto& p : parts) whole.insert(whole.end(), p.begin(), p.end());
    net::inbound_watch w(limits_);
    for (std::size_t at = 0; at < whole.size(); at += at_once) {
      if (!w.take(std::span(whole).subspan(at, std::min(at_once, whole.size() - at)))) return false;
    }
    return true;
  }
  static bytes with_content(bytes head, std::size_t size) {
    head.resize(head.size() + size);
    return head;
  }

  bytes greeting_;
  net::inbound_limits limits_{.most_parts = 4, .most_message_bytes = 1000, .most_command_bytes = 300};
};

TEST_F(InboundWatch, LetsMessagesThroughHoweverTheyAreCut) {
  std::vector<bytes> parts{with_content(part(4, 40), 40)};
  for (int i = 0; i < 20; ++i) {
    parts.push_back(part(1, 0));
    parts.push_back(with_content(part(1, 200), 200));
    parts.push_back(with_content(part(2, 700), 700));
  }
  for (const std::size_t at_once : {1, 2, 7, 64, 1000, 100'000}) EXPECT_TRUE(all_of(parts, at_once)) << at_once;
}

TEST_F(InboundWatch, FullPartsCountByTheirBytesAlone) {
  limits_.full_part_bytes = 100;
  const auto of = [&](std::size_t count, std::size_t size) {
    std::vector<bytes> parts(count, with_content(part(1, size), size));
    parts.push_back(part(0, 0));
    return parts;
  };
  EXPECT_TRUE(all_of(of(10, 100), 1000));
  EXPECT_FALSE(all_of(of(11, 100), 1000));
  EXPECT_TRUE(all_of(of(3, 99), 1000));
  EXPECT_FALSE(all_of(of(4, 99), 1000));
}

TEST_F(InboundWatch, TellsWhenTheFirstWholeMessageHasArrived) {
  net::inbound_watch w(limits_);
  const auto takes = [&](const bytes& b) {
    EXPECT_TRUE(w.take(b));
    return w.is_established();
  };
  EXPECT_FALSE(takes(greeting_));
  EXPECT_FALSE(takes(with_content(part(4, 40), 40)));
  EXPECT_FALSE(takes(with_content(part(1, 3), 3)));
  EXPECT_FALSE(takes(with_content(part(0, 3), 2)));
  EXPECT_TRUE(takes(bytes(1)));
  EXPECT_TRUE(takes(part(1, 0)));
  net::inbound_watch other(limits_);
  EXPECT_TRUE(other.take(greeting_) && other.take(part(0, 0)) && other.is_established());
}

TEST_F(InboundWatch, LetsOnlyTheCommandsOfAHandshakeThroughFirstWhereTheyAreRequired) {
  limits_.handshake_commands = 2;
  limits_.most_handshake_bytes = 100;
  const bytes hello = with_content(part(4, 100), 100);
  const bytes message = with_content(part(2, 700), 700);
  for (const std::size_t at_once : {1, 5, 1000}) {
    EXPECT_TRUE(all_of({hello, with_content(part(6, 3), 3), message, part(1, 0), message}, at_once));
    EXPECT_TRUE(all_of({hello, part(4, 0), with_content(part(6, 300), 300)}, at_once))
        << "later commands may be longer";
    EXPECT_FALSE(all_of({message}, at_once));
    EXPECT_FALSE(all_of({part(1, 0)}, at_once));
    EXPECT_FALSE(all_of({hello, part(2, 700)}, at_once)) << "before it has come";
    EXPECT_FALSE(all_of({part(4, 101)}, at_once));
    EXPECT_FALSE(all_of({hello, part(6, 101)}, at_once));
    EXPECT_FALSE(all_of({hello, part(5, 3)}, at_once));
  }
  net::inbound_watch w(limits_);
  EXPECT_TRUE(w.take(greeting_) && w.take(hello) && !w.is_established());
  EXPECT_TRUE(w.take(part(4, 2)) && !w.is_established());
  EXPECT_TRUE(w.take(bytes(1)) && !w.is_established());
  EXPECT_TRUE(w.take(bytes(1)) && w.is_established());
}

TEST_F(InboundWatch, StopsAtTooManyPartsAndTooManyBytes) {
  for (const std::size_t at_once : {1, 5, 1000}) {
    EXPECT_TRUE(all_of(std::vector<bytes>(4, part(1, 0)), at_once));
    EXPECT_FALSE(all_of(std::vector<bytes>(5, part(1, 0)), at_once));
    EXPECT_FALSE(all_of({with_content(part(3, 600), 600), part(3, 401)}, at_once)) << "before they have come";
    EXPECT_FALSE(all_of({part(2, ~std::size_t{0})}, at_once));
    EXPECT_FALSE(all_of({part(6, 301)}, at_once)) << "a command";
    EXPECT_FALSE(all_of({part(5, 0)}, at_once)) << "a command has no second part";
    EXPECT_FALSE(all_of({part(8, 0)}, at_once)) << "no such flag";
  }
}

TEST_F(InboundWatch, TakesNothingButZmtp3) {
  for (const std::size_t at : {0, 9, 10}) {
    auto broken = greeting_;
    broken[at] = std::byte{1};
    net::inbound_watch w(limits_);
    EXPECT_FALSE(w.take(broken)) << at;
  }
}

// ---- pieces of messages to replicas --------------------------------------------------------------------------------

TEST(Bounds, PiecesThatNeverEndAreRefusedAndTheirSumIsLimited) {
  struct nowhere final : net::port {
    std::string bind(const std::string& a) override { return a; }
    int connect(const std::string&) override { return next++; }
    void disconnect(int) override {}
    void send(int, const net::outgoing&) override {}
    void reply(const net::peer&, const net::outgoing& m) override {
      bytes frame(m.head.begin(), m.head.end());
      frame.insert(frame.end(), m.body.begin(), m.body.end());
      net::reply_view view;
      ASSERT_EQ(net::decode(frame, m.tail.size(), view), nullptr);
      last = view.header.result;
    }
    bool receive(net::incoming&, std::chrono::milliseconds) override { return false; }
    int next = 0;
    status last = status::conflict;
  };
  nowhere port;
  membership m;
  m.replicas = 2;
  for (std::uint32_t slot = 0; slot < 2; ++slot) {
    m.servers.push_back(
        {.slot = slot, .incarnation = slot + 1, .shards = {"a" + std::to_string(slot)}, .clock = "k", .control = "c"});
  }
  const auto view = std::make_shared<const replica_view>(m, 0);
  plugin_registry plugins({});
  std::atomic<const ownership*> owned{&view->owned};
  shard of(shard_settings{}, plugins, owned);
  server_budgets budgets(1 << 20, 10'000, 1 << 20, 1);
  replication_chain copies({.incarnation = 1}, budgets, of, port,
                           [](const net::request_view&, shared_buffer, completion) {});
  copies.follow(view);

  net::request_header h;
  h.what = verb::replicate;
  h.client = 2;    // its incarnation
  h.table = 1;     // its slot
  h.function = 1;  // the receiver's
  h.epoch = m.epoch;
  const auto piece = [&](std::uint32_t after, std::size_t size) {
    h.count = after;
    const bytes body(size);
    h.body_bytes = static_cast<std::uint32_t>(size);
    copies.handle({h, body}, {}, completion(copies, peer_of(2), h.what, ++h.sequence, 1, m.epoch));
    return port.last;
  };
  EXPECT_EQ(piece(2, 1000), status::ok);
  EXPECT_EQ(piece(2, 1000), status::bad_request) << "the next one has one less behind it";
  EXPECT_EQ(budgets.pieces.held(), 0U);
  EXPECT_EQ(piece(3, 1000), status::ok);
  EXPECT_EQ(piece(2, 1000), status::ok);
  EXPECT_GE(budgets.pieces.held(), 2000U);
  EXPECT_THROW(piece(1, 9000), error) << "it cannot be a replica of that";
}

}  // namespace
}  // namespace paracel::srv
