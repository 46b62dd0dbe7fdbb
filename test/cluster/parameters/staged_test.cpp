// SPDX-License-Identifier: BSD-3-Clause
//
// Staged updates under BSP: when they are folded, how much memory they use, and how a failed fold is reported. Also,
// under every consistency model, updates that fail when no call waits for them any more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include <paracel/paralg.hpp>
#include <paracel/table.hpp>

#include "test/support/cluster.hpp"
#include "test/support/paths.hpp"
#include "worker/parameters/parasrv.hpp"

namespace paracel {
namespace {

using test::cluster;

std::uint64_t sum_over_shards(cluster& c, std::size_t servers, const char* what) {
  std::uint64_t n = 0;
  for (std::size_t s = 0; s < servers; ++s) {
    const auto stats = nlohmann::json::parse(c.node(s).object().stats_json());
    for (const auto& shard : stats["shards"]) n += shard[what].get<std::uint64_t>();
  }
  return n;
}

// 100 rounds of 160 kB each from two workers, with a new key each: 32 MB if nothing were folded before it is read.
TEST(Bsp, MemoryOfWhatIsUpdatedAndNeverReadStaysBounded) {
  for (const std::uint32_t replicas : {1U, 2U}) {
    cluster c({.workers = 2, .servers = 2, .threads = 2, .replicas = replicas});
    c.run([&](Comm comm) {
      paralg a("", comm);
      a.set_consistency(consistency_model::bsp);
      const std::vector<double> delta(20'000, 1.0);
      table<float> rows(a, "rows", 4);
      for (int round = 0; round < 100; ++round) {
        a.paracel_update("large", delta);
        a.paracel_update("key" + std::to_string(round) + "of" + std::to_string(comm.get_rank()), 1.0);
        rows.update(std::array<std::uint64_t, 2>{1, 70 + comm.get_rank()}, std::vector<float>(8, 1));
        a.iter_commit();
      }
      comm.synchronize();
      if (comm.get_rank() != 0) return;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (sum_over_shards(c, 2, "staged") != 0 && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds{2});
      EXPECT_EQ(sum_over_shards(c, 2, "staged"), 0U);
      EXPECT_LT(sum_over_shards(c, 2, "memory_bytes"), replicas * (4U << 20U) + (20U << 20U))
          << "rows have slabs of 8 MB";
      EXPECT_EQ(a.paracel_read<std::vector<double>>("large"), std::vector<double>(20'000, 200.0));
    });
  }
}

/// The current value of a key, without staged updates.
double value_now(cluster& c, const std::string& key) {
  double value = -1;
  const auto client = c.client();
  client->wait(client->request({.what = net::verb::pull}, key, {}, [&](const kv_result& r) {
    if (r.ok()) value = decode<double>(r.value());
  }));
  return value;
}

TEST(Bsp, ASyncBringsWhatAllHaveCommittedIntoTheValuesAndEndsNoIteration) {
  cluster c({.workers = 2, .servers = 2});
  c.run([&](Comm comm) {
    paralg a("", comm);
    a.set_consistency(consistency_model::bsp);
    for (int round = 1; round <= 20; ++round) {
      a.paracel_update("x", 1.0);
      a.iter_commit();
      a.paracel_update("y", 1.0);
      a.paracel_sync();
      EXPECT_EQ(value_now(c, "x"), 2.0 * round);
      EXPECT_EQ(value_now(c, "y"), round == 1 ? -1 : 2.0 * (round - 1));
      a.paracel_sync();
    }
    a.iter_commit();
  });
}

TEST(Bsp, WhatNoCommitFollowsIsLostWithAWarning) {
  for (const std::uint32_t replicas : {1U, 2U}) {
    cluster c({.workers = 2, .servers = 2, .replicas = replicas});
    testing::internal::CaptureStderr();
    c.run([&](Comm comm) {
      paralg a("", comm);
      a.set_consistency(consistency_model::bsp);
      a.paracel_update("sum", 1.0);
      a.iter_commit();
      a.paracel_sync();
      if (comm.get_rank() == 1) {
        for (int i = 0; i < 3; ++i) a.paracel_update("sum", 100.0);
        return;
      }
      // The other worker continues alone, and its reads do not include what the first one has left behind.
      for (int i = 0; i < 5; ++i) a.iter_commit();
      EXPECT_EQ(a.paracel_read<double>("sum"), 2.0);
    });
    const auto said = testing::internal::GetCapturedStderr();
    EXPECT_THAT(said,
                testing::HasSubstr(
                    "worker 1: warning: updates since the last iter_commit are lost (3; one of them of key \"sum\")"));
    EXPECT_THAT(said, testing::Not(testing::HasSubstr("worker 0: warning")));
  }
}

// As the launcher does for a dead worker when the others continue without it.
TEST(Bsp, HalfAnIterationOfAWorkerThatIsTakenOutOfTheClockIsNotFolded) {
  for (const std::uint32_t replicas : {1U, 2U}) {
    cluster c({.workers = 2, .servers = 2, .replicas = replicas});
    std::atomic<bool> died{false};
    c.run([&](Comm comm) {
      paralg a("", comm);
      a.set_consistency(consistency_model::bsp);
      table<float> rows(a, "rows", 1);
      const std::array<std::uint64_t, 2> ids{1, 2};
      const auto all = [&](double amount) {
        a.paracel_update("sum", amount);
        rows.update(ids, std::vector<float>(2, static_cast<float>(amount)));
      };
      all(1);
      a.iter_commit();
      if (comm.get_rank() == 1) {
        all(100);
        for (int k = 0; k < 20; ++k) a.paracel_update("key" + std::to_string(k), 1.0);
        a.servers().flush();
        c.silence(comm);
        died = true;
        return;
      }
      while (!died) std::this_thread::sleep_for(std::chrono::milliseconds{1});
      server_group launcher(c.transport(), c.newest(), 1);
      launcher.wait(launcher.clock_request(net::verb::clock_tick, net::no_clock, [](const kv_result& r) {
        EXPECT_TRUE(r.ok());
        EXPECT_GT(r.header.count, 20U);
      }));
      all(10);
      a.iter_commit();
      EXPECT_EQ(a.paracel_read<double>("sum"), 12.0) << replicas;
      std::vector<float> got(2);
      rows.pull(ids, got);
      EXPECT_EQ(got, std::vector<float>(2, 12.0F));
      EXPECT_FALSE(a.paracel_contains("key3"));
    });
  }
}

// ---- updates that fail after they were acknowledged, or when no call waits for them --------------------------------

/// How a job ends: the text of the exception on its workers, or "".
std::string end_of(std::size_t workers, const std::function<void(paralg&, Comm)>& work, std::uint32_t replicas = 1) {
  cluster c({.workers = workers, .servers = 2, .replicas = replicas, .plugin_folders = {test::plugin_folder()}});
  try {
    c.run([&](Comm comm) {
      paralg a("", comm);
      work(a, comm);
    });
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

TEST(Bsp, AnUpdateOfAnotherSizeIsRefusedAtTheCommitAndByItsFuture) {
  const auto text = end_of(1, [](paralg& a, Comm) {
    a.set_consistency(consistency_model::bsp);
    a.paracel_write("a", std::vector<double>{1, 2});
    auto future = a.paracel_update("a", std::vector<double>{1, 2, 3});
    EXPECT_THROW((void)future.get(), type_error);
    a.paracel_update("a", std::vector<double>{1, 2, 3});
    a.iter_commit();
    ADD_FAILURE() << "the commit said nothing";
  });
  EXPECT_THAT(text, testing::HasSubstr("key \"a\""));
}

TEST(Bsp, WhatCouldNotBeFoldedEndsTheProgramAtTheNextSync) {
  const auto text = end_of(2, [](paralg& a, Comm comm) {
    a.set_consistency(consistency_model::bsp);
    a.paracel_register_update("server_updates", "refuse_negative_update");
    a.paracel_update("a", comm.get_rank() == 1 ? -1.0 : 1.0);
    a.iter_commit();
    a.paracel_sync();
    ADD_FAILURE() << "the sync said nothing";
  });
  EXPECT_THAT(text, testing::HasSubstr("key \"a\""));
  EXPECT_THAT(text, testing::HasSubstr("rank 1 in iteration 0"));
}

TEST(Bsp, WhatCouldNotBeFoldedEndsTheProgramAtItsEnd) {
  for (const std::uint32_t replicas : {1U, 2U}) {
    const auto text = end_of(
        2,
        [](paralg& a, Comm comm) {
          a.set_consistency(consistency_model::bsp);
          a.paracel_register_update("server_updates", "refuse_negative_update");
          a.paracel_update("a", comm.get_rank() == 1 ? -1.0 : 1.0);
          a.iter_commit();
        },
        replicas);
    EXPECT_THAT(text, testing::HasSubstr("key \"a\"")) << replicas;
    EXPECT_THAT(text, testing::HasSubstr("a negative delta")) << replicas;
  }
}

// Its future is never used, and no call follows.
TEST(Ssp, TheFailureOfTheLastUpdateEndsTheProgram) {
  for (const auto model : {consistency_model::asp, consistency_model::ssp, consistency_model::bsp}) {
    for (const bool many : {false, true}) {
      const auto text = end_of(1, [&](paralg& a, Comm) {
        a.set_consistency(model);
        a.paracel_write("last", std::vector<double>{1, 2});
        if (many) a.paracel_update_multi_async(dict_type<std::string, std::vector<double>>{{"last", {1, 2, 3}}});
        else a.paracel_update("last", std::vector<double>{1, 2, 3});
      });
      EXPECT_THAT(text, testing::HasSubstr("key \"last\""));
    }
  }
}

// A read in flight when the algorithm is destroyed writes nothing.
TEST(Ssp, AReadThatNobodyWaitsForIsForgottenWithItsAlgorithm) {
  EXPECT_EQ(end_of(1,
                   [](paralg& a, Comm) {
                     a.paracel_write("v", std::vector<double>(1000, 1.0));
                     for (int i = 0; i < 100; ++i) {
                       auto gone = std::make_unique<std::vector<double>>();
                       (void)a.paracel_read_async("v", *gone);
                     }
                   }),
            "");
}

}  // namespace
}  // namespace paracel
