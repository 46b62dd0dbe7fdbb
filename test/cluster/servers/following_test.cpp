// SPDX-License-Identifier: BSD-3-Clause
//
// Requests that are sent only after others, of keys on other servers, have been answered.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <paracel/array.hpp>
#include <paracel/paralg.hpp>

#include "test/support/cluster.hpp"
#include "test/support/paths.hpp"
#include "worker/parameters/parasrv.hpp"

namespace paracel {
namespace {

using test::cluster;
using testing::HasSubstr;

/// Keys of two servers.
struct keys_apart {
  explicit keys_apart(paralg& a) {
    const auto server = [&](const std::string& key) { return a.servers().client().locate(key).server; };
    while (server(second) == server(first)) second += "x";
  }
  std::string first = "first";
  std::string second = "second";
};

template <class F>
std::string error_of(const F& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

TEST(Following, ARequestIsSentWhenTheOthersAreAnswered) {
  cluster c({.workers = 1, .servers = 2});
  c.run([](Comm comm) {
    paralg a("", comm, "", 1, consistency::asp());
    const keys_apart k(a);
    auto& client = a.servers().client();
    auto one = a.paracel_write_async(k.first, 1.0);
    auto two = a.paracel_update(k.second, 2.0, after(one));
    double seen = 0;
    auto three = a.paracel_read_async(k.second, seen, after(two));
    EXPECT_EQ(client.in_flight(), 1U);
    EXPECT_TRUE(three.get());
    EXPECT_EQ(seen, 2);
    EXPECT_TRUE(one.ready());
    EXPECT_TRUE(two.ready());
    EXPECT_TRUE(one.get());
    EXPECT_TRUE(two.get());
    EXPECT_FALSE(two.valid());
  });
}

TEST(Following, TheOrderHoldsForOtherWorkersAcrossServers) {
  cluster c({.workers = 2, .servers = 2, .plugin_folders = {test::plugin_folder()}});
  std::atomic<bool> over{false};
  c.run([&](Comm comm) {
    paralg a("", comm, "", 1, consistency::asp());
    const keys_apart k(a);
    if (comm.get_rank() == 0) {
      a.paracel_write(k.first, 0.0);
      a.paracel_write(k.second, 0.0);
    }
    comm.synchronize();
    if (comm.get_rank() == 0) {
      for (int i = 0; i < 20; ++i) {
        auto slow = a.paracel_update(k.first, 0.005, "slow_updates", "sleep_for");
        a.paracel_update(k.second, 0.005, after(slow));
        a.paracel_wait();
      }
      over = true;
    } else {
      while (!over) {
        const auto later = a.paracel_read<double>(k.second);
        EXPECT_GE(a.paracel_read<double>(k.first), later - 1e-12);
      }
    }
    comm.synchronize();
  });
}

TEST(Following, EveryKindOfRequestCanBeFollowed) {
  for (const auto& how : {consistency::asp(), consistency::ssp(2), consistency::bsp()}) {
    cluster c({.workers = 1, .servers = 3, .threads = 2});
    c.run([&](Comm comm) {
      paralg a("", comm, "", 1, how);
      a.paracel_write("x", 0.0);
      a.paracel_write("y", 0.0);
      array<double> v(a, "v", 1000);
      const auto set = a.paracel_prepare({"s1", "s2"});
      a.iter_commit();
      std::vector<async_functor_type> all;
      all.push_back(a.paracel_update("x", 1.0));  // summed here under ssp
      all.push_back(v.update(std::vector<double>(1000, 1.0)));
      all.push_back(a.paracel_update(set, std::vector<double>{1, 2}));
      all.push_back(a.paracel_update_multi_async(std::vector<std::string>{"m1", "m2"}, std::vector<double>{1, 2}));
      all.push_back(a.paracel_write_async("w", 3.0));
      auto last = a.paracel_update("y", 1.0, after(all));
      auto again = a.paracel_write_async("z", 5.0, after(last));
      EXPECT_FALSE(again.ready() && !all[4].ready());
      EXPECT_TRUE(again.get());
      for (auto& f : all) EXPECT_TRUE(f.ready());
      a.iter_commit();
      EXPECT_EQ(a.paracel_read<double>("x"), 1);
      EXPECT_EQ(a.paracel_read<double>("y"), 1);
      EXPECT_EQ(a.paracel_read<double>("z"), 5);
      EXPECT_EQ(a.paracel_read<double>("m2"), 2);
    });
  }
}

TEST(Following, WaitingPointsWaitForThemAndSoDoesTheEnd) {
  cluster c({.workers = 1, .servers = 2});
  c.run([](Comm comm) {
    {
      paralg a("", comm, "", 1, consistency::asp());
      const keys_apart k(a);
      a.paracel_write(k.first, 0.0);
      for (const int way : {0, 1, 2}) {
        auto one = a.paracel_update(k.first, 1.0);
        auto two = a.paracel_update(k.second, 1.0, after(one));
        a.paracel_update(k.first, 1.0, after(two));
        if (way == 0) a.paracel_wait();
        if (way == 1) a.iter_commit();
        if (way == 2) a.paracel_sync();
        EXPECT_EQ(a.servers().client().in_flight(), 0U);
        EXPECT_EQ(a.paracel_read<double>(k.first), 2.0 * (way + 1));
      }
      auto one = a.paracel_update(k.first, 1.0);
      auto two = a.paracel_update(k.second, 1.0, after(one));
      a.paracel_update(k.first, 1.0, after(two));
      double nowhere = 0;
      a.paracel_read_async(k.first, nowhere, after(two));
    }
    paralg b("", comm, "", 1, consistency::asp());
    EXPECT_EQ(b.paracel_read<double>("first"), 8);
  });
}

TEST(Following, WhatFollowsAFailureIsNotSentAndSaysWhy) {
  cluster c({.workers = 1, .servers = 2});
  c.run([](Comm comm) {
    paralg a("", comm, "", 1, consistency::asp());
    const keys_apart k(a);
    a.paracel_write(k.first, std::string("text"));
    a.paracel_write(k.second, 0.0);
    for (const bool answered : {false, true}) {
      auto bad = a.paracel_update(k.first, 1.0);
      if (answered) bad.wait();
      auto two = a.paracel_update(k.second, 1.0, after(bad));
      auto three = a.paracel_write_async("third", 1.0, after(two));
      const auto why = error_of([&] { three.get(); });
      EXPECT_THAT(why, HasSubstr("\"third\": it was not sent, because a request that it was to follow has failed: "));
      EXPECT_THAT(error_of([&] { two.get(); }), HasSubstr("\"" + k.second + "\": it was not sent"));
      const auto first = error_of([&] { bad.get(); });
      EXPECT_FALSE(first.empty());
      EXPECT_THAT(why, HasSubstr(first));
      EXPECT_EQ(a.paracel_read<double>(k.second), 0);
      EXPECT_FALSE(a.paracel_contains("third"));
      EXPECT_NO_THROW(a.paracel_wait()) << "each was told by its future";
    }
    auto bad = a.paracel_update(k.first, 1.0);
    a.paracel_update(k.second, 1.0, after(bad));
    EXPECT_THROW(a.paracel_wait(), error);
    EXPECT_NO_THROW(a.paracel_wait());
    double missing = 0;
    auto read = a.paracel_read_async("no_such_key", missing);
    EXPECT_TRUE(a.paracel_update(k.second, 1.0, after(read)).get()) << "a key that is not there is an answer";
  });
}

TEST(Following, FuturesThatNameNoRequestAreRefused) {
  cluster c({.workers = 1});
  c.run([](Comm comm) {
    paralg a("", comm, "", 1, consistency::asp());
    paralg b("", comm, "", 1, consistency::asp());
    auto asked = a.paracel_write_async("k", 1.0);
    asked.get();
    EXPECT_THROW(after{asked}, error);
    EXPECT_THROW(after{async_result()}, error);
    EXPECT_THROW(after{async_result(std::async(std::launch::deferred, [] { return true; }))}, error);
    auto others = b.paracel_write_async("k", 1.0);
    auto own = a.paracel_write_async("k", 1.0);
    EXPECT_THROW(after(own, others), error);
    EXPECT_THROW(a.paracel_update("k", 1.0, after(others)), error);
    std::optional<async_result> late;
    {
      paralg gone("", comm, "", 1, consistency::asp());
      late = gone.paracel_write_async("k", 1.0);
    }
    EXPECT_THROW(after{*late}, error);
  });
}

/// Chains over random keys, with a server that dies in between: each request is executed once, and after the others.
TEST(Following, ChainsSurviveTheLossOfAServer) {
  for (const std::uint32_t seed : {1U, 2U, 3U}) {
    cluster c({.workers = 1, .servers = 3, .replicas = 2});
    std::atomic<bool> half{false};
    std::thread killer([&] {
      while (!half) std::this_thread::sleep_for(std::chrono::milliseconds{1});
      EXPECT_NE(c.lose(seed % 3), 0U);
    });
    c.run([&](Comm comm) {
      paralg a("", comm, "", 1, consistency::asp());
      std::mt19937 random(seed);
      std::array<std::int64_t, 40> want{};
      std::vector<async_functor_type> recent;
      for (int i = 0; i < 4000; ++i) {
        const auto n = random() % want.size();
        const auto key = "k" + std::to_string(n);
        ++want[n];
        recent.push_back(recent.empty() || random() % 4 == 0
                             ? a.paracel_update(key, std::int64_t{1})
                             : a.paracel_update(key, std::int64_t{1}, after(recent[random() % recent.size()])));
        if (recent.size() > 50) recent.clear();
        if (i == 2000) half = true;
        if (i % 97 == 0) a.paracel_poll();
      }
      a.paracel_wait();
      for (std::size_t n = 0; n < want.size(); ++n)
        EXPECT_EQ(a.paracel_read<std::int64_t>("k" + std::to_string(n)), want[n]);
    });
    killer.join();
  }
}

}  // namespace
}  // namespace paracel
