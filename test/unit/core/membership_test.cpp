// SPDX-License-Identifier: BSD-3-Clause
#include "core/membership.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

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

/// The JSON of `two_servers`, modified.
std::string changed(const std::function<void(json&)>& change) {
  auto j = json::parse(two_servers().to_json());
  change(j);
  return j.dump();
}

/// The reason for rejecting it, or "accepted".
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
    j["racks"] = 2;
    j["servers"][1]["rack"] = {{"row", {1, 2, 3}}};
  });
  EXPECT_EQ(membership::from_json(text), two_servers());
}

TEST(Membership, CopiesAndStatesTravel) {
  auto m = two_servers();
  m.replicas = 3;
  m.servers[0].state = server_state::joining;
  m.servers[1].state = server_state::down;
  m.elastic = true;
  EXPECT_EQ(membership::from_json(m.to_json()), m);
  const auto j = json::parse(m.to_json());
  EXPECT_EQ(j["replicas"], 3);
  EXPECT_EQ(j["servers"][0]["state"], "joining");
  EXPECT_EQ(j["servers"][1]["state"], "down");
}

TEST(Membership, RefusedFunctionsTravel) {
  auto m = two_servers();
  m.refused = {{0xfeedULL, "it has ended s1"}, {~0ULL, "and this one s0"}};
  EXPECT_EQ(membership::from_json(m.to_json()), m);
}

TEST(Membership, PlacementsTravelAndOthersAreRefused) {
  auto m = two_servers();
  m.placed = {{0, 3}, {16383, 0}};
  m.moving = {{7, 0}};
  EXPECT_EQ(membership::from_json(m.to_json()), m);
  for (const char* field : {"placed", "moving"}) {
    for (const auto& odd :
         {json(1), json{{"a", 1}}, json::array({1}), json::array({json::array({1})}),
          json::array({json::array({1, 2, 3})}), json::array({json::array({16384, 1})}),
          json::array({json::array({-1, 1})}), json::array({json::array({1, 4294967296})}),
          json::array({json::array({1, "x"})}), json::array({json::array({1, 0}), json::array({1, 3})}),
          json::array({json::array({2, 0}), json::array({1, 0})})}) {
      EXPECT_NE(refusal(changed([&](json& j) { j[field] = odd; })).find(field), std::string::npos) << odd;
    }
  }
}

TEST(Membership, EveryStateTravels) {
  using enum server_state;
  for (const auto state : {up, joining, down, entering, leaving, left, gone}) {
    auto m = two_servers();
    m.servers[1].state = state;
    EXPECT_EQ(membership::from_json(m.to_json()), m);
  }
}

