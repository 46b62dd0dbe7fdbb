// SPDX-License-Identifier: BSD-3-Clause
#include "core/membership.hpp"

#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <paracel/error.hpp>

#include "core/ring.hpp"

namespace paracel {
namespace {

using nlohmann::json;

membership two_servers() {
  membership m;
  m.epoch = 7;
  m.job = 0x00c0ffee12345678U;
  m.workers = 4;
  server_entry a;
  a.slot = 3;
  a.weight = 1.5;
  a.incarnation = 0xfedcba9876543210U;
  a.threads = 2;
  a.host = "node1";
  a.pid = 4711;
  a.shards = {"ipc:///tmp/prc-a/0", "ipc:///tmp/prc-a/1"};
  a.clock = "ipc:///tmp/prc-a/c";
  a.control = "ipc:///tmp/prc-a/x";
  server_entry b = a;
  b.slot = 0;
  b.weight = 1;
  b.incarnation = 1;
  b.threads = 1;
  b.shards = {"tcp://10.0.0.2:4000"};
  m.servers = {a, b};
  return m;
}

/// The JSON of `two_servers`, changed.
std::string changed(const std::function<void(json&)>& change) {
  auto j = json::parse(two_servers().to_json());
  change(j);
  return j.dump();
}

/// The text of the refusal, or "accepted".
std::string refusal(const std::string& text) {
  try {
    (void)membership::from_json(text);
  } catch (const protocol_error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Membership, SurvivesTheWayThroughJson) {
  const auto m = two_servers();
  EXPECT_EQ(membership::from_json(m.to_json()), m);
  EXPECT_EQ(membership::from_json(membership{}.to_json()), membership{});
}

TEST(Membership, WritesIdsAsSixteenHexDigits) {
  const auto j = json::parse(two_servers().to_json());
  EXPECT_EQ(j["job"], "00c0ffee12345678");
  EXPECT_EQ(j["servers"][0]["incarnation"], "fedcba9876543210");
  EXPECT_EQ(j["servers"][1]["incarnation"], "0000000000000001");
}

TEST(Membership, IgnoresFieldsOfLaterVersions) {
  const auto text = changed([](json& j) {
    j["replicas"] = 2;
    j["servers"][1]["rack"] = {{"row", {1, 2, 3}}};
  });
  EXPECT_EQ(membership::from_json(text), two_servers());
}

TEST(Membership, EveryFieldIsRequiredAndNamedWhenMissing) {
  for (const char* name : {"epoch", "job", "workers", "servers"}) {
    EXPECT_NE(refusal(changed([&](json& j) { j.erase(name); })).find(name), std::string::npos) << name;
  }
  for (const char* name : {"slot", "weight", "incarnation", "threads", "host", "pid", "shards", "clock", "control"}) {
    const auto said = refusal(changed([&](json& j) { j["servers"][1].erase(name); }));
    EXPECT_NE(said.find(std::string("servers[1].") + name), std::string::npos) << said;
  }
}

TEST(Membership, WrongTypesAndRangesAreRefusedWithTheNameOfTheField) {
  const struct {
    const char* path;
    json value;
  } cases[] = {
      {"/epoch", -1}, {"/epoch", 4294967296}, {"/epoch", "7"}, {"/epoch", 1.5}, {"/epoch", nullptr},
      {"/job", 12}, {"/job", "12"}, {"/job", "00c0ffee1234567g"},
      {"/workers", 0}, {"/workers", membership::most_workers + 1},
      {"/servers", json::object()}, {"/servers", "none"}, {"/servers/0", 5},
      {"/servers/0/slot", -1}, {"/servers/0/slot", 4294967296}, {"/servers/0/slot", true},
      {"/servers/0/weight", 0}, {"/servers/0/weight", 65}, {"/servers/0/weight", "1"}, {"/servers/0/weight", nullptr},
      {"/servers/0/incarnation", 1}, {"/servers/0/incarnation", ""},
      {"/servers/0/threads", 0}, {"/servers/0/threads", membership::most_threads + 1}, {"/servers/0/threads", 3},
      {"/servers/0/host", 5}, {"/servers/0/host", std::string(1025, 'h')},
      {"/servers/0/pid", -1}, {"/servers/0/pid", 4294967296},
      {"/servers/0/shards", "ipc"}, {"/servers/0/shards", json::array()}, {"/servers/0/shards/1", 5},
      {"/servers/0/clock", 5}, {"/servers/0/control", json::array()}, {"/servers/1/slot", 3},
  };
  for (const auto& c : cases) {
    const auto text = changed([&](json& j) { j[json::json_pointer(c.path)] = c.value; });
    EXPECT_EQ(refusal(text).rfind("membership: ", 0), 0U) << c.path << " = " << c.value << ": " << refusal(text);
  }
  EXPECT_EQ(refusal(changed([](json& j) { j["servers"][1]["slot"] = 3; })), "membership: servers[1].slot occurs twice");
  EXPECT_EQ(refusal(changed([](json& j) { j["workers"] = 0; })),
            "membership: workers is not an integer from 1 to 1048576");
}

TEST(Membership, TextThatIsNoObjectIsRefused) {
  for (const char* text : {"", "{", "nonsense", "[]", "5", "null", "\"x\"", "{\"epoch\":1}", "{\"epoch\":1}}"}) {
    EXPECT_NE(refusal(text), "accepted") << text;
  }
  EXPECT_NE(refusal(two_servers().to_json() + "x"), "accepted");
}

TEST(Membership, EveryTruncationIsRefused) {
  const auto whole = two_servers().to_json();
  for (std::size_t n = 0; n < whole.size(); ++n) EXPECT_NE(refusal(whole.substr(0, n)), "accepted") << n;
}

TEST(Membership, DeepNestingAndGreatLengthAreRefusedBeforeTheyCost) {
  const std::size_t depth = 1000000;
  EXPECT_NE(refusal(std::string(depth, '[') + std::string(depth, ']')).find("nested deeper"), std::string::npos);
  const auto deep = changed([](json& j) {
    json inner = 1;
    for (int i = 0; i < 20; ++i) inner = json::array({inner});
    j["later"] = inner;
  });
  EXPECT_NE(refusal(deep).find("nested deeper"), std::string::npos);
  EXPECT_NE(refusal(std::string(membership::most_json_bytes + 1, ' ')).find("longer than"), std::string::npos);
}

TEST(Membership, MoreServersThanTheRingTakesAreRefused) {
  const auto text = changed([](json& j) {
    for (std::size_t i = 2; i <= ring::most_members; ++i) {
      j["servers"].push_back(j["servers"][1]);
      j["servers"].back()["slot"] = 100 + i;
    }
  });
  EXPECT_NE(refusal(text).find("servers is not a list of at most"), std::string::npos);
}

TEST(Membership, AHostNameThatIsNotUtf8DoesNotStopTheScheduler) {
  auto m = two_servers();
  m.servers[0].host = "n\xffode";
  const auto back = membership::from_json(m.to_json());
  EXPECT_EQ(back.servers[0].host, "n\xef\xbf\xbdode");
}

TEST(KeyRouter, FollowsTheRingAndTheThreads) {
  const auto m = two_servers();
  const key_router router(m);
  ring r;
  r.add(3, 1.5);
  r.add(0, 1);
  for (std::uint32_t i = 0; i < partition_count; ++i) {
    const auto p = static_cast<std::uint16_t>(i);
    const auto where = router.locate_partition(p);
    ASSERT_EQ(where.partition, p);
    ASSERT_EQ(m.servers[where.server].slot, r.owner(p));
    ASSERT_EQ(where.shard, p % m.servers[where.server].threads);
  }
  EXPECT_EQ(m.servers[router.clock_server()].slot, r.owner(clock_partition));
  EXPECT_EQ(router.locate("theta"), router.locate_partition(1685));
}

TEST(KeyRouter, DoesNotDependOnTheOrderOfTheServers) {
  const auto m = two_servers();
  auto turned = m;
  std::swap(turned.servers[0], turned.servers[1]);
  const key_router one(m);
  const key_router other(turned);
  for (int i = 0; i < 1000; ++i) {
    const auto key = "key_" + std::to_string(i);
    EXPECT_EQ(m.servers[one.locate(key).server].slot, turned.servers[other.locate(key).server].slot);
    EXPECT_EQ(one.locate(key).shard, other.locate(key).shard);
  }
}

TEST(KeyRouter, GivesEachThreadOfAServerAboutTheSameShare) {
  membership m;
  for (std::uint32_t s = 0; s < 3; ++s) {
    server_entry e;
    e.slot = s;
    e.threads = 4;
    m.servers.push_back(e);
  }
  const key_router router(m);
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> load;
  for (std::uint32_t p = 0; p < partition_count; ++p) {
    const auto where = router.locate_partition(static_cast<std::uint16_t>(p));
    ++load[{where.server, where.shard}];
  }
  ASSERT_EQ(load.size(), 12U);
  for (const auto& [who, n] : load) EXPECT_NEAR(n, partition_count / 12.0, 0.1 * partition_count / 12.0);
}

TEST(KeyRouter, AReplacementInTheSameSlotMovesNothing) {
  const auto m = two_servers();
  auto replaced = m;
  replaced.epoch = 8;
  replaced.servers[0].incarnation = 99;
  replaced.servers[0].host = "elsewhere";
  replaced.servers[0].shards = {"tcp://1.2.3.4:1", "tcp://1.2.3.4:2"};
  const key_router before(m);
  const key_router after(replaced);
  for (std::uint32_t p = 0; p < partition_count; ++p) {
    const auto partition = static_cast<std::uint16_t>(p);
    ASSERT_EQ(before.locate_partition(partition), after.locate_partition(partition));
  }
}

TEST(KeyRouter, WithoutAServerOrWithATwiceUsedSlotThereIsNone) {
  EXPECT_THROW(key_router{membership{}}, error);
  auto m = two_servers();
  m.servers[1].slot = m.servers[0].slot;
  EXPECT_THROW(key_router{m}, error);
  m = two_servers();
  m.servers[1].threads = 0;
  EXPECT_THROW(key_router{m}, error);
}

}  // namespace
}  // namespace paracel
