// SPDX-License-Identifier: BSD-3-Clause
//
// Loops that resume, consecutive and nested ones: from every clock, with results that are bit-identical to those of an
// uninterrupted run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/resumable_loop.hpp>

#include "storage/checkpoint_store.hpp"
#include "test/support/cluster.hpp"
#include "test/support/temporary_folder.hpp"

namespace paracel {
namespace {

using numbers = std::vector<double>;
using test::cluster;
using test::cluster_options;

/// A program whose bits depend on the order of everything: a loop; an outer loop with collectives and an inner loop in
/// each iteration, both of which stop by themselves; another loop.
struct wanderer {
  explicit wanderer(paralg& j) : job(j), random(static_cast<unsigned>(j.get_worker_id()) + 1) {}

  double sum(double x) {
    auto comm = job.get_comm();
    comm.allreduce(x);
    return x;
  }
  numbers run(std::int64_t rounds) {
    numbers w{0.1, static_cast<double>(job.get_worker_id()), sum(1)};
    resumable_loop first(job);
    first.keep("w", w).keep_random("random", random);
    while (first.next(rounds)) {
      ++computed;
      w[1] += std::ldexp(static_cast<double>(random()), -32);
      w[0] = std::sin(w[0] + sum(w[1]));
    }
    double best = -1;
    double before = sum(w[1]);
    resumable_loop outer(job);
    outer.keep("best", best).keep("before", before);
    while (outer.next(100)) {
      ++computed;
      auto x = sum(w[0] + before + static_cast<double>(outer.iteration()));
      resumable_loop inner(job);
      inner.keep("x", x);
      while (inner.next()) {
        ++computed;
        x = std::cos(sum(x / 3));
        if (inner.iteration() == 1 + outer.iteration() % 2) inner.stop();
      }
      best = std::max(best, sum(x));
      before = x;
      if (outer.iteration() == 2) outer.stop();
    }
    resumable_loop last(job);
    last.keep("w", w);
    while (last.next(2)) {
      ++computed;
      w[2] += sum(w[2] * best);
    }
    w.push_back(best);
    return w;
  }

