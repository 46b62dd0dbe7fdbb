// SPDX-License-Identifier: BSD-3-Clause
//
// Servers with replicated partitions: what was acknowledged still exists after the loss of a server, exactly once, for
// every verb.
#include "server/replication/replication_chain.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <paracel/codec.hpp>

#include "net/row_codec.hpp"
#include "test/support/cluster.hpp"
#include "test/support/paths.hpp"

namespace paracel {
namespace {

using namespace std::chrono_literals;
using net::status;
using net::verb;
using test::cluster;
using bytes = std::vector<std::byte>;

constexpr kvclt_options patient{.timeout = 0ms};

std::vector<std::string> names(const std::string& prefix, int n) {
  std::vector<std::string> all;
  for (int i = 0; i < n; ++i) all.push_back(prefix + std::to_string(i));
  return all;
}

/// A client that inspects replies.
class asker {
 public:
  explicit asker(cluster& of) : client_(of.client(patient)) {}
  struct answer {
    status result = status::internal;
    std::uint64_t version = 0;
    value_tag tag = value_tag::none;
    std::uint32_t count = 0;
    bytes body;
    friend bool operator==(const answer&, const answer&) = default;
  };
  answer ask(const kvclt::call& c, const std::string& key, const value_view& value = {}) {
    answer a;
    client_->wait(client_->request(c, key, value, [&](const kv_result& r) { a = of(r); }));
    return a;
  }
  answer ok(const kvclt::call& c, const std::string& key, const value_view& value = {}) {
    auto a = ask(c, key, value);
    EXPECT_EQ(a.result, status::ok) << net::name_of(c.what) << " " << key << ": " << net::text_of(a.body);
    return a;
  }
  answer numbers(const kvclt::call& c, const std::string& key, const std::vector<double>& value) {
    return ok(c, key, {value_tag::f64_array, std::as_bytes(std::span(value))});
  }
  std::uint64_t function(std::string_view plugin, std::string_view symbol) {
    std::uint64_t id = 0;
    client_->broadcast({.what = verb::register_update}, plugin, net::bytes_of(symbol), [&](const kv_result& r) {
      ASSERT_TRUE(r.ok()) << r.text();
      std::memcpy(&id, r.body.data(), sizeof id);
    });
    return id;
  }
  void open(std::string_view table, std::uint32_t width, std::string_view plugin = {}, std::string_view symbol = {}) {
    net::table_definition d;
    d.element = value_tag::f32;
    d.width = width;
    d.init = row_init::uniform(-1, 1, 3);
    d.plugin = plugin;
    d.symbol = symbol;
    const auto payload = net::encode(d);
    client_->broadcast({.what = verb::table_open}, table, payload,
                       [](const kv_result& r) { ASSERT_TRUE(r.ok()) << r.text(); });
  }
  /// One request for each row.
  answer row(verb what, std::string_view table, std::uint64_t id, const std::vector<float>& values,
             const kvclt::call& with = {}) {
    bytes payload;
    const auto add = [&](std::span<const std::byte> b) { payload.insert(payload.end(), b.begin(), b.end()); };
    add(std::as_bytes(std::span(&id, 1)));
    add(std::as_bytes(std::span(values)));
    auto c = with;
    c.what = what;
    c.table = net::table_id(table);
    answer a;
    client_->wait(client_->shard_request(c, client_->channel_of(partition_of(net::hash_row(id))), 1, value_tag::f32,
                                         payload, [&](const kv_result& r) { a = of(r); }));
    EXPECT_EQ(a.result, status::ok) << net::text_of(a.body);
    return a;
  }
  server_group& client() { return *client_; }

  static answer of(const kv_result& r) {
    const auto v = r.value().bytes;
    return {r.header.result, r.header.value_version, r.header.tag, r.header.count, {v.begin(), v.end()}};
  }

