// SPDX-License-Identifier: BSD-3-Clause
//
// The benefit of work stealing when some workers are slower than others: supersteps of a computation over rows in
// chunks and an all-reduce, with work stealing and without, alternately. A chunk sleeps, so the processes need no
// processors of their own. How long is a function of the seed, the run, the superstep, the worker that computes it and
// how many it has computed in this superstep; it is by --pattern, after Harlap et al., "Addressing the straggler
// problem for iterative convergent parallel ML" (FlexRR), 2016:
//
//   none       --chunk_ms
//   slow       the same, at the last worker --slow times as long
//   delays     --late_ms more with --late_probability: a worker that stalls
//   power_law  a worker takes x times as long for a whole superstep, x >= 1 with a density in proportion to x^-alpha
//
// The ideal: all workers compute until all end in the same moment, so it is the first moment at which they have
// computed the chunks of all together, parts of chunks counted. No schedule is faster, even one that knows the delays.
// `off`, `on`: the time of all measured supersteps relative to their ideals, without work stealing and with it;
// `median_*`: the median of the ratios of single ones. Sleeps take longer than requested, much longer on a busy
// machine, which is in these figures; not in `busy_on`, the share of their time in which the workers computed, as
// measured.
#include <gflags/gflags.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <paracel/main_env.hpp>
#include <paracel/over_rows.hpp>
#include <paracel/random.hpp>

#include "tool/bench/bench_job.hpp"
#include "tool/bench/bench_support.hpp"

DEFINE_int32(workers, 8, "worker processes");
DEFINE_double(chunk_ms, 5, "time of a chunk");
DEFINE_string(pattern, "slow", "how workers are late: none, slow, delays or power_law");
DEFINE_double(slow, 3, "slow: how much longer a chunk takes at the last worker");
DEFINE_double(late_ms, 40, "delays: additional duration of a delayed chunk");
DEFINE_double(late_probability, 0.1, "delays: fraction of delayed chunks");
DEFINE_double(alpha, 4, "power_law: exponent, above 2; the mean is (alpha - 1) / (alpha - 2) times --chunk_ms");
DEFINE_uint64(seed, 1, "seed of the delays");
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
  double seconds[2] = {};  ///< of worker 0's measured supersteps, without work stealing and with
  double ideal = 0;        ///< of as many
  double medians[2] = {};  ///< of the supersteps' ratios to their ideals
  double taken = 0;        ///< chunks of others, in the measured supersteps with work stealing
  double computed = 0;     ///< seconds in them
  double wrong = 0;
};
void add(report& sum, const report& r) {
  for (int i = 0; i < 2; ++i) {
    sum.seconds[i] += r.seconds[i];
    sum.medians[i] += r.medians[i];
  }
  sum.ideal += r.ideal;
  sum.taken += r.taken;
  sum.computed += r.computed;
  sum.wrong += r.wrong;
}

constexpr int warm_up = 2;  ///< supersteps of a run that are not measured

/// Units: ms. `nth`: chunks that this worker has computed in the superstep.
double duration_of(int run, int step, std::size_t worker, std::uint64_t nth) {
  const auto random = [&](std::uint64_t n) {
    const auto at = std::uint64_t(run) << 32U | std::uint64_t(step) << 16U | worker;
    return counter_random(FLAGS_seed, at, n).uniform();
  };
  if (FLAGS_pattern == "slow")
    return FLAGS_chunk_ms * (worker + 1 == static_cast<std::size_t>(FLAGS_workers) ? FLAGS_slow : 1);
  if (FLAGS_pattern == "delays") return FLAGS_chunk_ms + (random(nth) < FLAGS_late_probability ? FLAGS_late_ms : 0);
  if (FLAGS_pattern == "power_law") return FLAGS_chunk_ms * std::pow(1 - random(0), -1 / (FLAGS_alpha - 1));
  return FLAGS_chunk_ms;
}

