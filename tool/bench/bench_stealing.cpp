// SPDX-License-Identifier: BSD-3-Clause
//
// The benefit of work stealing when one worker is slower than the others: supersteps of a computation over rows in
// chunks and an all-reduce, with work stealing and without, alternately. A chunk sleeps --chunk_ms, at the last worker
// --slow times as long, so the processes need no processors of their own.
//
// The ideal: all workers are busy all the time, so a superstep takes the time that workers * chunks chunks need at
// their combined speed, (workers - 1) / chunk_ms + 1 / (slow * chunk_ms); without work stealing it takes at least
// slow * chunks * chunk_ms. `share_*`: the ideal time divided by the median time of a superstep. Sleeps take longer
// than requested, much longer on a busy machine: `share_on_measured` uses the workers' measured speeds for the ideal.
#include <gflags/gflags.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <paracel/main_env.hpp>
#include <paracel/over_rows.hpp>

#include "tool/bench/bench_job.hpp"
#include "tool/bench/bench_support.hpp"

DEFINE_int32(workers, 8, "worker processes");
DEFINE_double(chunk_ms, 5, "time of a chunk");
DEFINE_double(slow, 3, "how much longer it takes at the last worker");
DEFINE_uint64(chunks, 64, "chunks of a worker's rows");
DEFINE_uint64(rows, 640, "rows of a worker, of 100 doubles");
DEFINE_uint64(length, 100, "doubles of the result");
DEFINE_int32(steps, 10, "measured supersteps of a run");
DEFINE_int32(runs, 3, "runs of each kind");
DEFINE_string(bin_dir, "", "where start_server and start_scheduler are; empty: the folder of this program");

namespace {

using namespace paracel;
using namespace paracel::bench;
using numbers = std::vector<double>;
using table = std::vector<numbers>;

struct report {
  double seconds[2] = {};  ///< median superstep of worker 0, without work stealing and with
  double chunks = 0;       ///< that were stolen in a superstep, on average
  double speed = 0;        ///< chunks per second while it computes, with work stealing
  double wrong = 0;
};
void add(report& sum, const report& r) {
  for (int i = 0; i < 2; ++i) sum.seconds[i] = std::max(sum.seconds[i], r.seconds[i]);
  sum.chunks += r.chunks;
  sum.speed += r.speed;
  sum.wrong += r.wrong;
}

double median(numbers v) {
  if (v.empty()) return 0;
  const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

report measure() {
  paralg job{Comm()};
  const auto me = job.get_worker_id();
  const bool is_slow = me + 1 == job.get_worker_size();
  prctl(PR_SET_TIMERSLACK, 1UL);  // otherwise each sleep is 50 us longer
  const std::chrono::duration<double, std::milli> pause(FLAGS_chunk_ms * (is_slow ? FLAGS_slow : 1));
  const table rows(FLAGS_rows, numbers(100, 0.1 * static_cast<double>(me + 1)));
  report r;
  numbers times[2];
  numbers results[2];
  std::size_t taken = 0;
  std::chrono::duration<double> slept{};
  std::size_t computed = 0;
  for (int run = 0; run < 2 * FLAGS_runs; ++run) {
    const int on = run % 2;
    com_queue q(job);
    q.set_work_stealing(on == 1);
    q.init_with_partitioned_data("rows", std::cref(rows));
    q.init_with_broadcast_data("w", numbers(FLAGS_length, 0.5));
    q.add(over_rows(row_work<table>{.rows = "rows",
                                    .result = "sums",
                                    .reads = {"w"},
                                    .length = [](com_context&) { return FLAGS_length; },
                                    .compute =
                                        [&](const row_chunk<table>& chunk, std::span<double> sums) {
                                          const auto before = std::chrono::steady_clock::now();
                                          std::this_thread::sleep_for(pause);
                                          if (on == 1) slept += std::chrono::steady_clock::now() - before, ++computed;
                                          const auto& w = chunk.get_obj<numbers>("w");
                                          for (auto i = chunk.begin(); i < chunk.end(); ++i) {
                                            const auto number = chunk.first_row() + i - chunk.begin();
                                            sums[number % FLAGS_length] +=
                                                chunk.rows()[i][number % 100] * w[number % FLAGS_length];
                                          }
                                          taken += static_cast<std::size_t>(chunk.owner() != me);
                                        },
                                    .chunks = FLAGS_chunks}));
    q.add(all_reduce("sums"));
    q.add([](com_context& c) {
      auto& w = c.get_obj<numbers>("w");
      const auto& sums = c.get_obj<const numbers>("sums");
      for (std::size_t i = 0; i < w.size(); ++i) w[i] = 0.5 * w[i] + 1e-3 * sums[i];
    });
    q.set_max_iter(FLAGS_steps + 2);
    q.set_watch([&](const superstep_report& s) {
      if (s.step > 2) times[on].push_back(s.seconds);
    });
    q.close_with([](com_context& c) { return c.get_obj<numbers>("w"); });
    results[on] = q.exec<numbers>();
    if (on == 1) r.wrong += results[0] == results[1] ? 0 : 1;
  }
  for (int i = 0; i < 2; ++i) r.seconds[i] = median(times[i]);
  r.chunks = static_cast<double>(taken) / FLAGS_runs / (FLAGS_steps + 2);
  r.speed = static_cast<double>(computed) / slept.count();
  return r;
}

void run() {
  job_options options;
  options.bin_dir = FLAGS_bin_dir;
  options.workers = FLAGS_workers;
  const job j(options);
  const auto r = run_clients<report>(FLAGS_workers, [&j](int rank) {
    j.set_environment(rank);
    static int argc = 1;
    static char name[] = "bench_stealing";
    static char* words[] = {name, nullptr};
    static char** argv = words;
    auto environment = std::make_shared<main_env>(argc, argv);
    return [environment]() mutable {
      const report mine = measure();
      environment.reset();
      return mine;
    };
  });
  if (r.wrong > 0) throw std::runtime_error("the results with and without work stealing differ");
  const double speed = ((FLAGS_workers - 1) + 1 / FLAGS_slow) / FLAGS_chunk_ms;
  const double ideal = static_cast<double>(FLAGS_workers) * static_cast<double>(FLAGS_chunks) / speed / 1e3;
  const double measured = static_cast<double>(FLAGS_workers) * static_cast<double>(FLAGS_chunks) / r.speed;
  std::printf(
      "{\"workers\": %d, \"chunks\": %llu, \"chunk_ms\": %g, \"slow\": %g, \"ideal_ms\": %.2f, \"off_ms\": %.2f, "
      "\"on_ms\": %.2f, \"share_off\": %.3f, \"share_on\": %.3f, \"share_on_measured\": %.3f, "
      "\"chunks_travelled\": %.1f}\n",
      FLAGS_workers, static_cast<unsigned long long>(FLAGS_chunks), FLAGS_chunk_ms, FLAGS_slow, 1e3 * ideal,
      1e3 * r.seconds[0], 1e3 * r.seconds[1], ideal / r.seconds[0], ideal / r.seconds[1], measured / r.seconds[1],
      r.chunks);
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("supersteps with one slow worker, with work stealing and without");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    if (FLAGS_workers < 1 || FLAGS_chunks < 1 || FLAGS_steps < 1 || FLAGS_runs < 1 || FLAGS_length < 1)
      throw std::runtime_error("workers, chunks, length, steps and runs must be at least 1");
    run();
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_stealing: %s\n", e.what());
    return 1;
  }
}
