// SPDX-License-Identifier: BSD-3-Clause
//
// Workers that die at any message, and are replaced: the queue, and loops, end with the bits of an undisturbed run.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include <paracel/com_queue.hpp>
#include <paracel/resumable_loop.hpp>

#include "test/support/cluster.hpp"
#include "test/support/temporary_folder.hpp"

namespace paracel {
namespace {

using numbers = std::vector<double>;
using test::cluster;
using test::fate;

using program = std::function<numbers(paralg&)>;

/// Every kind of item, short vectors and one of many pieces, an object that only task 0 has, reads of the servers, a
/// criterion, and a queue inside of a superstep's neighbour. The bits depend on the order of everything.
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

}  // namespace
}  // namespace paracel
