// SPDX-License-Identifier: BSD-3-Clause
//
// The staleness rule, watched from outside: every worker publishes what it has begun to commit before it commits, so that
// a read may be compared with a lower bound on everybody's progress.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include <paracel/paralg.hpp>

#include "test/support/cluster.hpp"

namespace paracel {
namespace {

using test::cluster;
using test::cluster_options;

using counts = std::vector<std::int64_t>;

std::string key_of(std::size_t worker) { return "count_" + std::to_string(worker); }

class Ssp : public ::testing::TestWithParam<std::tuple<int, std::size_t>> {};

TEST_P(Ssp, LeadNeverExceedsTheStalenessAndReadsHoldWhatTheRulePromises) {
  const auto [s, workers] = GetParam();
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int iterations = 300;
#else
  constexpr int iterations = 2000;
#endif
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
      // Everybody is slow at times, worker 0 more often.
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

INSTANTIATE_TEST_SUITE_P(Staleness, Ssp, ::testing::Combine(::testing::Values(0, 1, 3, 10),
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
      // A second look within the iteration sees the same state.
      ASSERT_EQ(a.paracel_read<counts>("v"), counts(workers, i)) << "worker " << me << " at " << i;
      a.iter_commit();
    }
    ASSERT_EQ(a.paracel_read<counts>("v"), counts(workers, iterations));
  });
}

INSTANTIATE_TEST_SUITE_P(Workers, Bsp, ::testing::Values<std::size_t>(1, 2, 4, 8));

TEST(Bsp, FoldsInRankOrderSoThatRunsAreBitIdentical) {
  // Terms of very different size: any other order of addition gives other bits.
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

}  // namespace
}  // namespace paracel