/// Units: seconds.
double ideal_of(int run, int step) {
  struct progress {
    std::uint64_t computed = 0;
    double begin = 0;  // of the chunk that it computes
    double end = 0;
  };
  std::vector<progress> workers(static_cast<std::size_t>(FLAGS_workers));
  const auto begin_next = [&](std::size_t w) {
    auto& p = workers[w];
    p.begin = p.end;
    p.end += duration_of(run, step, w, p.computed);
  };
  for (std::size_t w = 0; w < workers.size(); ++w) begin_next(w);
  const auto wanted = static_cast<double>(FLAGS_chunks) * static_cast<double>(workers.size());
  double now = 0;
  for (double all = 0;;) {
    double speed = 0;
    for (const auto& p : workers) speed += 1 / (p.end - p.begin);
    const auto first = std::ranges::min_element(workers, {}, &progress::end);
    const double more = (first->end - now) * speed;
    if (all + more >= wanted) return (now + (wanted - all) / speed) / 1e3;
    all += more;
    now = first->end;
    ++first->computed;
    begin_next(static_cast<std::size_t>(first - workers.begin()));
  }
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
  prctl(PR_SET_TIMERSLACK, 1UL);  // otherwise each sleep is 50 us longer
  const table rows(FLAGS_rows, numbers(100, 0.1 * static_cast<double>(me + 1)));
  report r;
  numbers ratios[2];
  numbers results[2];
  for (int turn = 0; turn < 2 * FLAGS_runs; ++turn) {
    const int on = turn % 2;
    const int run = turn / 2;
    int step = 0;
    std::uint64_t computed = 0;
    com_queue q(job);
    q.set_work_stealing(on == 1);
    q.init_with_partitioned_data("rows", std::cref(rows));
    q.init_with_broadcast_data("w", numbers(FLAGS_length, 0.5));
    q.add([&](com_context& c) {
      step = c.step_no();
      computed = 0;
    });
    q.add(over_rows(row_work<table>{.rows = "rows",
                                    .result = "sums",
                                    .reads = {"w"},
                                    .length = [](com_context&) { return FLAGS_length; },
                                    .compute =
                                        [&](const row_chunk<table>& chunk, std::span<double> sums) {
                                          const auto before = std::chrono::steady_clock::now();
                                          std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(
                                              duration_of(run, step, me, computed++)));
                                          const auto& w = chunk.get_obj<numbers>("w");
                                          for (auto i = chunk.begin(); i < chunk.end(); ++i) {
                                            const auto number = chunk.first_row() + i - chunk.begin();
                                            sums[number % FLAGS_length] +=
                                                chunk.rows()[i][number % 100] * w[number % FLAGS_length];
                                          }
                                          if (on == 0 || step <= warm_up) return;
                                          const std::chrono::duration<double> took =
                                              std::chrono::steady_clock::now() - before;
                                          r.computed += took.count();
                                          r.taken += chunk.owner() != me ? 1 : 0;
                                        },
                                    .chunks = FLAGS_chunks}));
    q.add(all_reduce("sums"));
    q.add([](com_context& c) {
      auto& w = c.get_obj<numbers>("w");
      const auto& sums = c.get_obj<const numbers>("sums");
      for (std::size_t i = 0; i < w.size(); ++i) w[i] = 0.5 * w[i] + 1e-3 * sums[i];
    });
    q.set_max_iter(FLAGS_steps + warm_up);
    q.set_watch([&](const superstep_report& s) {
      if (s.step <= warm_up) return;
      const double ideal = ideal_of(run, s.step);
      r.seconds[on] += s.seconds;
      ratios[on].push_back(s.seconds / ideal);
      if (on == 1) r.ideal += ideal;
    });
    q.close_with([](com_context& c) { return c.get_obj<numbers>("w"); });
    results[on] = q.exec<numbers>();
    if (on == 1) r.wrong += results[0] == results[1] ? 0 : 1;
  }
  for (int i = 0; i < 2; ++i) r.medians[i] = median(ratios[i]);
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
  const double measured = FLAGS_runs * FLAGS_steps;
  std::printf(
      "{\"pattern\": \"%s\", \"workers\": %d, \"chunks\": %llu, \"chunk_ms\": %g, \"ideal_ms\": %.2f, \"off_ms\": "
      "%.2f, \"on_ms\": %.2f, \"off\": %.3f, \"on\": %.3f, \"median_off\": %.3f, \"median_on\": %.3f, \"busy_on\": "
      "%.3f, \"chunks_travelled\": %.1f}\n",
      FLAGS_pattern.c_str(), FLAGS_workers, static_cast<unsigned long long>(FLAGS_chunks), FLAGS_chunk_ms,
      1e3 * r.ideal / measured, 1e3 * r.seconds[0] / measured, 1e3 * r.seconds[1] / measured, r.seconds[0] / r.ideal,
      r.seconds[1] / r.ideal, r.medians[0], r.medians[1], r.computed / (FLAGS_workers * r.seconds[1]),
      r.taken / measured);
}

void check_flags() {
  if (FLAGS_workers < 1 || FLAGS_chunks < 1 || FLAGS_steps < 1 || FLAGS_runs < 1 || FLAGS_length < 1)
    throw std::runtime_error("workers, chunks, length, steps and runs must be at least 1");
  if (FLAGS_rows < FLAGS_chunks) throw std::runtime_error("want at least as many --rows as --chunks");
  const std::string patterns[] = {"none", "slow", "delays", "power_law"};
  if (std::ranges::find(patterns, FLAGS_pattern) == std::end(patterns))
    throw std::runtime_error("--pattern is \"" + FLAGS_pattern + "\", want none, slow, delays or power_law");
  if (!(FLAGS_chunk_ms > 0 && FLAGS_slow > 0 && FLAGS_late_ms >= 0))
    throw std::runtime_error("chunk_ms and slow must be above 0, late_ms at least 0");
  if (!(FLAGS_alpha > 2)) throw std::runtime_error("alpha must be above 2: with less there is no mean");
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("supersteps of workers of which some are late, with work stealing and without");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    check_flags();
    run();
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_stealing: %s\n", e.what());
    return 1;
  }
}
