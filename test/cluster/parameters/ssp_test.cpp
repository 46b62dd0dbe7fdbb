// SPDX-License-Identifier: BSD-3-Clause
//
// The staleness rule, observed from outside: every worker publishes what it is about to commit before it commits, so
// that a read can be compared with a lower bound of every worker's progress.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <random>
#include <span>
#include <thread>
#include <tuple>
#include <vector>

#include <paracel/paralg.hpp>

#include "test/support/cluster.hpp"
#include "test/support/paths.hpp"
#include "test/support/sanitized.hpp"
#include "worker/parameters/parasrv.hpp"

namespace paracel {
namespace {

using test::cluster;
using test::cluster_options;

using counts = std::vector<std::int64_t>;

std::string key_of(std::size_t worker) { return "count_" + std::to_string(worker); }

class Ssp : public ::testing::TestWithParam<std::tuple<int, std::size_t>> {};

TEST_P(Ssp, LeadNeverExceedsTheStalenessAndReadsHoldWhatTheRulePromises) {
  const int s = std::get<0>(GetParam());
  const std::size_t workers = std::get<1>(GetParam());
  constexpr int iterations = test::sanitized ? 300 : 2000;
  cluster c({.workers = workers, .servers = 2, .threads = 2});
  std::vector<std::atomic<int>> committing(workers);
  std::atomic<int> greatest_lead{0};
  c.run([&](Comm comm) {
    paralg a("", comm, "", iterations, s, true);
    const auto me = a.get_worker_id();
    std::mt19937 random(static_cast<unsigned>(me * 7919 + static_cast<std::size_t>(s)));
    if (me == 0)
      for (std::size_t r = 0; r < workers; ++r) a.paracel_write(key_of(r), std::int64_t{0});
    a.paracel_sync();
    for (int i = 0; i < iterations; ++i) {
      // Every worker is slow at times, worker 0 more often.
      if (random() % (me == 0 ? 20 : 100) == 0) std::this_thread::sleep_for(std::chrono::microseconds{500});
      for (std::size_t r = 0; r < workers; ++r) {
        const auto seen = a.paracel_read<std::int64_t>(key_of(r));
        const int least = i - s;
        ASSERT_GE(committing[r].load(), least) << "worker " << me << " read at " << i << " ahead of worker " << r;
        ASSERT_GE(seen, least) << "worker " << me << " at " << i << " misses updates of worker " << r;
        if (r == me) {
          ASSERT_EQ(seen, i) << "worker " << me << " misses its own updates";
        }
        greatest_lead = std::max(greatest_lead.load(), i - committing[r].load());
      }
      a.paracel_update(key_of(me), std::int64_t{1});
      committing[me].store(i + 1);
      a.iter_commit();
    }
    a.paracel_sync();
    for (std::size_t r = 0; r < workers; ++r) EXPECT_EQ(a.paracel_read<std::int64_t>(key_of(r)), iterations);
  });
  EXPECT_LE(greatest_lead.load(), s);
}

INSTANTIATE_TEST_SUITE_P(Staleness, Ssp,
                         ::testing::Combine(::testing::Values(0, 1, 3, 10),
                                            ::testing::Values<std::size_t>(1, 2, 4, 8)));

TEST(SspLead, ReachesTheLimitBehindOneSlowWorkerAndStopsThere) {
  constexpr int s = 3;
  constexpr int iterations = 60;
  cluster c({.workers = 3, .servers = 1});
  std::vector<std::atomic<int>> committing(3);
  std::atomic<int> greatest_lead{0};
  c.run([&](Comm comm) {
    paralg a("", comm, "", iterations, s, true);
    const auto me = a.get_worker_id();
    a.paracel_sync();
    for (int i = 0; i < iterations; ++i) {
      a.paracel_bupdate("shared", 1.0);
      (void)a.paracel_read<double>("shared");
      const int lead = i - committing[0].load();
      if (lead > greatest_lead.load()) greatest_lead = lead;
      if (me == 0) std::this_thread::sleep_for(std::chrono::milliseconds{2});
      committing[me].store(i + 1);
      a.iter_commit();
    }
  });
  EXPECT_EQ(greatest_lead.load(), s);
}

TEST(Ssp, CachedReadsAskNoServerWhileTheyAreFresh) {
  cluster c({.workers = 1, .servers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm, "", 100, 5, true);
    a.paracel_write("k", std::vector<double>{1, 2});
    const auto before = c.requests_served();
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(a.paracel_read<std::vector<double>>("k"), (std::vector<double>{1, 2}));
    EXPECT_EQ(c.requests_served(), before);
  });
}

// ---- random schedules -------------------------------------------------------------------------------------------

/// The rule, whatever a worker does between its commits: every read contains at least all updates of every worker's
/// first c - s iterations, and all its own, and never an update that has not been made. Worker w counts its updates in
/// element w of each key, and publishes after each call how many it has made (`made`) and, before each commit, how many
/// the iterations so far contain (`by_iteration`).
class SspSchedule : public ::testing::TestWithParam<std::tuple<unsigned, int, bool, bool>> {};

TEST_P(SspSchedule, EveryReadHoldsWhatTheRulePromises) {
  const unsigned seed = std::get<0>(GetParam());
  const int s = std::get<1>(GetParam());
  const bool combining = std::get<2>(GetParam());
  const bool push = std::get<3>(GetParam());
  constexpr std::size_t workers = 3;
  constexpr std::size_t keys = 5;
  constexpr int iterations = test::sanitized ? 60 : 250;
  cluster c({.workers = workers, .servers = 2, .threads = 2, .plugin_folders = {test::plugin_folder()}});
  // made[w][k]: updates that worker w has started; by_iteration[w][i][k]: those of its first i iterations.
  std::array<std::array<std::atomic<std::int64_t>, keys>, workers> made{};
  std::vector<std::vector<std::array<std::atomic<std::int64_t>, keys>>> by_iteration(workers);
  for (auto& w : by_iteration) w = std::vector<std::array<std::atomic<std::int64_t>, keys>>(iterations + 1);
  for (auto& w : by_iteration)
    for (std::size_t i = 1; i < w.size(); ++i)
      for (auto& n : w[i]) n = -1;  // not yet known
  const auto name = [](std::size_t k) { return "k" + std::to_string(k); };

  c.run([&](Comm comm) {
    paralg a("", comm, "", iterations, s, true);
    a.set_combining(combining);
    a.set_push(push);
    const auto me = a.get_worker_id();
    std::mt19937 random(seed * 100 + static_cast<unsigned>(me));
    if (me == 0)
      for (std::size_t k = 0; k < keys; ++k) a.paracel_write(name(k), counts(workers, 0));
    a.paracel_sync();
    for (int i = 0; i < iterations; ++i) {
      const auto check = [&](std::size_t k, std::span<const std::int64_t> seen) {
        ASSERT_EQ(seen.size(), workers);
        for (std::size_t w = 0; w < workers; ++w) {
          const auto known = static_cast<std::size_t>(std::max(0, i - s));
          const auto least = w == me ? made[me][k].load() : by_iteration[w][known][k].load();
          ASSERT_GE(least, 0) << "worker " << me << " read at " << i << " ahead of worker " << w;
          ASSERT_GE(seen[w], least) << "worker " << me << " at " << i << " misses updates of " << w << " to " << k;
          ASSERT_LE(seen[w], made[w][k].load()) << "worker " << me << " at " << i << " sees too much of " << w;
        }
      };
      const auto one = [&](std::size_t k) {
        counts delta(workers, 0);
        delta[me] = 1;
        ++made[me][k];
        return delta;
      };
      for (auto steps = random() % 8; steps > 0; --steps) {
        const auto k = random() % keys;
        switch (random() % 11) {
          case 0:
          case 1:
            ASSERT_NO_FATAL_FAILURE(check(k, a.paracel_read<counts>(name(k))));
            break;
          case 2:
          case 3:
            ASSERT_NO_FATAL_FAILURE(check(k, a.paracel_read_ref<counts>(name(k))));
            break;
          case 4: {
            std::vector<std::size_t> asked{k};
            for (auto n = random() % 4; n > 0; --n) asked.push_back(random() % keys);  // some of them twice
            list_type<str_type> names;
            for (const auto n : asked) names.push_back(name(n));
            const auto got = a.paracel_read_multi<counts>(names);
            for (std::size_t n = 0; n < asked.size(); ++n) ASSERT_NO_FATAL_FAILURE(check(asked[n], got[n]));
            break;
          }
          case 5:
          case 6:
          case 7:
            a.paracel_update(name(k), one(k));
            break;
          case 8: {
            auto done = a.paracel_update(name(k), one(k));
            a.paracel_update(name(k), one(k));
            ASSERT_TRUE(done.get());
            break;
          }
          case 9:
            a.paracel_bupdate(name(k), one(k));
            break;
          default: {
            // The same sum by a function that is not declared additive: it is neither combined nor added to a cached
            // copy.
            a.paracel_update(name(k), one(k), "element_updates", "plain_sum_update");
          }
        }
      }
      if (random() % 30 == 0) std::this_thread::sleep_for(std::chrono::microseconds{random() % 800});
      for (std::size_t k = 0; k < keys; ++k) by_iteration[me][static_cast<std::size_t>(i) + 1][k] = made[me][k].load();
      a.iter_commit();
    }
    a.paracel_sync();
    for (std::size_t k = 0; k < keys; ++k) {
      const auto end = a.paracel_read<counts>(name(k));
      for (std::size_t w = 0; w < workers; ++w) EXPECT_EQ(end[w], made[w][k].load());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Seeds, SspSchedule,
                         ::testing::Combine(::testing::Range(1U, 5U), ::testing::Values(0, 1, 2, 3), ::testing::Bool(),
                                            ::testing::Bool()));

// ---- pushed values ----------------------------------------------------------------------------------------------

TEST(Push, TheNextReadFindsWhatHasChanged) {
  cluster c({.workers = 2, .servers = 2, .threads = 2});
  std::atomic<bool> ready{false};
  std::atomic<bool> moved{false};
  c.run([&](Comm comm) {
    paralg a("", comm, "", 100, 0, true);
    if (a.get_worker_id() == 0) {
      a.paracel_write("changes", 1.0);
      a.paracel_write("stays", 2.0);
    }
    a.paracel_sync();
    if (a.get_worker_id() == 1) {
      while (!ready) std::this_thread::sleep_for(std::chrono::milliseconds{1});
      a.paracel_bupdate("changes", 10.0);
      a.iter_commit();
      moved = true;
      a.paracel_sync();
      return;
    }
    a.paracel_subscribe({"changes", "stays"});
    ready = true;
    a.iter_commit();
    while (!moved) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
    const auto before = c.requests_served();
    EXPECT_EQ(a.paracel_read<double>("changes"), 11.0);
    EXPECT_EQ(a.paracel_read<double>("stays"), 2.0);
    EXPECT_LE(c.requests_served(), before + 4) << "no pull: at most the new subscriptions";
    EXPECT_EQ(a.servers().cache().pushes_taken(), 2U);
    a.paracel_sync();
  });
}

TEST(Push, IsOffUnlessSwitchedOn) {
  cluster c({.workers = 1, .servers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm, "", 100, 0, true);
    a.paracel_write("k", 1.0);
    for (int i = 0; i < 5; ++i) {
      (void)a.paracel_read<double>("k");
      a.iter_commit();
    }
    EXPECT_EQ(a.servers().cache().pushes_taken(), 0U);
    a.set_push(true);
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(a.paracel_read<double>("k"), 1.0 + i);
      a.paracel_bupdate("k", 1.0);
      a.iter_commit();
      std::this_thread::sleep_for(std::chrono::milliseconds{2});
    }
    EXPECT_GT(a.servers().cache().pushes_taken(), 0U);
    a.set_push(false);
    EXPECT_EQ(a.paracel_read<double>("k"), 21.0);
  });
}

// ---- combining --------------------------------------------------------------------------------------------------

TEST(Combining, SendsOneRequestAShardAtTheCommit) {
  cluster c({.workers = 1, .servers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm, "", 100, 1, true);
    a.paracel_write("a", 0.0);
    a.paracel_write("b", std::vector<double>{0, 0});
    const auto before = c.requests_served();
    for (int i = 0; i < 100; ++i) {
      a.paracel_update("a", 1.0);
      a.paracel_update("b", std::vector<double>{1, 2});
    }
    EXPECT_EQ(a.paracel_read<double>("a"), 100) << "own updates are in the cached copy";
    EXPECT_EQ(c.requests_served(), before);
    a.iter_commit();
    EXPECT_EQ(c.requests_served(), before + 1);
    const auto other = c.client();
    std::vector<double> seen;
    other->wait(
        other->request({.what = net::verb::pull}, "b", {}, [&](const kv_result& r) { decode_into(r.value(), seen); }));
    EXPECT_EQ(seen, (std::vector<double>{100, 200}));
  });
}

TEST(Combining, CallsOfTheKeyDoNotOvertakeItsUpdates) {
  cluster c({.workers = 1, .servers = 2});
  c.run([&](Comm comm) {
    paralg a("", comm, "", 100, 1, true);
    a.paracel_update("bupdate", 1.0);
    double now = 0;
    a.paracel_bupdate_get("bupdate", 10.0, now);
    EXPECT_EQ(now, 11);
    a.paracel_update("write", 1.0);
    a.paracel_write("write", 5.0);
    a.paracel_update("write", 1.0);
    EXPECT_EQ(a.paracel_read<double>("write"), 6);
    a.paracel_update("contains", 1.0);
    EXPECT_TRUE(a.paracel_contains("contains"));
    a.paracel_update("remove", 1.0);
    EXPECT_TRUE(a.paracel_remove("remove"));
    a.paracel_update("multi", 1.0);
    EXPECT_EQ(a.paracel_read_multi<double>({"multi"})[0], 1);
    a.paracel_update("max", 1.0);
    a.paracel_update("max", 5.0, "libparacel_default.so", "paracel_max");
    a.paracel_update("max", 1.0);
    EXPECT_EQ(a.paracel_read<double>("max"), 6);
    a.paracel_update("wide", std::int32_t{2'000'000'000});
    a.paracel_update("wide", std::int32_t{2'000'000'000});
    a.paracel_sync();
    EXPECT_EQ(a.paracel_read<std::int32_t>("wide"), static_cast<std::int32_t>(4'000'000'000U)) << "as the server adds";
    a.paracel_write("wider", std::int64_t{0});
    a.paracel_update("wider", std::int32_t{2'000'000'000});
    a.paracel_update("wider", std::int32_t{2'000'000'000});
    EXPECT_EQ(a.paracel_read<std::int64_t>("wider"), 4'000'000'000);
    a.paracel_update("clear", 1.0);
    a.paracel_clear();
    a.paracel_sync();
    EXPECT_FALSE(a.paracel_contains("clear"));
  });
}

TEST(Combining, AFailureIsThrownByTheFutureOrTheCommit) {
  cluster c({.workers = 1, .servers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm, "", 100, 1, true);
    a.paracel_write("text", str_type("no number"));
    a.paracel_write("other", str_type("no number"));
    auto first = a.paracel_update("text", 1.0);
    auto second = a.paracel_update("text", 1.0);
    EXPECT_THROW(first.get(), type_error);
    EXPECT_THROW(second.get(), type_error) << "they went together";
    a.iter_commit();
    a.paracel_update("text", 1.0);
    a.paracel_update("other", 1.0);
    EXPECT_THROW(a.iter_commit(), type_error);
    a.iter_commit();
    auto late = a.paracel_update("text", 1.0);
    a.paracel_update("other", 1.0);
    EXPECT_THROW(a.paracel_sync(), type_error);
    EXPECT_THROW(late.get(), type_error) << "also when a commit has sent it";
    auto good = a.paracel_update("good", 1.0);
    a.paracel_update("good", 2.0);
    EXPECT_TRUE(good.get());
    EXPECT_TRUE(a.paracel_update("good", 1.0).get());
    EXPECT_EQ(a.paracel_read<double>("good"), 4);
  });
}

TEST(Combining, HasASwitchAndIsOffWhereItIsNotExpected) {
  cluster c({.workers = 1, .servers = 1});
  c.run([&](Comm comm) {
    const auto requests_of_three_updates = [&](paralg& a) {
      a.paracel_bupdate("k", 0.0);
      const auto before = c.requests_served();
      for (int i = 0; i < 3; ++i) a.paracel_update("k", 1.0);
      a.paracel_sync();
      return c.requests_served() - before;
    };
    paralg ssp("", comm, "", 100, 1, true);
    EXPECT_EQ(requests_of_three_updates(ssp), 1U);
    ssp.set_combining(false);
    EXPECT_EQ(requests_of_three_updates(ssp), 3U);
    paralg asp("", comm);
    EXPECT_EQ(requests_of_three_updates(asp), 3U);
    asp.set_combining(true);
    EXPECT_EQ(requests_of_three_updates(asp), 1U);
    paralg bsp("", comm, "", 100, 0, true);
    bsp.set_consistency(consistency_model::bsp);
    bsp.set_combining(true);
    EXPECT_EQ(requests_of_three_updates(bsp), 4U) << "each is staged by itself, and the sync has them folded";
  });
}

TEST(Combining, WhatWasNotCommittedIsSentWhenTheAlgorithmEnds) {
  cluster c({.workers = 1, .servers = 1});
  c.run([&](Comm comm) {
    {
      paralg a("", comm, "", 100, 1, true);
      a.paracel_update("k", 1.0);
      a.paracel_update("k", 1.0);
    }
    paralg b("", comm);
    for (int i = 0; i < 1000 && !b.paracel_contains("k"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    EXPECT_EQ(b.paracel_read<double>("k"), 2);
  });
}

TEST(Combining, LargeSumsTravelByThemselves) {
  cluster c({.workers = 1, .servers = 2});
  c.run([&](Comm comm) {
    paralg a("", comm, "", 100, 1, true);
    const std::vector<double> delta(50'000, 0.5);
    for (int i = 0; i < 4; ++i) {
      a.paracel_update("large", delta);
      a.paracel_update("small", 1.0);
      a.paracel_update("small2", 1.0);
    }
    a.iter_commit();
    EXPECT_EQ(a.paracel_read<std::vector<double>>("large"), std::vector<double>(50'000, 2.0));
    EXPECT_EQ(a.paracel_read<double>("small"), 4);
  });
}

// ---- the cache by reference -------------------------------------------------------------------------------------

TEST(ReadRef, IsTheCachedValueItselfAndHoldsOwnUpdates) {
  cluster c({.workers = 1, .servers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm, "", 100, 1, true);
    a.paracel_write("v", std::vector<double>{1, 2});
    const auto before = c.requests_served();
    const auto first = a.paracel_read_ref<std::vector<double>>("v");
    const auto second = a.paracel_read_ref<std::vector<double>>("v");
    EXPECT_EQ(first.data(), second.data()) << "nothing is copied";
    EXPECT_EQ(std::vector<double>(first.begin(), first.end()), (std::vector<double>{1, 2}));
    a.paracel_update("v", std::vector<double>{10, 20});
    const auto after = a.paracel_read_ref<std::vector<double>>("v");
    EXPECT_EQ(std::vector<double>(after.begin(), after.end()), (std::vector<double>{11, 22}));
    EXPECT_EQ(c.requests_served(), before) << "no server was asked";
    EXPECT_EQ(a.get_cache<std::vector<double>>("v"), (std::vector<double>{11, 22}));
  });
}

TEST(ReadRef, GivesEveryType) {
  cluster c({.workers = 1, .servers = 1});
  c.run([&](Comm comm) {
    for (const bool ssp : {true, false}) {
      paralg a("", comm, "", 100, 1, ssp);
      a.paracel_write("number", 1.5F);
      EXPECT_EQ(a.paracel_read_ref<float>("number"), 1.5F);
      EXPECT_EQ(a.paracel_read_ref<double>("number"), 1.5) << "widened";
      a.paracel_update("number", 1.0F);
      EXPECT_EQ(a.paracel_read_ref<double>("number"), 2.5) << "and widened again after a change";
      const dict_type<str_type, int> map{{"a", 1}, {"b", 2}};
      a.paracel_write("map", map);
      const auto& kept = a.paracel_read_ref<dict_type<str_type, int>>("map");
      EXPECT_EQ(kept, map);
      if (ssp) {
        EXPECT_EQ(&(a.paracel_read_ref<dict_type<str_type, int>>("map")), &kept) << "decoded once";
      }
      a.paracel_write("map", dict_type<str_type, int>{{"c", 3}});
      EXPECT_EQ((a.paracel_read_ref<dict_type<str_type, int>>("map").at("c")), 3);
      a.paracel_write("narrow", std::vector<int>{1, 2});
      EXPECT_EQ(a.paracel_read_ref<std::vector<std::int64_t>>("narrow")[1], 2);
      EXPECT_THROW((void)a.paracel_read_ref<std::vector<float>>("map"), type_error);
      EXPECT_THROW((void)a.paracel_read_ref<double>("no such key"), key_error);
      a.paracel_clear();
    }
  });
}

TEST(ReadRef, SaysWhatIsCached) {
  cluster c({.workers = 1, .servers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm, "", 100, 1, true);
    EXPECT_FALSE(a.is_cached("k"));
    EXPECT_THROW((void)a.get_cache<double>("k"), key_error);
    a.paracel_bupdate("k", 1.0);
    EXPECT_FALSE(a.is_cached("k"));
    (void)a.paracel_read<double>("k");
    EXPECT_TRUE(a.is_cached("k"));
    a.paracel_remove("k");
    EXPECT_FALSE(a.is_cached("k"));
    a.paracel_write("k", 3.0);
    a.paracel_update("k", 2.0, "libparacel_default.so", "paracel_max");
    EXPECT_FALSE(a.is_cached("k")) << "what the function makes of it is not known here";
    EXPECT_EQ(a.paracel_read_ref<double>("k"), 3);
  });
}

TEST(Asp, NeverWaitsForASlowWorker) {
  cluster c({.workers = 2, .servers = 1});
  std::atomic<bool> fast_is_done{false};
  c.run([&](Comm comm) {
    paralg a("", comm);
    a.paracel_sync();
    if (a.get_worker_id() == 0) {
      for (int i = 0; i < 200; ++i) {
        a.paracel_update("x", 1.0);
        a.iter_commit();
        ASSERT_EQ(a.paracel_read<double>("x"), i + 1.0);
      }
      fast_is_done = true;
    } else {
      while (!fast_is_done) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    a.paracel_sync();
  });
}

class Bsp : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Bsp, AReadSeesExactlyTheFinishedIterationsOfEverybody) {
  const auto workers = GetParam();
  constexpr int iterations = 200;
  cluster c({.workers = workers, .servers = 2, .threads = 2});
  c.run([&](Comm comm) {
    paralg a("", comm, "", iterations, 0, true);
    a.set_consistency(consistency_model::bsp);
    const auto me = a.get_worker_id();
    if (me == 0) a.paracel_write("v", counts(workers, 0));
    a.paracel_sync();
    for (int i = 0; i < iterations; ++i) {
      ASSERT_EQ(a.paracel_read<counts>("v"), counts(workers, i)) << "worker " << me << " at " << i;
      counts one(workers, 0);
      one[me] = 1;
      a.paracel_update("v", one);
      // A second read within the iteration returns the same state.
      ASSERT_EQ(a.paracel_read<counts>("v"), counts(workers, i)) << "worker " << me << " at " << i;
      a.iter_commit();
    }
    ASSERT_EQ(a.paracel_read<counts>("v"), counts(workers, iterations));
  });
}

INSTANTIATE_TEST_SUITE_P(Workers, Bsp, ::testing::Values<std::size_t>(1, 2, 4, 8));

TEST(Bsp, FoldsInRankOrderSoThatRunsAreBitIdentical) {
  // Terms of very different magnitude: any other order of addition gives other bits.
  constexpr std::size_t workers = 4;
  constexpr int iterations = 50;
  const auto term = [](std::size_t rank, int i) {
    std::mt19937_64 random(rank * 1000 + static_cast<std::size_t>(i));
    return std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 60) - 90);
  };
  double serial = 0.1;
  for (int i = 0; i < iterations; ++i)
    for (std::size_t r = 0; r < workers; ++r) serial += term(r, i);

  for (int repetition = 0; repetition < 3; ++repetition) {
    double parallel = 0;
    cluster c({.workers = workers, .servers = 3});
    c.run([&](Comm comm) {
      paralg a("", comm, "", iterations, 0, true);
      a.set_consistency(consistency_model::bsp);
      if (a.get_worker_id() == 0) a.paracel_write("sum", 0.1);
      a.paracel_sync();
      std::mt19937 random(static_cast<unsigned>(repetition * 10) + static_cast<unsigned>(a.get_worker_id()));
      for (int i = 0; i < iterations; ++i) {
        (void)a.paracel_read<double>("sum");
        if (random() % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds{random() % 300});
        a.paracel_update("sum", term(a.get_worker_id(), i));
        a.iter_commit();
      }
      const auto end = a.paracel_read<double>("sum");
      if (a.get_worker_id() == 0) parallel = end;
    });
    EXPECT_EQ(parallel, serial);
  }
}

// What a shard pushes when the clock advances is not folded yet: under BSP reads must ask the server.
TEST(Ssp, ASubscriptionDoesNotHideWhatBspHasStaged) {
  cluster c({.workers = 2, .servers = 2});
  c.run([](Comm comm) {
    paralg a("", comm);
    a.set_consistency(consistency_model::bsp);
    if (comm.get_rank() == 0) a.paracel_write("k", 0.0);
    a.paracel_sync();
    a.paracel_subscribe({"k"});
    for (int round = 1; round <= 20; ++round) {
      a.paracel_update("k", 1.0);
      a.iter_commit();
      ASSERT_EQ(a.paracel_read<double>("k"), 2.0 * round);
    }
  });
}

}  // namespace
}  // namespace paracel
