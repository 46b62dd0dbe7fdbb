// SPDX-License-Identifier: BSD-3-Clause
//
// Workers that die at any message, and are replaced: results of queues and loops are bit-identical to an undisturbed
// run's.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <paracel/com_queue.hpp>
#include <paracel/over_rows.hpp>
#include <paracel/resumable_loop.hpp>

#include "test/support/cluster.hpp"
#include "test/support/temporary_folder.hpp"

namespace paracel {
namespace {

using numbers = std::vector<double>;
using test::cluster;
using test::fate;

using program = std::function<numbers(paralg&)>;

/// A queue with every kind of item, short vectors and one of many pieces, an object that only task 0 has, reads from
/// the servers and a criterion; then a loop. The bits depend on the order of everything.
numbers wander(paralg& job) {
  const auto rank = job.get_worker_id();
  if (rank == 0 && !job.resumed()) job.paracel_write("scale", 0.75);
  job.paracel_sync();
  com_queue q(job);
  q.init_with_partitioned_data("rows", numbers(3 * rank, 0.1 + static_cast<double>(rank)));
  q.init_with_broadcast_data("w", numbers{0.3, 0.7, 0.11});
  q.add([&job](com_context& c) {
    auto& w = c.get_obj<numbers>("w");
    numbers g(7, std::sin(w[0] + static_cast<double>(c.task_id())) * job.paracel_read<double>("scale"));
    for (const auto x : c.get_obj<const numbers>("rows")) g[1] += x / (w[1] + 3);
    c.put_obj("g", g);
    c.put_obj("wide", numbers(9'000 + 100 * c.num_task(), g[1] / 3));
    c.put_obj("seen", static_cast<std::int64_t>(c.step_no()));
  });
  q.add(all_reduce("g")).add(all_reduce("wide", reduce_op::max)).add(reduce_scatter("wide")).add(all_gather("wide"));
  q.add([](com_context& c) {
    auto& w = c.get_obj<numbers>("w");
    const auto& g = c.get_obj<numbers>("g");
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::cos(w[i] + g[i] + c.get_obj<numbers>("wide")[i * 100]);
    if (c.task_id() == 0) c.put_obj("told", numbers{w[0] * 2});
    else c.put_obj("told", numbers{});
  });
  q.add(broadcast("told", 0));
  q.add([](com_context& c) { c.get_obj<numbers>("w")[2] += c.get_obj<numbers>("told")[0]; });
  q.set_compare_criterion_of_node0([](com_context& c) { return c.step_no() == 4; });
  q.close_with([](com_context& c) { return c.get_obj<numbers>("w"); });
  auto w = q.exec<numbers>();

  std::mt19937 random(17 + static_cast<unsigned>(rank));
  resumable_loop loop(job);
  loop.keep("w", w).keep_random("random", random);
  while (loop.next(3)) {
    auto x = std::ldexp(static_cast<double>(random()), -32) + w[0];
    job.get_comm().allreduce(x);
    w[0] = std::sin(x);
    w.push_back(w[0]);
  }
  return w;
}

/// A step in chunks; `late`: the parity of the ranks that are slow, so that chunks are moved.
row_work<numbers> chunks_of(const std::string& result, std::size_t late, std::int64_t& taken, std::size_t me) {
  return {.rows = "rows",
          .result = result,
          .reads = {"w"},
          .length = [](com_context&) { return std::size_t{3}; },
          .compute =
              [&taken, late, me](const row_chunk<numbers>& chunk, std::span<double> sums) {
                if (me % 2 == late) std::this_thread::sleep_for(std::chrono::microseconds(400));
                taken += static_cast<std::int64_t>(chunk.owner() != me);
                const auto& w = chunk.get_obj<numbers>("w");
                for (auto i = chunk.begin(); i < chunk.end(); ++i)
                  for (std::size_t j = 0; j < 3; ++j) sums[j] += std::sin(w[j] + chunk.rows()[i]) / 3;
              },
          .chunks = 9};
}

/// Computations that follow each other with a collective between them and without, two queues, the last one without a
/// criterion and with a superstep that has no collective of its own.
numbers steal(paralg& job, bool stealing, std::int64_t& taken) {
  const auto me = job.get_worker_id();
  numbers rows(11 + 2 * me);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = 0.1 * static_cast<double>(i + 7 * me);
  numbers w{0.3, 0.7, 0.11};
  for (const bool collective : {true, false}) {
    com_queue q(job);
    q.set_work_stealing(stealing);
    q.init_with_partitioned_data("rows", rows);
    q.init_with_broadcast_data("w", w);
    q.init_with_broadcast_data("sum", numbers(3));
    q.add(over_rows(chunks_of("a", 0, taken, me)));
    if (collective) q.add(all_reduce("a"));
    q.add(over_rows(chunks_of("b", 1, taken, me)));
    q.add([](com_context& c) {
      for (std::size_t j = 0; j < 3; ++j)
        c.get_obj<numbers>("sum")[j] += c.get_obj<numbers>("a")[j] - c.get_obj<numbers>("b")[j] / 7;
    });
    if (collective) {
      q.add(all_reduce("sum"));
      q.add([](com_context& c) {
        for (std::size_t j = 0; j < 3; ++j) c.get_obj<numbers>("w")[j] = std::cos(c.get_obj<numbers>("sum")[j]);
      });
      q.set_compare_criterion_of_node0([](com_context& c) { return c.step_no() == 2; });
    }
    q.set_max_iter(3);
    q.close_each_with([](com_context& c) {
      auto all = c.get_obj<numbers>("w");
      all.insert(all.end(), c.get_obj<numbers>("sum").begin(), c.get_obj<numbers>("sum").end());
      return all;
    });
    w = q.exec<numbers>();
    numbers own(w.begin() + 3, w.end());
    job.get_comm().allreduce(w);
    w.insert(w.end(), own.begin(), own.end());
  }
  return w;
}

/// With work stealing; adds to `taken` how many chunks were stolen.
program stealing_into(std::atomic<std::int64_t>& taken) {
  return [&taken](paralg& job) {
    std::int64_t own = 0;
    auto w = steal(job, true, own);
    taken += own;
    return w;
  };
}

numbers steal_nothing(paralg& job) {
  std::int64_t none = 0;
  auto w = steal(job, false, none);
  EXPECT_EQ(none, 0);
  return w;
}

/// Messages of a queue's steps: several to one task, also to itself, long ones, with an operation in between, and one
/// that is received a superstep later.
numbers talk(paralg& job) {
  const auto me = job.get_worker_id();
  const auto p = job.get_worker_size();
  com_queue q(job);
  q.init_with_broadcast_data("w", numbers{0.3, 0.7});
  q.add(communicate([&](com_context& c, collectives& all) {
    auto& w = c.get_obj<numbers>("w");
    const auto next = (me + 1) % p;
    const auto last = (me + p - 1) % p;
    if (c.step_no() > 1) {
      const auto earlier = all.receive<numbers>(last);
      w[0] += earlier[0] / earlier[1];
    }
    all.send(next, w[0] + static_cast<double>(me));
    all.send(next, std::vector<float>(30'000, static_cast<float>(w[1])));
    all.send(last, static_cast<std::int64_t>(10 * me + static_cast<std::size_t>(c.step_no())));
    double sum = all.receive<double>(last);
    all.all_reduce(std::span(&sum, 1));
    w[0] = std::cos(sum) + static_cast<double>(all.receive<std::vector<float>>(last).back());
    w[1] = std::sin(w[1] + static_cast<double>(all.receive<std::int64_t>(next)));
    all.send(next, numbers{w[1], static_cast<double>(c.step_no())});
  }));
  q.set_max_iter(4);
  q.close_each_with([](com_context& c) { return c.get_obj<numbers>("w"); });
  return q.exec<numbers>();
}

struct outcome {
  std::vector<numbers> results;
  std::vector<std::uint64_t> steps;
};

outcome run(std::size_t workers, const program& p, std::vector<std::vector<fate>> fates) {
  const test::temporary_folder folder;
  fates.resize(workers);
  outcome out;
  out.results.resize(workers);
  cluster c({.workers = workers, .servers = 1, .state_folder = folder.path()});
  out.steps = c.run_with_deaths(
      [&](Comm comm) {
        paralg job("", comm);
        out.results[comm.get_rank()] = p(job);
      },
      fates);
  return out;
}

std::string text_of(const std::vector<std::vector<fate>>& fates) {
  std::string text;
  for (std::size_t rank = 0; rank < fates.size(); ++rank)
    for (const auto& f : fates[rank])
      text += "; worker " + std::to_string(rank) + (f.before ? " before " : " after ") + std::to_string(f.step);
  return text;
}

TEST(WorkerDeaths, AfterEveryMessageTheResultHasTheBitsOfAnUndisturbedRun) {
  constexpr std::size_t workers = 2;
  const auto undisturbed = run(workers, wander, {});
  for (std::size_t rank = 0; rank < workers; ++rank) {
    ASSERT_GT(undisturbed.steps[rank], 40U);
    for (std::uint64_t step = 0; step < undisturbed.steps[rank]; ++step) {
      std::vector<std::vector<fate>> fates(workers);
      fates[rank] = {{.step = step, .before = step % 2 != 0}};
      EXPECT_EQ(run(workers, wander, fates).results, undisturbed.results) << text_of(fates);
    }
  }
}

TEST(WorkerDeaths, SeveralWorkersAndTheirReplacementsDieAnywhere) {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const std::size_t workers = 1 + seed % 4;
    const auto undisturbed = run(workers, wander, {});
    std::vector<std::vector<fate>> fates(workers);
    for (std::size_t deaths = 1 + random() % 4; deaths != 0; --deaths) {
      const auto rank = random() % workers;
      fates[rank].push_back({.step = random() % undisturbed.steps[rank], .before = random() % 2 == 0});
    }
    EXPECT_EQ(run(workers, wander, fates).results, undisturbed.results) << "seed " << seed << text_of(fates);
  }
}

TEST(WorkerDeaths, MessagesOfAQueueAreSentAndReceivedAgain) {
  for (const std::size_t workers : {1, 2, 3}) {
    const auto undisturbed = run(workers, talk, {});
    for (std::size_t rank = 0; rank < workers; ++rank) {
      ASSERT_GT(undisturbed.steps[rank], 30U);
      for (std::uint64_t step = rank; step < undisturbed.steps[rank]; step += workers == 2 ? 1 : 5) {
        std::vector<std::vector<fate>> fates(workers);
        fates[rank] = {{.step = step, .before = step % 2 != 0}};
        if (step % 3 == 0) fates[(rank + 1) % workers].push_back({.step = step / 2});
        ASSERT_EQ(run(workers, talk, fates).results, undisturbed.results) << text_of(fates);
      }
    }
  }
}

TEST(WorkerDeaths, AMessageThatIsNotSentIsAnErrorOfAllThatNamesBoth) {
  std::mutex mutex;
  std::multiset<std::string> texts;
  (void)run(3,
            [&](paralg& job) -> numbers {
              com_queue q(job);
              q.set_max_iter(2);
              q.add(communicate([](com_context& c, collectives& all) {
                if (c.step_no() == 2 && c.task_id() == 1) (void)all.receive<int>(2);
              }));
              q.add([](com_context& c) { c.put_obj("x", 1.0); }).add(all_reduce("x"));
              try {
                q.exec();
              } catch (const error& e) {
                const std::lock_guard lock(mutex);
                texts.insert(e.what());
              }
              return {};
            },
            {});
  EXPECT_EQ(texts.size(), 3U);
  for (const auto& text : texts)
    EXPECT_NE(text.find("task 1 receives from task 2, which calls all_reduce(\"x\") of 1 f64, sum"), std::string::npos)
        << text;
}

TEST(WorkerDeaths, AtAnyMessageOfWorkStealingTheBitsAreThoseOfARunWithoutIt) {
  constexpr std::size_t workers = 2;
  const auto expected = run(workers, steal_nothing, {}).results;
  std::atomic<std::int64_t> taken = 0;
  const auto alive = run(workers, stealing_into(taken), {});
  EXPECT_EQ(alive.results, expected);
  EXPECT_GT(taken, 10);
  for (std::size_t rank = 0; rank < workers; ++rank) {
    ASSERT_GT(alive.steps[rank], 60U);
    for (std::uint64_t step = 0; step < alive.steps[rank]; ++step) {
      std::vector<std::vector<fate>> fates(workers);
      fates[rank] = {{.step = step, .before = step % 2 != 0}};
      ASSERT_EQ(run(workers, stealing_into(taken), fates).results, expected) << text_of(fates);
    }
  }
}

TEST(WorkerDeaths, SeveralWorkersThatStealDieAnywhere) {
  std::atomic<std::int64_t> taken = 0;
  std::vector<outcome> alive(5);
  for (std::size_t workers = 1; workers <= 4; ++workers) {
    alive[workers] = run(workers, stealing_into(taken), {});
    ASSERT_EQ(alive[workers].results, run(workers, steal_nothing, {}).results);
  }
  for (std::uint32_t seed = 1; seed <= 80; ++seed) {
    std::mt19937 random(seed);
    const std::size_t workers = 1 + seed % 4;
    std::vector<std::vector<fate>> fates(workers);
    for (std::size_t deaths = 1 + random() % 4; deaths != 0; --deaths) {
      const auto rank = random() % workers;
      fates[rank].push_back({.step = random() % alive[workers].steps[rank], .before = random() % 2 == 0});
    }
    ASSERT_EQ(run(workers, stealing_into(taken), fates).results, alive[workers].results)
        << "seed " << seed << text_of(fates);
  }
}

}  // namespace
}  // namespace paracel
