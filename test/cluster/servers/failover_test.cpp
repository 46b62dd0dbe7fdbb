// SPDX-License-Identifier: BSD-3-Clause
//
// A client's reaction to server changes, with ideal replicas: the servers share one store, which remembers what it has
// applied. So the client is responsible for anything lost or duplicated here.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <paracel/codec.hpp>
#include <paracel/error.hpp>

#include "net/row_codec.hpp"
#include "test/support/cluster.hpp"
#include "test/support/number_history.hpp"

namespace paracel {
namespace {

using namespace std::chrono_literals;
using net::status;
using net::verb;
using test::cluster;

/// Numbers by key, and the reply to each (client, sequence, key).
class shared_store {
 public:
  /// The reply to an update that is applied once. `fresh` is called if it has not been applied before.
  std::int64_t once(const net::request_header& h, const std::string& key, std::int64_t delta) {
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = said_.try_emplace({h.client, h.sequence, key}, 0);
    if (is_new) at->second = values_[key] += delta;
    else ++repeated_;
    return at->second;
  }
  std::int64_t get(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto at = values_.find(key);
    return at == values_.end() ? 0 : at->second;
  }
  std::uint64_t repeated() {
    const std::lock_guard lock(mutex_);
    return repeated_;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::int64_t> values_;
  std::map<std::tuple<std::uint64_t, std::uint64_t, std::string>, std::int64_t> said_;
  std::uint64_t repeated_ = 0;
};

/// The shards of one server over the store. Requests of another epoch are rejected, or wait until it is known.
class twin final : public srv::request_handler {
 public:
  twin(shared_store& store, std::size_t slot) : store_(store), slot_(slot) {}

  void know(const membership& m) {
    {
      const std::lock_guard lock(mutex_);
      members_ = m;
      router_.emplace(m);
    }
    changed_.notify_all();
  }
  /// From now on every request is applied and none answered, as by a server that is suspended in between.
  void mute() { muted_ = true; }
  [[nodiscard]] std::size_t told() {
    const std::lock_guard lock(mutex_);
    return functions_.size();
  }

  void handle(unsigned shard, const net::request_view& in, shared_buffer tail, srv::completion done) override {
    const auto& h = in.header;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, 10s, [&] { return router_ && members_.epoch >= h.epoch; });
      if (h.what == verb::ping) return done.ok();
      if (h.epoch != members_.epoch) return done.fail(status::stale_epoch, members_.to_json());
      if (h.what == verb::register_update) {
        functions_.insert(std::string(in.key()) + std::to_string(shard));
        const std::uint64_t id = 42;
        return done.answer({}, std::as_bytes(std::span(&id, 1)));
      }
      if (h.what == verb::set_prepare) {
        auto& keys = sets_[std::string(in.key())];
        keys.clear();
        net::request_items items(in.payload(), h.count);
        for (net::request_item i; items.next(i);) keys.emplace_back(i.key);
        return done.ok();
      }
    }
    if (h.what <= verb::update_at && !is_mine(in.key()))
      return done.fail(status::wrong_owner, "of " + std::string(in.key()));
    answer(shard, in, tail ? tail.bytes() : in.payload(), done);
  }
  void closing(unsigned shard) override {
    const std::lock_guard lock(mutex_);
    for (auto& done : held_[shard]) done.fail(status::job_ended, "this server ends");
    held_.erase(shard);
  }

 private:
  bool is_mine(std::string_view key) {
    const std::lock_guard lock(mutex_);
    return router_->locate(key).server == slot_;
  }