TEST(Membership, OneCopyAndUpAreNotWritten) {
  const auto text = two_servers().to_json();
  EXPECT_EQ(text.find("replicas"), std::string::npos);
  EXPECT_EQ(text.find("elastic"), std::string::npos);
  EXPECT_EQ(text.find("state"), std::string::npos);
  EXPECT_EQ(text.find("refused"), std::string::npos);
  EXPECT_EQ(text.find("placed"), std::string::npos);
  EXPECT_EQ(text.find("moving"), std::string::npos);
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
      {"/epoch", -1},
      {"/epoch", 4294967296},
      {"/epoch", "7"},
      {"/epoch", 1.5},
      {"/epoch", nullptr},
      {"/job", 12},
      {"/job", "12"},
      {"/job", "00c0ffee1234567g"},
      {"/workers", 0},
      {"/workers", membership::most_workers + 1},
      {"/servers", json::object()},
      {"/servers", "none"},
      {"/servers/0", 5},
      {"/servers/0/slot", -1},
      {"/servers/0/slot", 4294967296},
      {"/servers/0/slot", true},
      {"/servers/0/weight", 0},
      {"/servers/0/weight", 65},
      {"/servers/0/weight", "1"},
      {"/servers/0/weight", nullptr},
      {"/servers/0/incarnation", 1},
      {"/servers/0/incarnation", ""},
      {"/servers/0/threads", 0},
      {"/servers/0/threads", membership::most_threads + 1},
      {"/servers/0/threads", 3},
      {"/servers/0/host", 5},
      {"/servers/0/host", std::string(1025, 'h')},
      {"/servers/0/pid", -1},
      {"/servers/0/pid", 4294967296},
      {"/servers/0/shards", "ipc"},
      {"/servers/0/shards", json::array()},
      {"/servers/0/shards/1", 5},
      {"/servers/0/clock", 5},
      {"/servers/0/control", json::array()},
      {"/servers/1/slot", 3},
      {"/replicas", 0},
      {"/replicas", membership::most_replicas + 1},
      {"/replicas", "2"},
      {"/servers/0/state", "lost"},
      {"/servers/0/state", 1},
      {"/servers/1/state", nullptr},
      {"/refused", "f"},
      {"/refused", {5}},
      {"/refused", {{{"function", "12"}, {"why", ""}}}},
      {"/refused", {{{"function", "00c0ffee12345678"}}}},
      {"/refused", {{{"function", "00c0ffee12345678"}, {"why", std::string(1025, 'h')}}}},
      {"/refused",
       json(std::vector<json>(membership::most_refused + 1, {{"function", "00c0ffee12345678"}, {"why", ""}}))},
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

// ---- chains -----------------------------------------------------------------------------------------------------

membership servers_in(std::uint32_t replicas, const std::vector<server_state>& states) {
  membership m;
  m.replicas = replicas;
  for (std::uint32_t i = 0; i < states.size(); ++i) {
    server_entry e;
    e.slot = i;
    e.threads = 1 + i % 3;
    e.state = states[i];
    m.servers.push_back(e);
  }
  return m;
}

/// The rule in the header, implemented literally: slots are indices here.
std::vector<std::uint16_t> chain_by_the_rule(const membership& m, const ring& r, std::uint16_t p) {
  std::vector<std::uint16_t> up;
  std::vector<std::uint16_t> near;  // the first of those that are up or joining
  auto order = r.replicas(p, m.servers.size());
  for (const auto& placed : m.placed) {
    const auto at = std::ranges::find(order, placed.slot);
    if (placed.partition == p && at != order.end()) std::rotate(order.begin(), at, at + 1);
  }
  for (const auto slot : order) {
    const auto s = m.servers[slot].state;
    if (s == server_state::down) continue;
    if (near.size() < m.replicas) near.push_back(static_cast<std::uint16_t>(slot));
    if (s == server_state::up && up.size() < m.replicas) up.push_back(static_cast<std::uint16_t>(slot));
  }
  for (const auto s : near)
    if (m.servers[s].state == server_state::joining) up.push_back(s);
  return up;
}

std::vector<std::uint16_t> chain_in(const key_router& router, std::uint32_t p) {
  const auto chain = router.chain(static_cast<std::uint16_t>(p));
  return {chain.begin(), chain.end()};
}

/// Servers that serve, join or leave, with `copies` replicas of everything. Slots of servers that have left do not
/// count.
void check_that_a_move_has_two_rings(std::uint32_t copies, const std::vector<server_state>& during) {
  const auto at_state = [&](auto change) {
    auto m = servers_in(copies, during);
    for (auto& s : m.servers) s.state = change(s.state);
    m.elastic = true;
    return m;
  };
  const auto before = at_state([](server_state s) {
    return s == server_state::entering ? server_state::gone : s == server_state::leaving ? server_state::up : s;
  });
  const auto after = at_state([](server_state s) {
    return s == server_state::leaving ? server_state::left : s == server_state::entering ? server_state::up : s;
  });
  const key_router old_way(before), now(at_state([](server_state s) { return s; })), new_way(after);
  std::size_t moved = 0;
  for (std::uint32_t p = 0; p < partition_count; p += 13) {
    const auto had = chain_in(old_way, p), has = chain_in(now, p), will_have = chain_in(new_way, p);
    ASSERT_EQ(will_have.size(), copies);
    // the previous servers still serve, and the future ones receive everything
    ASSERT_TRUE(has.size() >= had.size() && std::equal(had.begin(), had.end(), has.begin())) << p;
    for (const auto s : will_have) ASSERT_NE(std::ranges::find(has, s), has.end()) << p;
    for (const auto s : has)
      ASSERT_TRUE(std::ranges::find(had, s) != had.end() || std::ranges::find(will_have, s) != will_have.end()) << p;
    moved += had[0] != will_have[0] ? 1 : 0;
  }
  EXPECT_GT(moved, 0U);
  EXPECT_LT(moved, partition_count / 13 * 2 / 3);
}

TEST(KeyRouter, WhileAServerEntersOrLeavesTheOldChainServesAndTheNewOneIsBehindIt) {
  using enum server_state;
  for (std::uint32_t copies = 1; copies <= 3; ++copies) {
    check_that_a_move_has_two_rings(copies, {up, up, up, entering});
    check_that_a_move_has_two_rings(copies, {up, up, leaving, up});
    check_that_a_move_has_two_rings(copies, {up, gone, up, leaving, up, left});
    check_that_a_move_has_two_rings(copies, {up, entering, up, gone, up});
    check_that_a_move_has_two_rings(copies, {up, up, down, up, up, entering});
  }
  check_that_a_move_has_two_rings(1, {up, leaving});
}

TEST(KeyRouter, SomebodyMustServe) {
  using enum server_state;
  EXPECT_THROW(key_router{servers_in(1, {entering})}, error);
  EXPECT_THROW(key_router{servers_in(1, {left, gone})}, error);
  EXPECT_NO_THROW(key_router{servers_in(1, {leaving, down})});
}

TEST(KeyRouter, AChainIsTheRuleOfTheHeaderForEveryNumberOfCopiesAndEveryState) {
  const server_state states[] = {server_state::up, server_state::joining, server_state::down};
  ring r;
  for (std::uint32_t i = 0; i < 3; ++i) r.add(i);
  for (int code = 0; code < 27; ++code) {
    const auto digit = [&](int power) { return states[static_cast<std::size_t>(code / power % 3)]; };
    for (std::uint32_t replicas = 1; replicas <= 4; ++replicas) {
      const auto m = servers_in(replicas, {digit(1), digit(3), digit(9)});
      if (std::ranges::none_of(m.servers, [](const auto& s) { return s.state == server_state::up; })) {
        EXPECT_THROW(key_router{m}, error);
        continue;
      }
      const key_router router(m);
      for (std::uint32_t i = 0; i < partition_count; i += 97) {
        const auto p = static_cast<std::uint16_t>(i);
        const auto chain = router.chain(p);
        ASSERT_EQ(std::vector<std::uint16_t>(chain.begin(), chain.end()), chain_by_the_rule(m, r, p));
        const auto at = router.locate_partition(p);
        ASSERT_EQ(at.server, chain[0]);
        ASSERT_EQ(at.shard, shard_of(p, m.servers[chain[0]].threads));
      }
      EXPECT_EQ(router.clock_server(), router.chain(clock_partition)[0]);
    }
  }
}

TEST(KeyRouter, APlacedPartitionIsAtItsServerAndElseInTheOrderOfTheRing) {
  const server_state states[] = {server_state::up, server_state::up, server_state::joining, server_state::down};
  std::mt19937 random(5);
  for (int turn = 0; turn < 50; ++turn) {
    ring r;
    std::vector<server_state> of(2 + random() % 5);
    for (std::uint32_t i = 0; i < of.size(); ++i) {
      r.add(i);
      of[i] = i == 0 ? server_state::up : states[random() % 4];
    }
    auto m = servers_in(1 + random() % 3, of);
    for (auto& s : m.servers) s.threads = 1;
    for (std::uint32_t p = random() % 300; p < partition_count; p += 1 + random() % 300)
      m.placed.push_back({static_cast<std::uint16_t>(p), static_cast<std::uint32_t>(random() % (of.size() + 1))});
    const key_router router(m);
    const auto check = [&](std::uint16_t p) {
      const auto chain = router.chain(p);
      ASSERT_EQ(std::vector<std::uint16_t>(chain.begin(), chain.end()), chain_by_the_rule(m, r, p)) << turn;
      ASSERT_EQ(router.locate_partition(p).server, chain[0]);
    };
    for (const auto& p : m.placed) check(p.partition);
    for (std::uint32_t p = 0; p < partition_count; p += 97) check(static_cast<std::uint16_t>(p));
  }
}

TEST(KeyRouter, WhatMovesIsServedWhereItWasAndArrivesBehindThat) {
  std::mt19937 random(6);
  for (int turn = 0; turn < 12; ++turn) {
    std::vector<server_state> of(3 + random() % 4, server_state::up);
    const auto copies = 1 + static_cast<std::uint32_t>(random() % 3);
    if (copies > 1 && random() % 2 == 0) of.back() = random() % 2 == 0 ? server_state::down : server_state::joining;
    auto before = servers_in(copies, of);
    before.elastic = true;
    const auto some = [&] {
      std::vector<placement> all;
      for (std::uint32_t p = random() % 200; p < partition_count; p += 1 + random() % 200)
        all.push_back({static_cast<std::uint16_t>(p), static_cast<std::uint32_t>(random() % of.size())});
      return all;
    };
    before.placed = some();
    auto during = before;
    during.moving = some();
    auto after = before;
    for (auto& s : after.servers)  // at the same time
      if (s.state == server_state::joining) s.state = server_state::up;
    std::map<std::uint16_t, std::uint32_t> places;
    for (const auto* list : {&during.placed, &during.moving})
      for (const auto& p : *list) places[p.partition] = p.slot;
    after.placed.clear();
    for (const auto& [partition, slot] : places) after.placed.push_back({partition, slot});
    const key_router old_way(before), now(during), new_way(after);
    for (std::uint32_t p = 0; p < partition_count; ++p) {
      const auto had = chain_in(old_way, p), has = chain_in(now, p), will_have = chain_in(new_way, p);
      ASSERT_TRUE(has.size() >= had.size() && std::equal(had.begin(), had.end(), has.begin())) << p;
      for (const auto s : will_have) ASSERT_NE(std::ranges::find(has, s), has.end()) << p;
      for (const auto s : has)
        ASSERT_TRUE(std::ranges::find(had, s) != had.end() || std::ranges::find(will_have, s) != will_have.end()) << p;
    }
    for (const auto& m : during.moving) {
      if (of[m.slot] == server_state::down) continue;
      ASSERT_EQ(new_way.locate_partition(m.partition).server, m.slot);
    }
  }
}

TEST(KeyRouter, WhenAHeadIsLostTheNextOfItsChainIsHead) {
  const auto all = servers_in(3, std::vector<server_state>(6, server_state::up));
  const key_router before(all);
  for (std::uint16_t dead = 0; dead < 6; ++dead) {
    auto m = all;
    m.servers[dead].state = server_state::down;
    const key_router after(m);
    for (std::uint32_t i = 0; i < partition_count; ++i) {
      const auto p = static_cast<std::uint16_t>(i);
      std::vector<std::uint16_t> left(before.chain(p).begin(), before.chain(p).end());
      std::erase(left, dead);
      // existing replicas keep their places; a new one is last
      const auto now = after.chain(p);
      ASSERT_EQ(now.size(), 3U);
      ASSERT_TRUE(std::ranges::equal(left, now.first(left.size())));
    }
  }
}

TEST(KeyRouter, ALostServersShareFallsOnAllTheOthers) {
  auto m = servers_in(2, std::vector<server_state>(5, server_state::up));
  m.servers[2].state = server_state::down;
  const key_router router(m);
  std::vector<int> load(5);
  for (std::uint32_t p = 0; p < partition_count; ++p)
    ++load[router.locate_partition(static_cast<std::uint16_t>(p)).server];
  EXPECT_EQ(load[2], 0);
  for (const auto i : {0U, 1U, 3U, 4U}) EXPECT_NEAR(load[i], partition_count / 4.0, 0.1 * partition_count / 4.0) << i;
}

TEST(KeyRouter, AJoiningServerHeadsNothingAndMovesNoHead) {
  auto m = servers_in(2, std::vector<server_state>(4, server_state::up));
  m.servers[1].state = server_state::down;
  const key_router lost(m);
  m.servers[1].state = server_state::joining;
  const key_router joining(m);
  m.servers[1].state = server_state::up;
  const key_router back(m);
  for (std::uint32_t i = 0; i < partition_count; ++i) {
    const auto p = static_cast<std::uint16_t>(i);
    const auto without = lost.chain(p);
    const auto with = joining.chain(p);
    ASSERT_TRUE(std::ranges::equal(without, with.first(without.size())));
    const auto later = back.chain(p);
    ASSERT_EQ(with.size(), std::ranges::count(later, 1) == 0 ? 2U : 3U);
    if (with.size() == 3) {
      ASSERT_EQ(with[2], 1);
    }
  }
}

}  // namespace
}  // namespace paracel
