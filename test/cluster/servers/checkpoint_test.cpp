// SPDX-License-Identifier: BSD-3-Clause
//
// Checkpoints of whole jobs: their contents, which workers stop for them, the effect of failures on the run, and that a
// bsp run resumed from one is bit-identical to an uninterrupted run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <paracel/paralg.hpp>
#include <paracel/table.hpp>

#include "storage/checkpoint_store.hpp"
#include "test/support/cluster.hpp"
#include "test/support/crash_disk.hpp"
#include "test/support/temporary_folder.hpp"

namespace paracel {
namespace {

using nlohmann::json;
using test::cluster;
using test::cluster_options;
using testing::ElementsAre;
using testing::HasSubstr;

/// Events of a scheduler, received on its thread.
class event_list {
 public:
  srv::scheduler::event_sink sink() {
    return [this](std::string_view text, bool) {
      const std::lock_guard lock(mutex_);
      all_.push_back(json::parse(text));
    };
  }
  std::vector<json> of(const std::string& kind) {
    const std::lock_guard lock(mutex_);
    std::vector<json> found;
    for (const auto& e : all_)
      if (e["event"] == kind) found.push_back(e);
    return found;
  }
  /// Waits for the first event of this kind.
  json first(const std::string& kind) {
    for (int i = 0; i < 5000; ++i) {
      if (const auto all = of(kind); !all.empty()) return all.front();
      std::this_thread::sleep_for(std::chrono::milliseconds{2});
    }
    ADD_FAILURE() << "no event " << kind;
    return {};
  }

 private:
  std::mutex mutex_;
  std::vector<json> all_;
};

class Checkpoint : public testing::Test {
 protected:
  cluster_options options(std::size_t workers, std::size_t servers, std::uint32_t threads, std::uint32_t every) {
    cluster_options o{.workers = workers, .servers = servers, .threads = threads};
    o.checkpoints.plan.folder = folder_;
    o.checkpoints.plan.every = every;
    o.events = events_.sink();
    return o;
  }
  void resume(cluster_options& o, std::uint32_t clock) const {
    o.checkpoints.plan.resume = folder_ + "/" + storage::checkpoint_folder_name(clock);
    const auto m = storage::verify_checkpoint(storage::posix_file_system(), o.checkpoints.plan.resume);
    o.checkpoints.plan.clock = m.clock;
    o.checkpoints.plan.workers = m.workers;
  }
  [[nodiscard]] std::vector<std::uint32_t> clocks() const {
    return storage::checkpoint_clocks(storage::posix_file_system(), folder_);
  }

  const test::temporary_folder made_{"paracel_checkpoint_"};
  const std::string folder_ = made_.path();
  event_list events_;
};

using numbers = std::vector<double>;

/// Uses everything that a job can store in its servers, and a random engine in each worker. The bits of its sums depend
/// on the order.
class wanderer : public paralg {
 public:
  wanderer(Comm comm, int rounds) : paralg("", std::move(comm), "", rounds) {
    set_consistency(consistency_model::bsp);
    random_.seed(get_worker_id() + 1);
  }
  void walk(int rounds) {
    const int begin = first_iteration();
    table<float> rows(*this, "rows", 3, row_init::uniform(-1, 1, 7),
                      {"libparacel_default.so", "paracel_adagrad", {{"lr", 0.1}}});
    const auto init = row_init::uniform(-1, 1, 8);
    rounded_.emplace(*this, "rounded", 2, init, row_optimizer(), table_options{.wire = wire_format::i8});
    rounded_->restore_residuals(kept_);
    if (get_worker_id() == 0 && !resumed()) paracel_write("w", numbers(5, 1.0));
    paracel_sync();
    for (int i = begin; i < rounds; ++i) {
      auto w = paracel_read<numbers>("w");
      std::uniform_real_distribution<double> some(-1, 1);
      for (auto& x : w) x = x * 0.1 + some(random_) / 3;
      seen_ += w[0];
      paracel_update("w", w);
      paracel_update("opt", w, {"libparacel_default.so", "paracel_adagrad", {{"lr", 0.05}}});
      paracel_update_default("first_" + std::to_string(i % 3), 0.5, w[1]);
      paracel_bupdate("commits", std::int64_t{1});
      const std::vector<std::uint64_t> ids{static_cast<std::uint64_t>(i % 4), 77};
      std::vector<float> gradients(6, static_cast<float>(w[2]));
      rows.update(ids, gradients);
      rounded_->update(ids, numbers{w[3], w[4], 0.01 * w[3], 0.1 * w[4]});
      iter_commit();
    }
    paracel_sync();
    result.push_back(paracel_read<numbers>("w"));
    result.push_back(paracel_read<numbers>("opt"));
    result.push_back({paracel_read<double>("first_0"), paracel_read<double>("first_2"), seen_});
    std::vector<float> all(5 * 3);
    rows.pull(std::vector<std::uint64_t>{0, 1, 2, 3, 77}, all);
    result.emplace_back(all.begin(), all.end());
    table<double> exact(*this, "rounded", 2, init);
    numbers sums(5 * 2);
    exact.pull(std::vector<std::uint64_t>{0, 1, 2, 3, 77}, sums);
    result.push_back(sums);
    commits = paracel_read<std::int64_t>("commits");
    paracel_sync();
  }
  void checkpoint_state(saved_state& to) override {
    to.put("seen", seen_);
    to.put_random("random", random_);
    to.put("kept", rounded_->residuals());
  }
  void restore_state(const saved_states& from) override {
    others = from.same_workers() ? 0 : from.all().size();
    from.own().get("seen", seen_);
    if (!from.same_workers()) return;
    from.own().get_random("random", random_);
    from.own().get("kept", kept_);
  }