  void answer(unsigned shard, const net::request_view& in, std::span<const std::byte> payload, srv::completion& done) {
    const auto& h = in.header;
    net::reply_header reply;
    std::vector<std::byte> body;
    switch (h.what) {
      case verb::pull:
        body = bytes(store_.get(std::string(in.key())));
        break;
      case verb::update:
      case verb::bupdate:
        body = bytes(store_.once(h, std::string(in.key()), decode<std::int64_t>({h.tag, payload})));
        break;
      case verb::pull_multi:
      case verb::bupdate_multi:
      case verb::update_multi: {
        net::request_items items(payload, h.count);
        for (net::request_item i; items.next(i);) {
          const std::string key(i.key);
          if (!is_mine(key)) return done.fail(status::wrong_owner, "of " + key);
          const auto now =
              h.what == verb::pull_multi ? store_.get(key) : store_.once(h, key, decode<std::int64_t>(i.value));
          net::append_item(body, status::ok, 1, encoded<std::int64_t>(now).view());
        }
        reply.count = h.count;
        break;
      }
      case verb::set_bupdate: {
        std::vector<std::string> keys;
        {
          const std::lock_guard lock(mutex_);
          if (const auto at = sets_.find(std::string(in.key())); at != sets_.end()) keys = at->second;
        }
        if (keys.empty()) return done.fail(status::unknown_set, {});
        for (std::size_t k = 0; k < keys.size(); ++k) {
          const auto now = store_.once(h, keys[k], decode<std::int64_t>({h.tag, payload.subspan(k * 8, 8)}));
          net::append_item(body, status::ok, 1, encoded<std::int64_t>(now).view());
        }
        reply.count = h.count;
        break;
      }
      case verb::rows_update:
      case verb::rows_pull: {
        const bool pull = h.what == verb::rows_pull;
        net::rows_view rows;
        ASSERT_EQ(net::decode(payload, h.count, false, pull ? 0 : 8, rows), nullptr);
        for (std::uint32_t i = 0; i < h.count; ++i) {
          const auto key = "row " + std::to_string(rows.id(i));
          std::int64_t delta = 0;
          if (!pull) std::memcpy(&delta, rows.values.data() + i * 8U, 8);
          const auto now = bytes(pull ? store_.get(key) : store_.once(h, key, delta));
          if (pull) body.insert(body.end(), now.begin(), now.end());
        }
        reply.count = h.count;
        break;
      }
      case verb::clear: {
        const std::lock_guard lock(mutex_);
        reply.count = cleared_.insert({h.client, h.sequence}).second ? 1 : 0;
        break;
      }
      default:
        return done.fail(status::bad_request, "not a verb of this test");
    }
    reply.tag = value_tag::i64;
    if (!muted_) return done.answer(reply, body);
    const std::lock_guard lock(mutex_);
    held_[shard].push_back(std::move(done));
  }

  static std::vector<std::byte> bytes(std::int64_t n) {
    const auto* at = reinterpret_cast<const std::byte*>(&n);
    return {at, at + sizeof n};
  }

  shared_store& store_;
  std::size_t slot_;
  std::mutex mutex_;
  std::condition_variable changed_;
  membership members_;
  std::optional<key_router> router_;
  std::map<std::string, std::vector<std::string>> sets_;
  std::set<std::string> functions_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> cleared_;
  std::map<unsigned, std::vector<srv::completion>> held_;
  std::atomic<bool> muted_{false};
};

/// Three servers with two replicas, and a client on a worker's thread.
class Failover : public testing::Test {
 protected:
  void run(const std::function<void(cluster&, server_group&)>& work) {
    cluster c({.workers = 1,
               .servers = 3,
               .threads = 2,
               .replicas = 2,
               .lease = lease,
               .handler =
                   [&](std::size_t i) {
                     made.push_back(std::make_unique<twin>(store, i));
                     return now[i] = made.back().get();
                   },
               .told = [&](std::size_t i, const membership& m) { now.at(i)->know(m); }});
    c.run([&](const Comm&) {
      const auto client = c.client({.timeout = 0ms});
      work(c, *client);
    });
  }
  static std::vector<std::string> keys(int n) {
    std::vector<std::string> all;
    for (int i = 0; i < n; ++i) all.push_back("key_" + std::to_string(i));
    return all;
  }

