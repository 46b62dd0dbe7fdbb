// SPDX-License-Identifier: BSD-3-Clause
//
// What a server says of the load of its partitions.
#include <cmath>
#include <map>
#include <random>

#include "core/ring.hpp"
#include "net/row_codec.hpp"
#include "server/request/server_load.hpp"
#include "test/support/shard_test.hpp"

namespace {

using namespace paracel;
using namespace paracel::test;
using net::verb;
using nlohmann::json;
using srv::server_load;
using std::chrono::seconds;

class ServerLoad : public shard_test {
 protected:
  ServerLoad() {
    reset({.threads = 1, .workers = 0});
    follow(1);
  }
  void follow(std::uint32_t epoch) {
    membership m;
    m.epoch = epoch;
    server_entry e;
    e.threads = server_->threads();
    e.shards.assign(e.threads, "inproc://x");
    m.servers.push_back(e);
    server_->set_membership(m);
  }
  server_load look() { return server_->load(now_); }
  static std::uint16_t partition(const std::string& key) { return partition_of(hash_key(key)); }
  /// Keys a second of the partition of this key.
  static double of(const server_load& load, const std::string& key) {
    for (const auto& p : load.partitions)
      if (p.number == partition(key)) return p.keys;
    return 0;
  }

  net::clock_source::time_point now_{seconds(1000)};
};

TEST_F(ServerLoad, EveryKindOfRequestCountsItsKeys) {
  const std::vector<std::string> keys{"a", "b", "c", "d"};
  for (const auto& key : keys) push(key, 1);
  look();
  const double one = 1;
  std::vector<std::pair<std::string, value_view>> pulled, changed;
  for (int i = 0; i < 100; ++i) {
    pulled.emplace_back(keys[static_cast<std::size_t>(i % 2)], value_view{});
    changed.emplace_back(keys[static_cast<std::size_t>(i % 4)], view(one));
  }
  std::vector<std::byte> set;
  for (const auto& key : keys) net::append_item(set, key, {});
  const auto digest = digest_of(set);
  const std::string name(reinterpret_cast<const char*>(&digest), sizeof digest);
  net::request_header h;
  h.what = verb::set_prepare;
  h.count = 4;
  h.key_bytes = sizeof digest;
  auto body = std::vector<std::byte>(net::bytes_of(name).begin(), net::bytes_of(name).end());
  body.insert(body.end(), set.begin(), set.end());
  ASSERT_EQ(send(h, body, {}).header.result, net::status::ok);
  h.what = verb::set_pull;
  body.resize(sizeof digest);
  constexpr int rounds = 2000;
  for (int i = 0; i < rounds; ++i) {
    for (int k = 0; k < 20; ++k) (void)pull("a");
    (void)call(verb::update, "d", view(one));
    // The path for values that are alike, and the one for any.
    ASSERT_EQ(multi(verb::pull_multi, pulled, {.flags = net::flag_uniform_reply}).header.flags, net::reply_uniform);
    ASSERT_EQ(multi(verb::update_multi, changed).header.result, net::status::ok);
    ASSERT_EQ(send(h, body, {}).header.result, net::status::ok);
  }
  now_ += seconds(2);
  const auto load = look();
  EXPECT_EQ(load.seconds, 2);
  EXPECT_EQ(load.epoch, 1U);
  const std::map<std::string, int> truth{{"a", 20 + 50 + 25 + 1}, {"b", 50 + 25 + 1}, {"c", 25 + 1}, {"d", 1 + 25 + 1}};
  for (const auto& [key, in_a_round] : truth) {
    const double n = in_a_round * rounds;
    EXPECT_NEAR(of(load, key) * load.seconds, n, 5 * std::sqrt(n * srv::partition_load::one_of)) << key;
  }
  EXPECT_NEAR(load.keys(), (21 + 100 + 100 + 4) * rounds / load.seconds, 0.03 * 225 * rounds / load.seconds);
  EXPECT_EQ(load.partitions.size(), 4U);
  EXPECT_TRUE(std::ranges::is_sorted(load.partitions, std::greater<>(), &server_load::partition::keys));
  // The same since the server began, for people.
  const auto all = stats()["partitions"];
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0]["partition"], partition("a"));
  EXPECT_NEAR(all[0]["keys"].get<double>(), 96.0 * rounds, 0.05 * 96 * rounds);
  EXPECT_EQ(server_->usage()["partitions"][0][0], partition("a"));
}

TEST_F(ServerLoad, RowsCountAndASizeIsThatOfKeysAndRows) {
  net::table_definition d;
  d.element = value_tag::f32;
  d.width = 250;
  const auto definition = net::encode(d);
  ASSERT_EQ(call(verb::table_open, "t", {value_tag::none, definition}).header.result, net::status::ok);
  look();
  std::vector<std::uint64_t> ids{7, 7, 7, 99};
  net::request_header h;
  h.what = verb::rows_pull;
  h.tag = value_tag::f32;
  h.count = 4;
  const auto bytes = std::as_bytes(std::span(ids));
  for (int i = 0; i < 4000; ++i)
    ASSERT_EQ(send(h, {bytes.begin(), bytes.end()}, {.table = net::table_id("t")}).header.result, net::status::ok);
  now_ += seconds(1);
  auto load = look();
  ASSERT_EQ(load.partitions.size(), 2U);
  EXPECT_EQ(load.partitions[0].number, partition_of(net::hash_row(7)));
  EXPECT_NEAR(load.partitions[0].keys, 12000, 5 * std::sqrt(12000.0 * 32));
  EXPECT_NEAR(static_cast<double>(load.partitions[0].bytes), 1000, 50) << "one row of 250 floats";
  const std::vector<double> large(5000, 1);
  ASSERT_EQ(call(verb::push, "large", view(large)).header.result, net::status::ok);
  for (int i = 0; i < 2000; ++i) (void)call(verb::pull, "large");
  load = look();
  const auto found = std::ranges::find(load.partitions, partition("large"), &server_load::partition::number);
  ASSERT_NE(found, load.partitions.end());
  EXPECT_NEAR(static_cast<double>(found->bytes), 40000, 2000);
}