  std::vector<numbers> result;
  std::int64_t commits = 0;
  std::size_t others = 0;

 private:
  std::mt19937_64 random_;
  double seen_ = 0;
  std::optional<table<double>> rounded_;
  std::string kept_;  // of it, by the worker that was resumed
};

/// Runs to `rounds` and returns the final state of every worker.
std::vector<std::vector<numbers>> walk(cluster_options o, int rounds, std::int64_t* commits = nullptr) {
  std::vector<std::vector<numbers>> ends(o.workers);
  cluster c(std::move(o));
  c.run([&](Comm comm) {
    wanderer a(comm, rounds);
    a.walk(rounds);
    ends[a.get_worker_id()] = a.result;
    if (commits != nullptr && a.get_worker_id() == 0) *commits = a.commits;
  });
  return ends;
}

TEST_F(Checkpoint, ABspRunThatGoesOnFromOneEndsWithTheSameBits) {
  constexpr int rounds = 12;
  const auto undisturbed = walk({.workers = 3, .servers = 2}, rounds);
  EXPECT_EQ(walk(options(3, 2, 2, 5), rounds), undisturbed) << "making checkpoints changes nothing";
  EXPECT_THAT(clocks(), ElementsAre(5, 10));
  const std::vector<std::pair<std::size_t, std::uint32_t>> shapes{{2, 2}, {1, 1}, {5, 1}, {2, 3}};
  for (const auto& [servers, threads] : shapes) {
    for (const std::uint32_t clock : {5U, 10U}) {
      auto o = options(3, servers, threads, 0);
      resume(o, clock);
      std::int64_t commits = 0;
      EXPECT_EQ(walk(o, rounds, &commits), undisturbed) << servers << " servers, clock " << clock;
      EXPECT_EQ(commits, 3 * rounds);
    }
  }
}

TEST_F(Checkpoint, AChainOfRunsThatAreStoppedEndsWithTheSameBits) {
  constexpr int rounds = 9;
  const auto undisturbed = walk({.workers = 2, .servers = 2}, rounds);
  walk(options(2, 2, 1, 3), 4);
  for (const std::uint32_t clock : {3U, 6U}) {
    auto o = options(2, clock == 3 ? 3 : 1, 2, 3);
    resume(o, clock);
    const auto end = walk(o, clock == 3 ? 7 : rounds);
    if (clock == 6) {
      EXPECT_EQ(end, undisturbed);
    }
  }
  EXPECT_THAT(clocks(), ElementsAre(3, 6, 9));
}

TEST_F(Checkpoint, WithCopiesTheyAreReadBackEverywhereSoThatALossAfterwardsChangesNoBit) {
  constexpr int rounds = 12;
  const auto undisturbed = walk({.workers = 2, .servers = 2}, rounds);
  auto first = options(2, 3, 2, 5);
  first.replicas = 2;
  EXPECT_EQ(walk(first, rounds), undisturbed);
  for (const std::size_t lost : {0U, 2U}) {
    auto o = options(2, 3, 1, 0);
    o.replicas = 2;
    resume(o, 5);
    std::vector<std::vector<numbers>> ends(2);
    cluster c(o);
    c.run([&](Comm comm) {
      wanderer a(comm, rounds);
      a.paracel_sync();
      if (a.get_worker_id() == 0) {
        EXPECT_NE(c.lose(lost), 0U) << "the job continues";
      }
      a.walk(rounds);
      ends[a.get_worker_id()] = a.result;
    });
    EXPECT_EQ(ends, undisturbed) << "without s" << lost;
  }
}

TEST_F(Checkpoint, AnotherNumberOfWorkersGoesOnWithTheParametersAndGetsAllStates) {
  walk(options(3, 2, 1, 4), 4);
  for (const std::size_t workers : {1U, 5U}) {
    auto o = options(workers, 2, 1, 0);
    resume(o, 4);
    cluster c(o);
    c.run([&](Comm comm) {
      wanderer a(comm, 6);
      EXPECT_TRUE(a.resumed());
      a.walk(6);
      EXPECT_EQ(a.first_iteration(), 4);
      EXPECT_EQ(a.others, 3U);
      EXPECT_EQ(a.commits, static_cast<std::int64_t>(3 * 4 + workers * 2));
    });
  }
}

TEST_F(Checkpoint, WhoeverAsksGetsOneAtTheFirstClockThatNobodyHasPassed) {
  cluster c(options(3, 2, 1, 0));
  c.run([&](Comm comm) {
    paralg a("", comm, "", 100, 3, true);
    for (int i = 0; i < 60; ++i) {  // so slowly that the checkpoint is made before the end
      if (i == 20 && a.get_worker_id() == 1) c.scheduler().ask_for_checkpoint();
      a.paracel_update("k", std::int64_t{1});
      a.iter_commit();
      std::this_thread::sleep_for(std::chrono::milliseconds{a.get_worker_id() == 2 ? 15 : 1});
    }
    a.paracel_sync();
    EXPECT_EQ(a.paracel_read<std::int64_t>("k"), 180);
  });
  const auto made = events_.first("checkpoint");
  const auto clock = made["clock"].get<std::uint32_t>();
  EXPECT_EQ(events_.first("checkpoint_asked")["clock"], clock);
  EXPECT_GT(clock, 20U);
  const auto m =
      storage::verify_checkpoint(storage::posix_file_system(), folder_ + "/" + storage::checkpoint_folder_name(clock));
  EXPECT_EQ(m.files.size(), 3U + 2U);
  auto o = options(3, 1, 1, 0);
  resume(o, clock);
  cluster again(o);
  again.run([&](Comm comm) {
    paralg a("", comm, "", 100, 3, true);
    EXPECT_EQ(a.paracel_read<std::int64_t>("k"), 3 * clock)
        << "every update of the first " << clock << " iterations, no other";
  });
}

TEST_F(Checkpoint, AFullDiskOfAServerIsReportedAndTheRunGoesOn) {
  test::crash_disk disk;  // before the cluster, which writes to it
  cluster c(options(2, 2, 1, 2));
  c.run([&](Comm comm) {
    paralg a("", comm);
    for (int i = 0; i < 6; ++i) {
      if (i == 2 && a.get_worker_id() == 0) {
        c.node(1).object().use_disk(disk);  // no shard is writing now: the next checkpoint is at clock 4
        disk.fill_at(0);
      }
      a.paracel_update("k", std::int64_t{1});
      a.paracel_sync();
      a.iter_commit();
    }
    a.paracel_sync();
    EXPECT_EQ(a.paracel_read<std::int64_t>("k"), 12);
  });
  EXPECT_THAT(events_.first("checkpoint_failed")["why"].get<std::string>(), HasSubstr("No space left on device"));
  EXPECT_EQ(events_.of("checkpoint_failed").size(), 2U);
  EXPECT_EQ(storage::choose_checkpoint(storage::posix_file_system(), folder_).manifest.clock, 2U);
  for (int i = 0; i < 1000 && clocks().size() > 1; ++i) std::this_thread::sleep_for(std::chrono::milliseconds{2});
  EXPECT_THAT(clocks(), ElementsAre(2)) << "partial files are removed";
}

TEST_F(Checkpoint, WhatAnAlgorithmCannotSaveMakesTheCheckpointFailAndNothingElse) {
  class forgetful : public paralg {
   public:
    using paralg::paralg;
    void checkpoint_state(saved_state&) override {
      if (get_worker_id() == 1) throw error("the diary is lost");
    }
  };
  cluster c(options(2, 1, 1, 3));
  c.run([&](Comm comm) {
    forgetful a("", comm);
    for (int i = 0; i < 5; ++i) a.iter_commit();
  });
  EXPECT_EQ(events_.first("checkpoint_failed")["why"], "worker 1: the diary is lost");
  EXPECT_TRUE(events_.of("checkpoint").empty());
}

TEST_F(Checkpoint, AWorkerThatDoesNotComeIsNamedAndTheOthersGoOn) {
  auto o = options(3, 1, 1, 4);
  o.checkpoints.gather_limit = std::chrono::milliseconds{300};
  cluster c(o);
  c.run([&](Comm comm) {
    paralg a("", comm);
    for (int i = 0; i < (a.get_worker_id() == 2 ? 3 : 5); ++i) a.iter_commit();
    a.paracel_sync();  // worker 2 waits here for the others, which wait for it at clock 4
    if (a.get_worker_id() == 2) a.iter_commit();
  });
  EXPECT_EQ(events_.first("checkpoint_failed")["why"], "worker 2 did not reach clock 4");
}

TEST_F(Checkpoint, AWorkerThatHasLeftIsNotWaitedFor) {
  cluster c(options(3, 1, 1, 4));
  c.run([&](Comm comm) {
    paralg a("", comm);
    for (int i = 0; i < (a.get_worker_id() == 2 ? 3 : 5); ++i) a.iter_commit();
  });
  EXPECT_EQ(events_.first("checkpoint")["clock"], 4);
  EXPECT_EQ(storage::verify_checkpoint(storage::posix_file_system(), folder_ + "/0000000004").files.size(), 2U + 1U);
}

TEST_F(Checkpoint, OneThatIsDamagedBetweenChoosingAndReadingEndsTheJobWithFileAndOffset) {
  walk(options(2, 1, 1, 4), 4);
  auto o = options(2, 1, 1, 0);
  resume(o, 4);
  const auto path = o.checkpoints.plan.resume + "/server-0-0.ckpt";
  storage::posix_file_system disk;
  auto bytes = disk.read(path, 1 << 24);
  bytes[100] ^= std::byte{1};
  disk.write(path, bytes);
  cluster c(o);
  try {
    c.run([](Comm comm) { wanderer(comm, 6).walk(6); });
    ADD_FAILURE() << "it went on";
  } catch (const job_error& e) {
    EXPECT_EQ(e.status(), exit_status::data);
    EXPECT_THAT(e.what(), HasSubstr("server-0-0.ckpt: byte 64: the checksum of the block"));
  }
}

TEST_F(Checkpoint, ThoseOfTwoAlgorithmsInARowKnowHowFarEachHadCome) {
  const auto both = [](Comm comm, int first, int second, std::vector<int>* begins) {
    const auto part = [&](int rounds, const std::string& key) {
      paralg a("", comm, "", rounds);
      if (begins != nullptr && a.get_worker_id() == 0) begins->push_back(a.first_iteration());
      for (int i = a.first_iteration(); i < rounds; ++i) {
        a.paracel_update(key, std::int64_t{1});
        a.iter_commit();
      }
      a.paracel_sync();
      EXPECT_EQ(a.paracel_read<std::int64_t>(key), 2 * rounds);
      a.paracel_sync();
    };
    part(first, "a");
    part(second, "b");
  };
  {
    cluster c(options(2, 1, 1, 5));
    c.run([&](Comm comm) { both(comm, 3, 4, nullptr); });
  }
  EXPECT_THAT(clocks(), ElementsAre(5));
  auto o = options(2, 1, 1, 0);
  resume(o, 5);
  std::vector<int> begins;
  cluster c(o);
  c.run([&](Comm comm) { both(comm, 3, 4, &begins); });
  EXPECT_THAT(begins, ElementsAre(3, 2));
}

TEST_F(Checkpoint, OnlyTheNewestAreKept) {
  auto o = options(1, 1, 1, 1);
  o.checkpoints.keep = 2;
  cluster c(o);
  c.run([&](Comm comm) {
    paralg a("", comm);
    for (int i = 0; i < 6; ++i) a.iter_commit();
  });
  for (int i = 0; i < 1000 && clocks().size() > 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds{2});
  EXPECT_THAT(clocks(), ElementsAre(5, 6));
}

TEST_F(Checkpoint, TheFirstIterationIsNotMissed) {
  for (int i = 0; i < 20; ++i) {
    cluster(options(3, 1, 1, 1)).run([](Comm comm) {
      paralg job("", comm);
      job.iter_commit();
    });
    EXPECT_THAT(clocks(), ElementsAre(1)) << "job " << i;
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
}

}  // namespace
}  // namespace paracel