  std::chrono::milliseconds lease{0};
  shared_store store;
  std::vector<std::unique_ptr<twin>> made;
  std::map<std::size_t, twin*> now;
};

TEST_F(Failover, UpdatesInFlightToALostServerCountOnceAndInOrder) {
  run([&](cluster& c, server_group& client) {
    const encoded<std::int64_t> one(1);
    const auto all = keys(40);
    std::map<std::string, std::vector<std::int64_t>> seen;
    int answers = 0;
    const auto send = [&](int n) {
      for (int i = 0; i < n; ++i) {
        const auto& key = all[static_cast<std::size_t>(i) % all.size()];
        client.request({.what = verb::bupdate}, key, one.view(), [&seen, &answers, key](const kv_result& r) {
          ASSERT_TRUE(r.ok()) << r.text();
          ++answers;
          seen[key].push_back(decode<std::int64_t>(r.value()));
        });
      }
    };
    send(400);
    now[1]->mute();
    send(400);
    EXPECT_EQ(c.lose(1), 2U);
    send(400);
    client.wait_all();
    EXPECT_EQ(answers, 1200);
    for (const auto& key : all) {
      EXPECT_EQ(store.get(key), 30) << key;
      std::vector<std::int64_t> wanted(30);
      for (std::int64_t i = 0; i < 30; ++i) wanted[static_cast<std::size_t>(i)] = i + 1;
      EXPECT_EQ(seen[key], wanted) << key;
    }
    EXPECT_EQ(client.servers().epoch, 2U);
  });
}

TEST_F(Failover, AWaitingClientGoesOnWhenItsServerIsLost) {
  run([&](cluster& c, server_group& client) {
    now[0]->mute();
    std::thread launcher([&] {
      std::this_thread::sleep_for(100ms);
      EXPECT_EQ(c.lose(0), 2U);
    });
    std::string key = "a";
    while (client.locate(key).server != 0) key += "a";
    std::int64_t got = 0;
    const encoded<std::int64_t> one(1);
    client.wait(client.request({.what = verb::bupdate}, key, one.view(),
                               [&](const kv_result& r) { got = decode<std::int64_t>(r.value()); }));
    launcher.join();
    EXPECT_EQ(got, 1);
    EXPECT_EQ(store.repeated(), 1U) << "s0 had applied it and told nobody";
  });
}

TEST_F(Failover, RequestsOfManyKeysAreSplitAnew) {
  run([&](cluster& c, server_group& client) {
    const auto all = keys(500);
    const encoded<std::int64_t> one(1);
    const std::vector<value_view> ones(all.size(), one.view());
    std::vector<int> answers(all.size());
    int ends = 0;
    std::int64_t made_so_far = 0;
    int wrong = 0;
    const auto send = [&] {
      client.many().multi_async(
          {.what = verb::bupdate_multi}, all, ones,
          [&, nth = ++made_so_far](std::size_t i, std::string_view key, const net::reply_item& item) {
            ++answers[i];
            // executed in order of the calls; a reply may arrive after a later one's
            if (key != all[i] || item.result != status::ok || decode<std::int64_t>(item.value) != nth) ++wrong;
          },
          [&](kvclt::sequence) { ++ends; });
    };
    for (int i = 0; i < 3; ++i) send();
    now[2]->mute();
    for (int i = 0; i < 3; ++i) send();
    EXPECT_EQ(c.lose(2), 2U);
    for (int i = 0; i < 3; ++i) send();
    client.wait_all();
    EXPECT_EQ(ends, 9);
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(answers, std::vector<int>(all.size(), 9));
    for (const auto& key : all) EXPECT_EQ(store.get(key), 9);
    EXPECT_GT(store.repeated(), 0U) << "s2 had applied some, and nobody had heard of it";
  });
}

TEST_F(Failover, KeySetsGoOnUnderTheirNewShards) {
  run([&](cluster& c, server_group& client) {
    const auto all = keys(300);
    const auto set = client.many().split(all);
    std::vector<std::int64_t> ones(all.size(), 1);
    std::vector<std::int64_t> last(all.size());
    const multi_client::set_payload payload{value_tag::i64, 8, std::as_bytes(std::span(ones)), {}};
    int failures = 0;
    const auto send = [&] {
      client.many().set_async({.what = verb::set_bupdate}, set, payload,
                              [&](std::span<const std::uint32_t> order, const kv_result& r) {
                                net::reply_items items(r.body, r.header.count);
                                net::reply_item item;
                                for (const auto i : order) {
                                  if (!items.next(item) || item.result != status::ok) ++failures;
                                  else last[i] = decode<std::int64_t>(item.value);
                                }
                              });
    };
    send();
    client.wait_all();
    now[0]->mute();
    send();
    send();
    EXPECT_EQ(c.lose(0), 2U);
    client.wait_all();
    send();
    client.wait_all();
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(last, std::vector<std::int64_t>(all.size(), 4));
    for (const auto& key : all) EXPECT_EQ(store.get(key), 4);
  });
}

TEST_F(Failover, RowsGoOnToo) {
  run([&](cluster& c, server_group& client) {
    std::vector<std::uint64_t> ids;
    for (std::uint64_t id = 0; ids.size() < 50; ++id)
      if (client.locate_partition(partition_of(net::hash_row(id))).server == 1) ids.push_back(id);
    std::map<std::uint32_t, std::vector<std::uint64_t>> by_channel;
    for (const auto id : ids) by_channel[client.channel_of(partition_of(net::hash_row(id)))].push_back(id);
    now[1]->mute();
    int answers = 0;
    for (const auto& [to, mine] : by_channel) {
      std::vector<std::byte> payload;
      const auto put = [&](std::uint64_t v) {
        const auto* at = reinterpret_cast<const std::byte*>(&v);
        payload.insert(payload.end(), at, at + sizeof v);
      };
      for (const auto id : mine) put(id);
      const auto names = payload;
      for (std::size_t i = 0; i < mine.size(); ++i) put(i + 1);
      const auto count = static_cast<std::uint32_t>(mine.size());
      client.shard_request({.what = verb::rows_update}, to, count, value_tag::i64, payload,
                           [&](const kv_result& r) { answers += r.ok() ? 1 : 0; });
      client.shard_request({.what = verb::rows_pull}, to, count, value_tag::i64, names, [&, count](const kv_result& r) {
        ASSERT_EQ(r.body.size(), count * 8U);
        for (std::uint32_t i = 0; i < count; ++i) {
          std::int64_t v = 0;
          std::memcpy(&v, r.body.data() + i * 8U, 8);
          EXPECT_EQ(v, i + 1);
        }
        ++answers;
      });
    }
    EXPECT_EQ(c.lose(1), 2U);
    client.wait_all();
    EXPECT_EQ(answers, static_cast<int>(2 * by_channel.size()));
  });
}

TEST_F(Failover, AReplacementIsToldTheFunctions) {
  run([&](cluster& c, server_group& client) {
    std::set<std::uint64_t> ids;
    client.broadcast({.what = verb::register_update}, "plugin", net::bytes_of("f"), [&](const kv_result& r) {
      std::uint64_t id = 0;
      ASSERT_EQ(r.body.size(), sizeof id);
      std::memcpy(&id, r.body.data(), sizeof id);
      ids.insert(id);
    });
    EXPECT_EQ(ids.size(), 1U);
    EXPECT_EQ(c.lose(1), 2U);
    c.replace(1);
    ASSERT_TRUE(c.reaches(3));
    EXPECT_EQ(c.newest().servers[1].state, server_state::joining);
    client.refresh_membership();
    client.wait_all();
    EXPECT_EQ(now[1]->told(), 2U) << "each of its threads, although it serves nothing yet";
  });
}

TEST_F(Failover, AServerThatFallsSilentIsFoundByItsLeaseAndNobodyHangs) {
  lease = 2s;
  run([&](cluster& c, server_group& client) {
    std::string key = "a";
    while (client.locate(key).server != 2) key += "a";
    now[2]->mute();
    c.silence_server(2);
    const auto begin = std::chrono::steady_clock::now();
    std::int64_t got = 0;
    const encoded<std::int64_t> one(1);
    client.wait(client.request({.what = verb::bupdate}, key, one.view(),
                               [&](const kv_result& r) { got = decode<std::int64_t>(r.value()); }));
    EXPECT_EQ(got, 1);
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 1500ms) << "its lease was not over";
    EXPECT_EQ(c.newest().servers[2].state, server_state::down);
  });
}