TEST_F(ServerLoad, ItIsThatOfTheLastSecondsAndBeginsAgainInEachEpoch) {
  push("a", 1);
  push("b", 1);
  look();
  const auto ask = [&](const char* key, int n) {
    for (int i = 0; i < n; ++i) (void)pull(key);
  };
  for (int second = 0; second < 20; ++second) {
    ask(second < 10 ? "a" : "b", 3200);
    now_ += seconds(1);
    const auto load = look();
    EXPECT_LE(load.seconds, 8);
    EXPECT_NEAR(load.keys(), 3200, 1000);
  }
  const auto later = look();
  EXPECT_GE(later.seconds, 4);
  EXPECT_EQ(of(later, "a"), 0) << "that was long ago";
  EXPECT_NEAR(of(later, "b"), 3200, 600);
  follow(2);
  const auto fresh = look();
  EXPECT_EQ(fresh.epoch, 2U);
  EXPECT_EQ(fresh.seconds, 0);
  EXPECT_EQ(fresh.keys(), 0);
}

TEST_F(ServerLoad, ThreadsHaveTheirOwn) {
  reset({.threads = 3, .workers = 0});
  follow(1);
  look();
  for (int i = 0; i < 3000; ++i) {
    const auto key = "k" + std::to_string(i % 50);
    const unsigned shard = partition(key) % 3;
    (void)call(verb::pull, key, {}, {.shard = shard});
    (void)call(verb::pull, key, {}, {.shard = (shard + 1) % 3});  // refused, and not counted
  }
  now_ += seconds(1);
  const auto load = look();
  ASSERT_EQ(load.threads.size(), 3U);
  std::array<double, 3> sums{};
  for (const auto& p : load.partitions) sums[p.number % 3] += p.keys;
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(sums[i], load.threads[i], 1e-6);
  EXPECT_NEAR(load.keys(), 3000, 1600);
}

TEST_F(ServerLoad, RoomIsWhatTheFullestThreadHasLeft) {
  EXPECT_FALSE(look().room) << "no limit";
  reset({.threads = 2, .workers = 0, .max_memory_bytes = 2'000'000});
  follow(1);
  const auto empty = look().room;
  ASSERT_TRUE(empty);
  EXPECT_LE(*empty, 1'000'000U);
  EXPECT_GT(*empty, 900'000U);
  std::string key = "large";
  const std::vector<double> large(50'000, 1);
  ASSERT_EQ(call(verb::push, key, view(large), {.shard = partition(key) % 2U}).header.result, net::status::ok);
  EXPECT_NEAR(static_cast<double>(*look().room), 600'000, 50'000);
}

TEST(ServerLoadText, GoesThroughJsonAndAnythingElseIsNone) {
  server_load load{.epoch = 7, .seconds = 4.5, .threads = {10, 0.5}, .partitions = {{16383, 9.5, 1U << 30}, {0, 1, 0}}};
  const auto back = server_load::from_json(load.to_json());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->epoch, 7U);
  EXPECT_EQ(back->seconds, 4.5);
  EXPECT_EQ(back->threads, load.threads);
  EXPECT_EQ(back->partitions, load.partitions);
  EXPECT_TRUE(server_load::from_json(server_load().to_json()));
  EXPECT_FALSE(back->room);
  load.room = 0;
  EXPECT_EQ(server_load::from_json(load.to_json())->room, load.room);
  for (const json& bad : {json(), json(-1), json(0.5), json("x"), json::array()}) {
    auto odd = load.to_json();
    odd["room"] = bad;
    EXPECT_FALSE(server_load::from_json(odd)) << odd;
  }
  const auto good = load.to_json();
  for (const auto* key : {"epoch", "seconds", "threads", "partitions"}) {
    for (const json& bad : {json(), json(-1), json("x"), json{{"a", 1}}, json::array({"x"}), json::array({-1}),
                            json::array({json::array({16384, 1, 1})}), json::array({json::array({1, -1, 1})}),
                            json::array({json::array({1, 1})}), json::array({json::array({1, 1, -1})}),
                            json(std::vector<int>(2000, 1)), json(1e300)}) {
      auto odd = good;
      odd[key] = bad;
      EXPECT_FALSE(server_load::from_json(odd)) << odd;
      odd.erase(key);
      EXPECT_FALSE(server_load::from_json(odd));
    }
  }
  for (const json& bad : {json(), json(1), json::array(), json::object()}) EXPECT_FALSE(server_load::from_json(bad));
}

}  // namespace
