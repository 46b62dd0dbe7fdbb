// SPDX-License-Identifier: BSD-3-Clause
//
// An all-reduce of doubles between worker processes of one host, by length: in the memory that they share, by messages
// between them, or through the scheduler; and the memory traffic that none can avoid. bench_allreduce_mpi measures
// MPI_Allreduce in the same way.
#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <paracel/collectives.hpp>
#include <paracel/com_queue.hpp>
#include <paracel/main_env.hpp>
#include <paracel/paralg.hpp>

#include "tool/bench/bench_job.hpp"
#include "tool/bench/bench_support.hpp"

DEFINE_uint64(bytes, 1 << 20, "length of the vector");
DEFINE_int32(tasks, 2, "worker processes");
DEFINE_int32(repeat, 0, "measured operations; 0: as many as fit about 64 MB to 1 GB of vectors");
DEFINE_string(
    way, "peers",
    "peers: as a job's collectives; comm: Comm::allreduce, which is the same; channels: by messages, without the "
    "memory that workers share; scheduler: Comm::allreduce as in jobs that survive workers' deaths; memory: only "
    "the traffic in memory");
DEFINE_bool(superstep, false, "supersteps of com_queue with two all-reduces and an update instead");
DEFINE_string(bin_dir, "", "where start_server and start_scheduler are; empty: the folder of this program");

namespace {

using namespace paracel;
using namespace paracel::bench;

struct report {
  double microseconds = 0;  ///< the median of task 0
  double wrong = 0;
};
void add(report& sum, const report& r) {
  sum.microseconds = std::max(sum.microseconds, r.microseconds);
  sum.wrong += r.wrong;
}

int repetitions() {
  if (FLAGS_repeat > 0) return FLAGS_repeat;
  const auto fit = (std::uint64_t{512} << 20U) / std::max<std::uint64_t>(FLAGS_bytes, 1);
  return static_cast<int>(std::clamp<std::uint64_t>(fit, 7, 1000));
}

template <class F>
double median_microseconds(int repeat, const F& call) {
  std::vector<double> all;
  for (int i = 0; i < repeat + 3; ++i) {
    const auto before = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - before;
    if (i >= 3) all.push_back(time.count());
  }
  std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2));
  return all[all.size() / 2];
}

/// The memory traffic of each task: it adds (p-1)/p of a vector to its range, and writes as much.
report measure_memory() {
  const auto n = FLAGS_bytes / sizeof(double);
  const auto p = static_cast<std::size_t>(FLAGS_tasks);
  const auto range = n / p;
  std::vector<double> v(n, 1), from(range + 1, 1);
  report r;
  r.microseconds = median_microseconds(repetitions(), [&] {
    for (std::size_t i = 1; i < p; ++i) {
      for (std::size_t j = 0; j < range; ++j) v[j] += from[j];
      std::memcpy(v.data() + i * range, from.data(), range * sizeof(double));
    }
    asm volatile("" ::"r"(v.data()) : "memory");
  });
  return r;
}

report measure() {
  const Comm comm;
  (void)main_env::job();
  collectives all(comm);
  Comm own = comm;
  std::vector<double> v(FLAGS_bytes / sizeof(double), 1);
  report r;
  all.barrier();
  const auto repeat = repetitions();
  r.microseconds = median_microseconds(repeat, [&] {
    if (FLAGS_way == "scheduler" || FLAGS_way == "comm") own.allreduce(v);
    else all.all_reduce(std::span(v));
  });
  std::fill(v.begin(), v.end(), 1.0);
  all.all_reduce(std::span(v));
  r.wrong = v.empty() || v.back() == FLAGS_tasks ? 0 : 1;
  all.barrier();
  return r;
}

/// A superstep of com_queue with two all-reduces of such vectors and an update.
report measure_superstep() {
  using numbers = std::vector<double>;
  const auto n = FLAGS_bytes / sizeof(double);
  std::vector<double> all;
  paralg job{Comm()};
  com_queue q(job);
  for (const char* name : {"w", "g", "h"}) q.init_with_broadcast_data(name, numbers(n, 1));
  q.add([](com_context& c) { std::ranges::fill(c.get_obj<numbers>("g"), 1.0); });
  q.add(all_reduce("g")).add(all_reduce("h"));
  q.add([](com_context& c) {
    auto& w = c.get_obj<numbers>("w");
    const auto& g = c.get_obj<const numbers>("g");
    auto& h = c.get_obj<numbers>("h");
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] -= 0.1 * g[i];
      h[i] = w[i] * 1e-3;
    }
  });
  q.set_max_iter(repetitions() + 3);
  q.set_watch([&](const superstep_report& s) {
    if (s.step > 3) all.push_back(s.seconds * 1e6);
  });
  q.exec();
  report r;
  if (all.empty()) return r;  // only task 0 has a report
  std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2));
  r.microseconds = all[all.size() / 2];
  return r;
}

void run() {
  report r;
  if (FLAGS_way == "memory") {
    r = run_clients<report>(FLAGS_tasks, [](int) { return measure_memory; });
  } else {
    job_options options;
    options.bin_dir = FLAGS_bin_dir;
    options.workers = FLAGS_tasks;
    const job j(options);
    r = run_clients<report>(FLAGS_tasks, [&j](int rank) {
      j.set_environment(rank);
      ::setenv("PARACEL_SHARED_MEMORY", FLAGS_way == "channels" ? "0" : "1", 1);
      if (FLAGS_way == "scheduler") ::setenv("PARACEL_EJECT", "1", 1);
      static int argc = 1;
      static char name[] = "bench_allreduce";
      static char* words[] = {name, nullptr};
      static char** argv = words;
      auto environment = std::make_shared<main_env>(argc, argv);
      return [environment]() mutable {
        const report mine = FLAGS_superstep ? measure_superstep() : measure();
        environment.reset();
        return mine;
      };
    });
  }
  if (r.wrong > 0) throw std::runtime_error("a wrong sum");
  std::printf("{\"tasks\": %d, \"bytes\": %llu, \"way\": \"%s\", \"us\": %.1f, \"mb_per_s\": %.1f}\n", FLAGS_tasks,
              static_cast<unsigned long long>(FLAGS_bytes), FLAGS_way.c_str(), r.microseconds,
              static_cast<double>(FLAGS_bytes) / r.microseconds);
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("an all-reduce between the workers of one host");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    if (FLAGS_tasks < 1) throw std::runtime_error("tasks must be at least 1");
    const auto ways = {"peers", "comm", "channels", "scheduler", "memory"};
    if (std::ranges::find(ways, FLAGS_way) == ways.end())
      throw std::runtime_error("--way must be peers, comm, channels, scheduler or memory");
    keep_large_blocks();
    run();
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_allreduce: %s\n", e.what());
    return 1;
  }
}