TEST_F(Failover, ClientsSeeOneOrderOfEachKeyWhileServersAreLostAndReplaced) {
  run([&](cluster& c, server_group&) {
    constexpr std::size_t clients = 3;
    test::number_history history(keys(6), clients);
    std::atomic<bool> over{false};
    std::atomic<std::size_t> operations{0};
    std::vector<std::thread> threads;
    for (std::size_t me = 0; me < clients; ++me) {
      threads.emplace_back([&, me] {
        const auto mine = c.client({.timeout = 0ms});
        for (std::size_t i = me; !over; ++i) {
          history.step(*mine, me, i);
          ++operations;
        }
      });
    }
    std::uint32_t epoch = 1;
    for (const std::size_t slot : {1U, 0U, 2U, 1U}) {
      const auto before = operations.load();
      while (operations < before + 100) std::this_thread::sleep_for(1ms);
      now[slot]->mute();
      std::this_thread::sleep_for(20ms);
      EXPECT_EQ(c.lose(slot), epoch + 1);
      c.replace(slot);
      EXPECT_TRUE(c.reaches(epoch += 3));
    }
    const auto before = operations.load();
    while (operations < before + 100) std::this_thread::sleep_for(1ms);
    over = true;
    for (auto& t : threads) t.join();
    history.expect_linearizable();
    EXPECT_GT(store.repeated(), 0U);
  });
}