 private:
  std::unique_ptr<server_group> client_;
};

void run(const test::cluster_options& o, const std::function<void(cluster&)>& work) {
  cluster c(o);
  c.run([&](const Comm&) { work(c); });
}

/// Waits until the servers have completed the replicas of an epoch.
bool synced(cluster& c, std::initializer_list<std::size_t> servers, std::uint32_t epoch) {
  const auto end = std::chrono::steady_clock::now() + 10s;
  for (const auto i : servers) {
    while (c.node(i).synced() < epoch) {
      if (std::chrono::steady_clock::now() > end) {
        ADD_FAILURE() << "s" << i << " has synced " << c.node(i).synced() << " and not " << epoch << ", knows "
                      << c.node(i).object().epoch() << ": " << c.node(i).failure();
        return false;
      }
      std::this_thread::sleep_for(1ms);
    }
  }
  return true;
}

struct copies {
  std::uint32_t replicas;
  std::uint32_t threads;
};
class Chain : public testing::TestWithParam<copies> {
 protected:
  [[nodiscard]] test::cluster_options options(std::size_t servers) const {
    return {.workers = 1,
            .servers = servers,
            .threads = GetParam().threads,
            .replicas = GetParam().replicas,
            .plugin_folders = {test::plugin_folder()}};
  }
};

TEST_P(Chain, CountersOfEightClientsLoseAndDoubleNothingWhenAServerGoes) {
  run(options(4), [&](cluster& c) {
    constexpr int clients = 8;
    constexpr int rounds = 400;
    const auto keys = names("counter", 16);
    std::atomic<int> sent{0};
    std::vector<std::vector<std::int64_t>> seen(clients * keys.size());
    std::vector<std::thread> threads;
    for (int t = 0; t < clients; ++t) {
      threads.emplace_back([&, t] {
        const auto client = c.client(patient);
        const encoded<std::int64_t> one(1);
        for (int i = 0; i < rounds; ++i) {
          const auto k = static_cast<std::size_t>(i) % keys.size();
          client->request({.what = verb::bupdate}, keys[k], one.view(), [&, k](const kv_result& r) {
            ASSERT_TRUE(r.ok()) << r.text();
            seen[static_cast<std::size_t>(t) * keys.size() + k].push_back(decode<std::int64_t>(r.value()));
          });
          ++sent;
          if (i % 16 == 15) client->wait_all();
        }
        client->wait_all();
      });
    }
    while (sent < clients * rounds / 4) std::this_thread::yield();
    EXPECT_NE(c.lose(1), 0U);
    for (auto& t : threads) t.join();

    asker a(c);
    for (std::size_t k = 0; k < keys.size(); ++k) {
      constexpr std::int64_t wanted = clients * rounds / 16;
      std::multiset<std::int64_t> all;
      for (int t = 0; t < clients; ++t) {
        const auto& mine = seen[static_cast<std::size_t>(t) * keys.size() + k];
        EXPECT_TRUE(std::ranges::is_sorted(mine));
        all.insert(mine.begin(), mine.end());
      }
      std::multiset<std::int64_t> each;
      for (std::int64_t i = 1; i <= wanted; ++i) each.insert(i);
      EXPECT_EQ(all, each) << "every update was answered with a number of its own";
      const auto now = a.ok({.what = verb::pull}, keys[k]);
      EXPECT_EQ(decode<std::int64_t>({now.tag, now.body}), wanted);
    }
  });
}

TEST_P(Chain, WhatAFenceHasDroppedDoesNotComeBackWithTheNextHead) {
  run(options(4), [&](cluster& c) {
    asker a(c);
    const auto keys = names("k", 60);
    a.open("t", 2);
    const auto floats = [](const bytes& b) {
      std::vector<float> v(b.size() / sizeof(float));
      if (!v.empty()) std::memcpy(v.data(), b.data(), b.size());
      return v;
    };
    std::map<std::uint64_t, std::vector<float>> rows;
    for (std::uint64_t id = 0; id < keys.size(); ++id) {
      a.numbers({.what = verb::push}, keys[id], {1});
      rows[id] = floats(a.row(verb::rows_pull, "t", id, {}).body);
      for (const std::uint32_t clock : {1U, 0U}) {
        const auto amount = clock == 0 ? 10.0F : 100.0F;
        a.numbers({.what = verb::update, .clock = clock, .flags = net::flag_staged}, keys[id], {amount});
        a.row(verb::rows_update, "t", id, {amount, amount}, {.clock = clock, .flags = net::flag_staged});
      }
    }
    std::uint32_t dropped = 0;
    a.client().broadcast({.what = verb::fence, .clock = 1}, {}, {}, [&](const kv_result& r) {
      ASSERT_TRUE(r.ok()) << r.text();
      dropped += r.header.count;
    });
    EXPECT_EQ(dropped, 2 * keys.size());
    EXPECT_NE(c.lose(1), 0U);
    for (std::uint64_t id = 0; id < keys.size(); ++id) {
      const auto now = a.ok({.what = verb::pull, .clock = 2, .flags = net::flag_bsp_read}, keys[id]);
      EXPECT_EQ(decode<std::vector<double>>({now.tag, now.body}), (std::vector<double>{11}));
      const auto row = floats(a.row(verb::rows_pull, "t", id, {}, {.clock = 2, .flags = net::flag_bsp_read}).body);
      ASSERT_EQ(row.size(), 2U);
      EXPECT_EQ(row[0], rows[id][0] + 10);
    }
  });
}

TEST_P(Chain, WhatEveryVerbHasChangedIsThereWithTheNextHead) {
  run(options(4), [&](cluster& c) {
    asker a(c);
    const auto adam = a.function("libparacel_default.so", "paracel_adam");
    const auto mean = a.function("libgood_updates.so", "running_mean");
    const auto keys = names("k", 120);
    for (const auto& k : keys) {
      a.numbers({.what = verb::push}, k, {1, 2, 3});
      a.numbers({.what = verb::update}, k, {1, 1, 1});
      a.numbers({.what = verb::bupdate}, k, {1, 0, 1});
      a.numbers({.what = verb::update, .function = adam}, k + "opt", {1, 2});
      a.numbers({.what = verb::update, .function = adam}, k + "opt", {3, 2});
      for (const double x : {3.0, 4.0}) {
        const encoded<double> one(x);
        a.ok({.what = verb::update, .function = mean}, k + "mean", one.view());
      }
      a.numbers({.what = verb::push}, k + "gone", {1});
      a.ok({.what = verb::remove}, k + "gone");
      a.numbers({.what = verb::update, .clock = 2, .flags = net::flag_staged}, k + "staged", {1, 5});
      a.numbers({.what = verb::update, .clock = 1, .flags = net::flag_staged}, k + "staged", {1, 6});
      a.ok({.what = verb::pull, .clock = 2, .flags = net::flag_bsp_read}, k + "staged");
    }
    a.numbers({.what = verb::push}, "large", std::vector<double>(30'000, 0.5));
    a.numbers({.what = verb::update}, "large", std::vector<double>(30'000, 0.25));
    const auto many = names("m", 500);
    const encoded<double> half(0.5);
    const std::vector<value_view> halves(many.size(), half.view());
    for (int i = 0; i < 3; ++i) {
      a.client().many().multi({.what = verb::update_multi}, many, halves,
                              [](std::size_t, const net::reply_item& item) { ASSERT_EQ(item.result, status::ok); });
    }
    const auto set = a.client().many().split(many);
    const std::vector<double> ones(many.size(), 1);
    for (int i = 0; i < 3; ++i) {
      a.client().wait(a.client().many().set_async(
          {.what = verb::set_update}, set, {value_tag::f64, 8, std::as_bytes(std::span(ones)), {}},
          [](std::span<const std::uint32_t>, const kv_result& r) { ASSERT_TRUE(r.ok()); }));
    }
    a.open("added", 2);
    a.open("stepped", 2, "libparacel_default.so", "paracel_adam");
    for (std::uint64_t id = 0; id < 100; ++id) {
      a.row(verb::rows_update, "added", id, {1, 2});
      a.row(verb::rows_update, "stepped", id, {1, 2});
      a.row(verb::rows_push, "added", id + 1000, {7, 8});
      a.row(verb::rows_pull, "added", id + 2000, {});
      if (id % 3 == 0) a.row(verb::rows_remove, "added", id, {});
      a.row(verb::rows_update, "added", id + 3000, {1, 1}, {.clock = 1, .flags = net::flag_staged});
    }

    const auto everything = [&] {
      std::map<std::string, asker::answer> all;
      for (const auto& k : keys) {
        for (const auto* suffix : {"", "opt", "gone", "staged", "mean"}) {
          const auto name = k + suffix;
          all[name] = a.ask({.what = verb::pull}, name);
        }
      }
      all["large"] = a.ask({.what = verb::pull}, "large");
      for (const auto& m : many) all[m] = a.ask({.what = verb::pull}, m);
      return all;
    };
    const auto before = everything();
    EXPECT_EQ(before.at("k5gone").result, status::not_found);
    EXPECT_EQ(before.at("m7").result, status::ok);
    for (std::uint32_t gone = 1; gone < GetParam().replicas; ++gone) {
      const auto epoch = c.lose(gone);
      ASSERT_NE(epoch, 0U);
      ASSERT_TRUE(c.reaches(epoch));
      const auto after = everything();
      for (const auto& [name, answer] : before) EXPECT_EQ(after.at(name), answer) << name;
    }
    // Optimizer state and staged updates survive, too: the same steps and folds as with one server.
    for (const auto& k : keys) {
      a.numbers({.what = verb::update, .function = adam}, k + "opt", {1, 2});
      a.ok({.what = verb::pull, .clock = 3, .flags = net::flag_bsp_read}, k + "staged");
    }
    const auto of = [&](const std::string& key) { return a.ok({.what = verb::pull}, key); };
    const auto vector_of = [](const asker::answer& x) {
      std::vector<double> d(x.body.size() / sizeof(double));
      std::memcpy(d.data(), x.body.data(), x.body.size());
      return d;
    };
    a.numbers({.what = verb::update, .function = adam}, "fresh", {1, 2});
    a.numbers({.what = verb::update, .function = adam}, "fresh", {3, 2});
    a.numbers({.what = verb::update, .function = adam}, "fresh", {1, 2});
    for (const auto& k : keys) {
      EXPECT_EQ(vector_of(of(k)), (std::vector<double>{3, 3, 5}));
      EXPECT_EQ(vector_of(of(k + "opt")), vector_of(of("fresh")));
      EXPECT_EQ(vector_of(of(k + "staged")), (std::vector<double>{2, 11}));
    }
    for (const auto& m : many) EXPECT_EQ(decode<double>({value_tag::f64, of(m).body}), 4.5) << m;
    std::vector<float> first;
    const auto floats_of = [](const asker::answer& x) {
      std::vector<float> f(x.body.size() / sizeof(float));
      std::memcpy(f.data(), x.body.data(), x.body.size());
      return f;
    };
    for (std::uint64_t id = 0; id < 100; ++id) {
      EXPECT_EQ(floats_of(a.row(verb::rows_pull, "added", id + 1000, {})), (std::vector<float>{7, 8}));
      std::vector<float> wanted(2);
      row_init::uniform(-1, 1, 3).fill(id, std::span(wanted));
      if (id % 3 != 0) {
        wanted[0] += 1;
        wanted[1] += 2;
      }
      EXPECT_EQ(floats_of(a.row(verb::rows_pull, "added", id, {})), wanted) << id;
      row_init::uniform(-1, 1, 3).fill(id + 3000, std::span(wanted));
      wanted[0] += 1;
      wanted[1] += 1;
      EXPECT_EQ(floats_of(a.row(verb::rows_pull, "added", id + 3000, {}, {.clock = 2, .flags = net::flag_bsp_read})),
                wanted);
    }
    // Clear removes own keys and replicas.
    std::uint32_t cleared = 0;
    a.client().broadcast({.what = verb::clear}, {}, {}, [&](const kv_result& r) { cleared += r.header.count; });
    EXPECT_EQ(cleared, keys.size() * 4 + 1 + many.size() + 1);
    EXPECT_EQ(a.ask({.what = verb::pull}, "k5").result, status::not_found);
  });
}

TEST_P(Chain, AReplacementGetsEveryCopyAndServesAfterwards) {
  run(options(3), [&](cluster& c) {
    asker a(c);
    const auto keys = names("k", 300);
    for (const auto& k : keys) a.numbers({.what = verb::push}, k, {1, 2});
    std::uint32_t epoch = 1;
    for (const std::size_t lost : {1U, 2U, 0U}) {
      const auto without = c.lose(lost);
      ASSERT_GT(without, epoch) << "s" << lost;
      for (const auto& k : keys) a.numbers({.what = verb::update}, k, {1, 1});
      c.replace(lost);
      // first joining, then up
      ASSERT_TRUE(c.reaches(without + 2)) << "s" << lost;
      epoch = without + 2;
      for (const auto& k : keys) a.numbers({.what = verb::update}, k, {1, 1});
      ASSERT_TRUE(synced(c, {0, 1, 2}, epoch));
      // The scheduler learns of it with the next heartbeat.
      std::this_thread::sleep_for(200ms);
    }
    for (const auto& k : keys) {
      const auto now = a.ok({.what = verb::pull}, k);
      std::vector<double> d(2);
      ASSERT_EQ(now.body.size(), 16U);
      std::memcpy(d.data(), now.body.data(), 16);
      EXPECT_EQ(d, (std::vector<double>{7, 8})) << k;
    }
  });
}

TEST_P(Chain, APartitionThatIsLongerThanAMessageTravelsInPieces) {
  auto o = options(4);
  o.max_message_bytes = std::size_t{1} << 20;
  run(o, [&](cluster& c) {
    asker a(c);
    // A key that is never read: its partition holds twelve updates of 400 kB that wait for the clock.
    std::vector<double> delta(50000, 1.0);
    const auto add = [&](std::uint32_t clock) {
      a.numbers({.what = verb::update, .clock = clock, .flags = net::flag_staged}, "theta", delta);
    };
    for (std::uint32_t clock = 1; clock <= 12; ++clock) add(clock);
    ASSERT_TRUE(synced(c, {0, 1, 2, 3}, 1));
    std::uint32_t clock = 13;
    for (const std::size_t victim : {0, 1, 2, 3}) {
      const auto lost = c.lose(victim);
      ASSERT_NE(lost, 0U);
      c.replace(victim);
      ASSERT_TRUE(c.waits_for(victim, server_state::up)) << victim;
      add(clock++);
    }
    const auto sum = a.ok({.what = verb::pull, .clock = clock, .flags = net::flag_bsp_read}, "theta");
    ASSERT_EQ(sum.body.size(), delta.size() * sizeof(double));
    std::vector<double> got(delta.size());
    std::memcpy(got.data(), sum.body.data(), sum.body.size());
    EXPECT_EQ(got, std::vector<double>(delta.size(), static_cast<double>(clock - 1)));
  });
}

TEST_P(Chain, NothingIsAnsweredWithoutALease) {
  run(options(3), [&](cluster& c) {
    asker a(c);
    a.numbers({.what = verb::push}, "k", {1});
    for (std::size_t i = 0; i < 3; ++i) c.node(i).set_lease_end(net::boot_clock::now());
    bool answered = false;
    const auto s = a.client().request({.what = verb::pull}, "k", {}, [&](const kv_result&) { answered = true; });
    for (const auto end = std::chrono::steady_clock::now() + 100ms; std::chrono::steady_clock::now() < end;)
      a.client().poll();
    EXPECT_FALSE(answered);
    for (std::size_t i = 0; i < 3; ++i) c.node(i).set_lease_end(net::clock_source::time_point::max());
    a.client().wait(s);
    EXPECT_TRUE(answered);
    // A heartbeat answered after the last lease has ended does not renew it.
    for (std::size_t i = 0; i < 3; ++i) c.node(i).end_lease();
    for (std::size_t i = 0; i < 3; ++i) c.node(i).set_lease_end(net::clock_source::time_point::max());
    answered = false;
    a.client().request({.what = verb::pull}, "k", {}, [&](const kv_result&) { answered = true; });
    for (const auto end = std::chrono::steady_clock::now() + 100ms; std::chrono::steady_clock::now() < end;)
      a.client().poll();
    EXPECT_FALSE(answered);
  });
}

TEST_P(Chain, TheClockGoesOnWithTheNextServer) {
  auto o = options(3);
  o.workers = 1;
  run(o, [&](cluster& c) {
    asker a(c);
    std::uint32_t slowest = 0;
    const auto tick = [&](std::uint32_t finished) {
      a.client().wait(a.client().clock_request(verb::clock_tick, finished, [&](const kv_result& r) {
        ASSERT_TRUE(r.ok()) << r.text();
        slowest = r.header.clock;
      }));
    };
    tick(5);
    EXPECT_EQ(slowest, 5U);
    const auto keeper = key_router(c.newest()).clock_server();
    ASSERT_NE(c.lose(keeper), 0U);
    bool waited = false;
    a.client().wait(a.client().clock_request(verb::clock_wait, 5, [&](const kv_result& r) { waited = r.ok(); }));
    EXPECT_TRUE(waited) << "the copy knows of the tick";
    tick(6);
    EXPECT_EQ(slowest, 6U);
  });
}

INSTANTIATE_TEST_SUITE_P(Copies, Chain, testing::Values(copies{2, 1}, copies{2, 3}, copies{3, 2}), [](const auto& i) {
  return std::to_string(i.param.replicas) + "Of" + std::to_string(i.param.threads) + "Threads";
});

}  // namespace
}  // namespace paracel