  paralg& job;
  int computed = 0;
  std::mt19937 random;
};

class ResumableLoop : public testing::Test {
 protected:
  cluster_options options(std::size_t workers, std::uint32_t every) {
    cluster_options o{.workers = workers, .servers = 1};
    o.checkpoints.plan.folder = folder_.path();
    o.checkpoints.plan.every = every;
    o.checkpoints.keep = 100;
    return o;
  }
  void resume(cluster_options& o, std::uint32_t clock) const {
    o.checkpoints.plan.resume = folder_.path() + "/" + storage::checkpoint_folder_name(clock);
    o.checkpoints.plan.clock = clock;
    o.checkpoints.plan.workers = static_cast<std::uint32_t>(o.workers);
  }
  [[nodiscard]] std::vector<std::uint32_t> clocks() const {
    return storage::checkpoint_clocks(storage::posix_file_system(), folder_.path());
  }
  test::temporary_folder folder_;
};

TEST_F(ResumableLoop, EndsFromEveryCheckpointWithTheBitsOfAnUndisturbedRun) {
  for (const std::size_t p : {1U, 2U}) {
    std::vector<numbers> undisturbed(p);
    std::vector<int> iterations(p);
    cluster({.workers = p, .servers = 1}).run([&](Comm comm) {
      paralg job("", comm);
      wanderer w(job);
      undisturbed[comm.get_rank()] = w.run(3);
      iterations[comm.get_rank()] = w.computed;
    });
    constexpr int all = 3 + 3 + (2 + 3 + 2) + 2;
    ASSERT_EQ(iterations[0], all);
    std::vector<std::uint32_t> made;
    {
      cluster(options(p, 1)).run([&](Comm comm) {
        paralg job("", comm);
        EXPECT_EQ(wanderer(job).run(3), undisturbed[comm.get_rank()]);
      });
      made = clocks();
    }
    ASSERT_EQ(made.size(), static_cast<std::size_t>(all));
    for (const auto clock : made) {
      auto o = options(p, 0);
      resume(o, clock);
      cluster(o).run([&](Comm comm) {
        paralg job("", comm);
        wanderer w(job);
        EXPECT_EQ(w.run(3), undisturbed[comm.get_rank()]) << "from " << clock;
        // An iteration of the outer loop that was interrupted begins again.
        EXPECT_LE(w.computed, all - static_cast<int>(clock) + 1) << "from " << clock;
      });
    }
    for (const auto clock : made)
      std::filesystem::remove_all(folder_.path() + "/" + storage::checkpoint_folder_name(clock));
  }
}

TEST_F(ResumableLoop, GoesOnWithAHigherLimitAndDoesWhatFollowsAgain) {
  numbers expected;
  cluster({.workers = 1, .servers = 1}).run([&](Comm comm) {
    paralg job("", comm);
    expected = wanderer(job).run(5);
  });
  cluster(options(1, 1)).run([](Comm comm) {
    paralg job("", comm);
    (void)wanderer(job).run(3);
  });
  for (const auto clock : clocks()) {
    auto o = options(1, 0);
    resume(o, clock);
    cluster(o).run([&](Comm comm) {
      paralg job("", comm);
      EXPECT_EQ(wanderer(job).run(5), expected) << "from " << clock;
    });
  }
}

TEST_F(ResumableLoop, ResumesWithAnotherNumberOfWorkersWhatIsTheSameOnAll) {
  const auto run = [](Comm comm, bool same, std::int64_t& found) {
    paralg job("", comm);
    std::int64_t x = 1;
    resumable_loop loop(job);
    loop.keep("x", x);
    if (same) loop.same_on_every_worker();
    bool begins = true;
    while (loop.next(6)) {
      if (std::exchange(begins, false)) found = loop.iteration();
      x *= 3;
    }
    EXPECT_EQ(x, 729);
  };
  std::int64_t at = -1;
  cluster(options(1, 4)).run([&](Comm comm) { run(std::move(comm), true, at); });
  EXPECT_EQ(at, 0);
  auto o = options(1, 0);
  resume(o, 4);
  o.workers = 3;
  cluster(o).run([&](Comm comm) {
    std::int64_t from = -1;
    run(std::move(comm), true, from);
    EXPECT_EQ(from, 4);
  });
  cluster c(o);
  c.run([&](Comm comm) {
    std::int64_t from = -1;
    EXPECT_THROW(run(std::move(comm), false, from), config_error);
  });
}

TEST_F(ResumableLoop, IsToldWhatToKeepBeforeItBegins) {
  cluster({.workers = 1, .servers = 1}).run([](Comm comm) {
    paralg job("", comm);
    resumable_loop loop(job);
    std::int64_t n = 0;
    EXPECT_TRUE(loop.next(1));
    EXPECT_THROW(loop.keep("late", n), error);
    EXPECT_FALSE(loop.next(1));
    EXPECT_FALSE(loop.next(5)) << "it has ended";
    EXPECT_EQ(loop.iteration(), 1);
  });
}

TEST_F(ResumableLoop, ACheckpointOfAnotherVersionIsRefused) {
  cluster(options(1, 1)).run([](Comm comm) {
    paralg job("", comm);
    int x = 0;
    resumable_loop loop(job);
    loop.keep("x", x);
    while (loop.next(2)) ++x;
  });
  auto o = options(1, 0);
  resume(o, 1);
  cluster(o).run([](Comm comm) {
    paralg job("", comm);
    int y = 0;
    resumable_loop loop(job);
    loop.keep("y", y);
    EXPECT_THROW((void)loop.next(2), error);
  });
}

}  // namespace
}  // namespace paracel
