// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>
#include <string>
#include <thread>

#include <paracel/paralg.hpp>

#include "test/support/cluster.hpp"
#include "test/support/paths.hpp"

namespace paracel {
namespace {

using test::cluster;

TEST(Paralg, WritesReadsAndRemovesEveryKindOfValue) {
  cluster c({.workers = 1, .servers = 3, .threads = 2});
  c.run([](Comm comm) {
    paralg a("", comm);
    a.paracel_write("int", 7);
    a.paracel_write("double", 0.1);
    a.paracel_write("text", "hello");
    a.paracel_write("vector", std::vector<float>{1, 2, 3});
    a.paracel_write("nested", std::map<std::string, std::vector<std::string>>{{"a", {"b", "c"}}});
    EXPECT_EQ(a.paracel_read<int>("int"), 7);
    EXPECT_EQ(a.paracel_read<double>("int"), 7.0);  // wider without loss
    EXPECT_EQ(a.paracel_read<double>("double"), 0.1);
    EXPECT_EQ(a.paracel_read<std::string>("text"), "hello");
    EXPECT_EQ(a.paracel_read<std::vector<double>>("vector"), (std::vector<double>{1, 2, 3}));
    EXPECT_EQ((a.paracel_read<std::map<std::string, std::vector<std::string>>>("nested").at("a").at(1)), "c");
    EXPECT_THROW((void)a.paracel_read<int>("double"), type_error);
    EXPECT_TRUE(a.paracel_contains("int"));
    EXPECT_TRUE(a.paracel_remove("int"));
    EXPECT_FALSE(a.paracel_remove("int"));
    EXPECT_FALSE(a.paracel_contains("int"));
  });
}

TEST(Paralg, AValueOfAnotherTypeIsNamedWithItsKeyItsTypeAndTheOneWanted) {
  cluster c({.workers = 1, .servers = 2});
  c.run([](Comm comm) {
    for (const auto model : {consistency_model::bsp, consistency_model::ssp, consistency_model::asp}) {
      paralg a("", comm);
      a.set_consistency(model);
      a.paracel_write("theta", std::vector<double>{1, 2});
      a.paracel_write("word", std::string("x"));
      const auto text = [](auto&& call) {
        try {
          call();
        } catch (const type_error& e) {
          return std::string(e.what());
        }
        return std::string("no type_error");
      };
      const std::string as_int = "key \"theta\": value is f64 array, asked for i32";
      const std::string as_text = "key \"theta\": value is f64 array, asked for string";
      EXPECT_EQ(text([&] { (void)a.paracel_read<int>("theta"); }), as_int);
      EXPECT_EQ(text([&] { (void)a.paracel_read<int>("theta"); }), as_int) << "from the cache, too";
      EXPECT_EQ(text([&] { (void)a.paracel_read_multi<std::string>({"word", "theta"}); }), as_text);
      EXPECT_EQ(text([&] { (void)a.paracel_readall<std::string>(); }), as_text);
    }
  });
}

TEST(Paralg, ReadingAKeyThatIsNotThereNamesIt) {
  cluster c({.workers = 1, .servers = 1});
  c.run([](Comm comm) {
    paralg a("", comm);
    double untouched = 5;
    EXPECT_FALSE(a.paracel_read("no_such_key", untouched));
    EXPECT_EQ(untouched, 5);
    try {
      (void)a.paracel_read<double>("no_such_key");
      FAIL() << "no error";
    } catch (const key_error& e) {
      EXPECT_NE(std::string(e.what()).find("no_such_key"), std::string::npos);
    }
    EXPECT_THROW((void)a.paracel_read_multi<double>({"no_such_key"}), key_error);
  });
}

TEST(Paralg, ConcurrentUpdatesOfEightWorkersSumExactly) {
  constexpr std::size_t workers = 8;
  constexpr int updates = 500;
  cluster c({.workers = workers, .servers = 2, .threads = 2});
  c.run([](Comm comm) {
    paralg a("", comm);
    a.paracel_sync();
    for (int i = 0; i < updates; ++i) {
      a.paracel_update("sum", std::int64_t{1});
      if (i % 10 == 0) a.paracel_bupdate("vector", std::vector<std::int64_t>{1, static_cast<std::int64_t>(i)});
    }
    a.iter_commit();
    a.paracel_sync();
    EXPECT_EQ(a.paracel_read<std::int64_t>("sum"), static_cast<std::int64_t>(workers) * updates);
    EXPECT_EQ(a.paracel_read<std::vector<std::int64_t>>("vector")[0],
              static_cast<std::int64_t>(workers) * updates / 10);
  });
}

TEST(Paralg, UpdateThatReturnsTheNewValueSavesTheRead) {
  cluster c({.workers = 1, .servers = 1});
  c.run([](Comm comm) {
    paralg a("", comm);
    a.paracel_write("v", std::vector<double>{1, 2});
    std::vector<double> now;
    a.paracel_bupdate_get("v", std::vector<double>{10, 20}, now);
    EXPECT_EQ(now, (std::vector<double>{11, 22}));
  });
}

TEST(Paralg, LargeValuesTravelInAFrameOfTheirOwn) {
  cluster c({.workers = 2, .servers = 2});
  c.run([](Comm comm) {
    paralg a("", comm);
    const std::vector<double> big(200'000, 1.5);  // 1.6 MB
    if (a.get_worker_id() == 0) a.paracel_write("big", big);
    a.paracel_sync();
    EXPECT_EQ(a.paracel_read<std::vector<double>>("big"), big);
    a.paracel_sync();
    a.paracel_bupdate("big", big);
    a.paracel_sync();
    EXPECT_EQ(a.paracel_read<std::vector<double>>("big"), std::vector<double>(200'000, 4.5));
    EXPECT_EQ(a.paracel_read_multi<std::vector<double>>({"big", "big"})[1][7], 4.5);
  });
}

TEST(Paralg, MultiCallsAgreeWithAMap) {
  cluster c({.workers = 1, .servers = 3, .threads = 3});
  c.run([](Comm comm) {
    paralg a("", comm);
    std::mt19937 random(5);
    std::map<std::string, double> model;
    for (int step = 0; step < 300; ++step) {
      std::vector<std::string> keys;
      std::vector<double> values;
      for (unsigned i = 0; i < random() % 40; ++i) {
        keys.push_back("k" + std::to_string(random() % 60));
        values.push_back(static_cast<double>(random() % 1000));
      }
      switch (random() % 6) {
        case 0: {
          dict_type<std::string, double> d;
          for (std::size_t i = 0; i < keys.size(); ++i) d[keys[i]] = values[i];
          a.paracel_write_multi(d);
          for (const auto& [k, v] : d) model[k] = v;
          break;
        }
        case 1:
          a.paracel_update_multi(keys, values);
          for (std::size_t i = 0; i < keys.size(); ++i) model[keys[i]] += values[i];
          break;
        case 2: {
          const auto got = a.paracel_bupdate_multi_get(keys, values);
          for (std::size_t i = 0; i < keys.size(); ++i) {
            model[keys[i]] += values[i];
            ASSERT_EQ(got[i], model[keys[i]]);
          }
          break;
        }
        case 3: {
          bool all = true;
          std::map<std::string, int> gone;
          for (const auto& k : keys) all = model.erase(k) > 0 && all;
          ASSERT_EQ(a.paracel_remove_multi(keys), all);
          break;
        }
        case 4: {
          dict_type<std::string, double> got;
          a.paracel_read_multi(keys, got);
          for (const auto& k : keys) {
            ASSERT_EQ(got.count(k), model.count(k)) << k;
            if (model.count(k) > 0) {
              ASSERT_EQ(got[k], model[k]) << k;
            }
          }
          break;
        }
        default:
          if (random() % 10 == 0) {
            a.paracel_clear();
            model.clear();
          }
      }
    }
    for (const auto& [k, v] : model) EXPECT_EQ(a.paracel_read<double>(k), v);
  });
}

TEST(Paralg, AFailingUpdateIsToldToItsFutureOrToTheNextCommit) {
  cluster c({.workers = 1, .servers = 1});
  c.run([](Comm comm) {
    paralg a("", comm);
    a.paracel_write("v", std::vector<double>{1, 2});
    auto watched = a.paracel_update("v", std::vector<double>{1, 2, 3});
    EXPECT_THROW((void)watched.get(), error);
    a.iter_commit();  // the failure is reported once
    (void)a.paracel_update("v", std::vector<double>{1, 2, 3});
    EXPECT_THROW(a.iter_commit(), error);
    EXPECT_EQ(a.paracel_read<std::vector<double>>("v"), (std::vector<double>{1, 2}));
    auto good = a.paracel_update("v", std::vector<double>{1, 1});
    EXPECT_TRUE(good.get());
  });
}

TEST(Paralg, APluginThatFailsBecomesAnErrorAndTheServerLives) {
  cluster c({.workers = 1, .servers = 2, .plugin_folders = {test::plugin_folder()}});
  c.run([](Comm comm) {
    paralg a("", comm);
    EXPECT_THROW((void)a.paracel_register_update("no_such_plugin.so", "f"), plugin_error);
    EXPECT_THROW((void)a.paracel_register_update("../../../etc/passwd", "f"), plugin_error);
    EXPECT_THROW((void)a.paracel_update("k", 1.0, {"libgood_updates.so", ""}), plugin_error);
    EXPECT_THROW((void)a.paracel_bupdate("k", 1.0, {"", "", {{"lr", 1}}}), plugin_error);
    a.paracel_write("v", 1.0);
    EXPECT_EQ(a.paracel_read<double>("v"), 1.0);
  });
}

TEST(Comm, CollectivesOfLocalProcessesAgreeWithPlainLoops) {
  for (const std::size_t workers : {1UL, 2UL, 5UL}) {
    cluster c({.workers = workers, .servers = 1});
    c.run([&](Comm comm) {
      const auto rank = comm.get_rank();
      ASSERT_EQ(comm.get_size(), workers);
      int sum = static_cast<int>(rank) + 1;
      comm.allreduce(sum);
      EXPECT_EQ(sum, static_cast<int>(workers * (workers + 1) / 2));
      std::vector<double> v{static_cast<double>(rank), -static_cast<double>(rank)};
      comm.allreduce(v, reduce_op::max);
      EXPECT_EQ(v, (std::vector<double>{static_cast<double>(workers) - 1, 0}));
      std::size_t least = rank + 3;
      comm.allreduce(least, reduce_op::min);
      EXPECT_EQ(least, 3U);
      std::string text = rank == workers - 1 ? "from the last" : "";
      comm.bcast(text, workers - 1);
      EXPECT_EQ(text, "from the last");
      std::vector<std::vector<int>> out(workers), in;
      for (std::size_t r = 0; r < workers; ++r) out[r] = {static_cast<int>(rank), static_cast<int>(r)};
      comm.alltoall(out, in);
      for (std::size_t r = 0; r < workers; ++r)
        EXPECT_EQ(in[r], (std::vector<int>{static_cast<int>(r), static_cast<int>(rank)}));
      std::vector<int> mine{static_cast<int>(rank)};
      const auto folded = comm.treereduce(mine, [](const std::vector<int>& got, std::vector<int>& into) {
        into.insert(into.end(), got.begin(), got.end());
      });
      if (rank == 0) {
        ASSERT_EQ(folded.size(), workers);
        for (std::size_t r = 0; r < workers; ++r) EXPECT_EQ(folded[r], static_cast<int>(r));
      } else {
        EXPECT_TRUE(folded.empty());
      }
      std::vector<double> large(100'000, static_cast<double>(rank));  // in a separate frame
      comm.allreduce(large);
      EXPECT_EQ(large[99'999], static_cast<double>(workers * (workers - 1) / 2));
      comm.synchronize();
    });
  }
}

TEST(Job, EveryoneBlockedLearnsOfALostWorkerWithinTheHeartbeatLimit) {
  cluster c({.workers = 3, .servers = 2, .heartbeat_limit = std::chrono::milliseconds{1000}});
  std::atomic<int> told{0};
  std::atomic<bool> one_is_gone{false};
  const auto start = std::chrono::steady_clock::now();
  c.run([&](Comm comm) {
    paralg a("", comm, "", 10, 0, true);
    a.paracel_sync();
    if (a.get_worker_id() == 2) {
      c.silence(comm);  // its heartbeat stops, and it never leaves
      one_is_gone = true;
      return;
    }
    while (!one_is_gone) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    try {
      if (a.get_worker_id() == 0) {
        a.paracel_sync();  // blocked at the scheduler
      } else {
        a.iter_commit();
        (void)a.paracel_contains("x");  // blocked at the clock
      }
      ADD_FAILURE() << "worker " << a.get_worker_id() << " was not told";
    } catch (const job_error& e) {
      EXPECT_NE(std::string(e.what()).find("worker 2"), std::string::npos) << e.what();
      EXPECT_EQ(e.status(), exit_status::worker_lost);
      ++told;
    }
  });
  EXPECT_EQ(told.load(), 2);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{5});
}

}  // namespace
}  // namespace paracel