TEST_F(Failover, FarMoreRequestsThanAShardRemembersAreHeldBackAndEnd) {
  run([&](cluster& c, server_group& client) {
    const encoded<std::int64_t> one(1);
    const auto all = keys(10);
    now[1]->mute();
    std::thread launcher([&] {
      std::this_thread::sleep_for(100ms);
      EXPECT_EQ(c.lose(1), 2U);
    });
    std::size_t most = 0;
    for (std::size_t i = 0; i < 20'000; ++i) {
      client.request({.what = verb::update}, all[i % all.size()], one.view(), nullptr);
      most = std::max(most, client.in_flight());
    }
    client.wait_all();
    launcher.join();
    EXPECT_LE(most, 4096U);
    for (const auto& key : all) EXPECT_EQ(store.get(key), 2000);
  });
}

TEST_F(Failover, ClearIsOneRequestWithOneAnswerAlsoWhenAServerIsLost) {
  run([&](cluster& c, server_group& client) {
    now[2]->mute();
    std::thread launcher([&] {
      std::this_thread::sleep_for(50ms);
      EXPECT_EQ(c.lose(2), 2U);
    });
    int answers = 0;
    client.broadcast({.what = verb::clear}, {}, {}, [&](const kv_result& r) { answers += r.ok() ? 1 : 100; });
    launcher.join();
    EXPECT_EQ(answers, 1);
  });
}

TEST_F(Failover, AHandlerMayMakeRequestsWhileServersChange) {
  run([&](cluster& c, server_group& client) {
    const encoded<std::int64_t> one(1);
    const auto all = keys(30);
    now[0]->mute();
    std::thread launcher([&] {
      std::this_thread::sleep_for(50ms);
      EXPECT_EQ(c.lose(0), 2U);
    });
    std::map<std::string, int> left;
    std::function<void(const std::string&)> send = [&](const std::string& key) {
      client.request({.what = verb::update}, key, one.view(), [&, key](const kv_result& r) {
        ASSERT_TRUE(r.ok()) << r.text();
        if (--left[key] > 0) send(key);
      });
    };
    for (const auto& key : all) {
      left[key] = 50;
      send(key);
    }
    client.wait_all();
    launcher.join();
    for (const auto& key : all) EXPECT_EQ(store.get(key), 50);
  });
}

}  // namespace
}  // namespace paracel
