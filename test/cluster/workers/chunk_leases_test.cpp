// SPDX-License-Identifier: BSD-3-Clause
//
// Leases on chunks: every chunk of an epoch counts once, whichever worker is slow, stalls or dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <paracel/chunk_leases.hpp>

#include "test/support/cluster.hpp"
#include "test/support/temporary_folder.hpp"

namespace paracel {
namespace {

using test::cluster;
using test::fate;
using testing::Each;
using milliseconds = std::chrono::milliseconds;
using numbers = std::vector<double>;

constexpr std::size_t chunks = 12;

/// 1 at the chunk's index, and its number in the last element.
numbers counted(std::size_t chunk) {
  numbers v(chunks + 1);
  v[chunk] = 1;
  v[chunks] = static_cast<double>(chunk);
  return v;
}

/// The sum of `counted` over all chunks, after this number of epochs.
numbers all_counted(std::size_t epochs) {
  numbers v(chunks + 1, static_cast<double>(epochs));
  v[chunks] = static_cast<double>(epochs * chunks * (chunks - 1) / 2);
  return v;
}

TEST(ChunkLeases, EachChunkOfAnEpochIsTakenOnceAndASlowWorkerTakesFewer) {
  constexpr int epochs = 5;
  for (const int staleness : {0, 2}) {
    std::mutex mutex;
    std::multiset<std::pair<std::int64_t, std::size_t>> all;
    std::size_t slow = 0;
    cluster c({.workers = 4, .servers = 2});
    c.run([&](Comm comm) {
      paralg job("", comm, "", epochs, staleness, true);
      chunk_leases leases(job, "leases", chunks, std::chrono::seconds(60));
      for (int epoch = 0; epoch < epochs; ++epoch) {
        while (const auto lease = leases.next(epoch, epoch + 1 < epochs ? staleness : 0)) {
          EXPECT_EQ(lease->number,
                    lease->epoch * static_cast<std::int64_t>(chunks) + static_cast<std::int64_t>(lease->chunk));
          std::this_thread::sleep_for(milliseconds(comm.get_rank() == 1 ? 20 : 1));
          {  // before the chunk is completed: then another worker may find that all are done
            const std::lock_guard lock(mutex);
            all.emplace(lease->epoch, lease->chunk);
            slow += static_cast<std::size_t>(comm.get_rank() == 1);
          }
          EXPECT_TRUE(leases.complete(*lease));
          EXPECT_FALSE(leases.complete(*lease));
        }
        if (staleness == 0) {
          const std::lock_guard lock(mutex);
          EXPECT_GE(all.size(), chunks * static_cast<std::size_t>(epoch + 1)) << "nothing means that all are done";
        }
        job.iter_commit();
      }
    });
    ASSERT_EQ(all.size(), chunks * epochs);
    for (int epoch = 0; epoch < epochs; ++epoch)
      for (std::size_t k = 0; k < chunks; ++k) EXPECT_EQ(all.count({epoch, k}), 1U) << epoch << ' ' << k;
    EXPECT_LT(slow, chunks * epochs / 4);
    EXPECT_GT(slow, 0U);
  }
}

TEST(ChunkLeases, AWorkerThatStallsLosesItsChunkAndWhatItThenAddsDoesNotCount) {
  constexpr int epochs = 3;
  std::atomic<int> late_adds = 0, late_completions = 0;
  cluster c({.workers = 3, .servers = 2});
  c.run([&](Comm comm) {
    paralg job("", comm);
    chunk_leases leases(job, "leases", chunks, milliseconds(150));
    bool stalled = false;
    std::optional<chunk_leases::lease> kept;
    for (int epoch = 0; epoch < epochs; ++epoch) {
      while (const auto lease = leases.next(epoch)) {
        std::this_thread::sleep_for(milliseconds(2));
        // Rank 1 stalls once between its two sums: another worker then adds to both, and counts in the second one.
        leases.add(*lease, "first", counted(lease->chunk));
        if (comm.get_rank() == 1 && !std::exchange(stalled, true)) {
          kept = lease;
          std::this_thread::sleep_for(milliseconds(800));
        }
        leases.add(*lease, "second", counted(lease->chunk));
        late_completions += static_cast<int>(!leases.complete(*lease));
      }
      const auto sum = leases.read("second");
      EXPECT_EQ(sum, all_counted(static_cast<std::size_t>(epoch) + 1));
      job.paracel_sync();
    }
    if (kept) {  // two epochs later
      EXPECT_EQ(leases.add(*kept, "second", counted(kept->chunk)), all_counted(epochs));
      ++late_adds;
    }
    job.paracel_sync();
    EXPECT_EQ(leases.read("first"), all_counted(epochs));
    EXPECT_EQ(leases.read("second"), all_counted(epochs));
  });
  EXPECT_EQ(late_adds, 1);
  EXPECT_GE(late_completions, 1);  // others may be late, too, on a busy machine
}

TEST(ChunkLeases, AChunkOfAWorkerThatIsGoneForEverIsDoneByAnother) {
  numbers sum;
  cluster c({.workers = 3, .servers = 1});
  c.run([&](Comm comm) {
    paralg job("", comm);
    chunk_leases leases(job, "leases", chunks, milliseconds(100));
    if (comm.get_rank() != 2) job.paracel_sync();
    while (const auto lease = leases.next(0)) {
      leases.add(*lease, "sum", counted(lease->chunk));
      if (comm.get_rank() == 2) {  // before it completes the chunk
        job.paracel_sync();
        return c.silence(comm);
      }
      std::this_thread::sleep_for(milliseconds(3));
      leases.complete(*lease);
    }
    if (comm.get_rank() == 0) sum = leases.read("sum");
  });
  EXPECT_EQ(sum, all_counted(1));
}

TEST(ChunkLeases, WorkersThatDieAnywhereAndAreReplacedChangeNoSum) {
  constexpr int epochs = 3;
  const auto run = [&](std::size_t workers, std::vector<std::vector<fate>> fates, bool stale) {
    const test::temporary_folder folder;
    fates.resize(workers);
    std::vector<numbers> sums(2 * workers);
    cluster c({.workers = workers, .servers = 2, .state_folder = folder.path()});
    const auto steps = c.run_with_deaths(
        [&](Comm comm) {
          paralg job("", comm, "", epochs, 1, stale);
          chunk_leases leases(job, "leases", chunks, milliseconds(30));
          for (int epoch = job.first_iteration(); epoch < epochs; ++epoch) {
            while (const auto lease = leases.next(epoch, stale && epoch + 1 < epochs ? 1 : 0)) {
              leases.add(*lease, "a", counted(lease->chunk));
              leases.add(*lease, "b", counted(lease->chunk));
              leases.complete(*lease);
            }
            job.iter_commit();
          }
          sums[2 * comm.get_rank()] = leases.read("a");
          sums[2 * comm.get_rank() + 1] = leases.read("b");
        },
        fates);
    EXPECT_THAT(sums, Each(all_counted(epochs)));
    return steps;
  };
  for (const bool stale : {false, true}) {
    const auto alive = run(2, {}, stale);
    for (std::uint32_t seed = 1; seed <= 60; ++seed) {
      std::mt19937 random(seed);
      const std::size_t workers = 1 + seed % 4;
      std::vector<std::vector<fate>> fates(workers);
      for (std::size_t deaths = 1 + random() % 4; deaths != 0; --deaths)
        fates[random() % workers].push_back({.step = random() % alive[0], .before = random() % 2 == 0});
      SCOPED_TRACE("seed " + std::to_string(seed));
      run(workers, fates, stale);
      if (HasFailure()) return;
    }
  }
}

TEST(ChunkLeases, WrongUseIsRefused) {
  cluster c({.workers = 1, .servers = 1});
  c.run([](Comm comm) {
    paralg job("", comm);
    EXPECT_THROW(chunk_leases(job, "leases", 0, milliseconds(5)), config_error);
    EXPECT_THROW(chunk_leases(job, "leases", 3, milliseconds(0)), config_error);
    chunk_leases leases(job, "leases", 1, milliseconds(50));
    const auto lease = leases.next(0);
    ASSERT_TRUE(lease.has_value());
    leases.write("sum", {1, 2});
    EXPECT_EQ(leases.add(*lease, "sum", {3, 4}), (numbers{4, 6}));
    EXPECT_EQ(leases.add(*lease, "sum", {3, 4}), (numbers{4, 6}));
    EXPECT_THROW(leases.add(*lease, "sum", {3}), error);
  });
}

}  // namespace
}  // namespace paracel
