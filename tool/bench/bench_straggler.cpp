// SPDX-License-Identifier: BSD-3-Clause
//
// The benefit of bounded staleness when workers are delayed at random. In each iteration a worker reads a vector, takes
// 10 ms, and one time in ten 40 ms more; then it updates the vector and commits. The delay of iteration i of worker w
// is the same for every staleness. With --objective the vector is the theta of a logistic regression, an iteration is a
// step along the gradient of the worker's rows, and the time until the objective is reached is measured. With --batch
// an iteration is a step along the gradient of this many, in turn, and takes --row_ms for each instead of 10 ms.
//
// The limit: an iteration takes 14 ms on average, and with s = 0 the expected maximum over 8 workers, 10 + 40 (1 -
// 0.9^8) = 32.8 ms. So staleness gains at most a factor of 2.34.
#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <paracel/paralg.hpp>

#include "alg/logistic_regression/lr.hpp"
#include "bench_job.hpp"
#include "bench_support.hpp"

DEFINE_string(consistency, "ssp", "ssp, bsp or asp");
DEFINE_int32(staleness, 0, "s");
DEFINE_int32(workers, 8, "worker processes");
DEFINE_int32(servers, 2, "server processes");
DEFINE_int32(threads, 1, "shard threads of a server");
DEFINE_double(work_ms, 10, "duration of an iteration");
DEFINE_double(late_ms, 40, "additional duration of delayed iterations");
DEFINE_double(late_probability, 0.1, "fraction of delayed iterations");
DEFINE_uint64(seed, 1, "seed of the delays");
DEFINE_uint64(values, 1000, "doubles in the vector; with --objective: 100 and the bias");
DEFINE_double(seconds, 5, "measured time; with --objective: the longest");
DEFINE_double(objective, 0, "logistic regression until its objective is this; 0: only count iterations");
DEFINE_double(alpha, 0.05, "its step size");
DEFINE_uint64(batch, 0, "rows of a step of a worker; 0: all that it has");
DEFINE_double(row_ms, 0.032, "with --batch: the duration of an iteration for each row");
DEFINE_bool(push, false, "servers push changes when the clock advances (set_push)");
DEFINE_string(transport, "ipc", "ipc or tcp");
DEFINE_string(bin_dir, "", "where start_server and start_scheduler are; empty: the folder of this program");

namespace {

using namespace paracel;
using namespace paracel::bench;
using seconds = std::chrono::duration<double>;

/// splitmix64 of its argument.
std::uint64_t mixed(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}
/// In [0, 1), the same for the same arguments.
double chance(std::uint64_t a, std::uint64_t b) {
  return static_cast<double>(mixed(mixed(FLAGS_seed ^ (a << 40U)) ^ b) >> 11U) * 0x1p-53;
}

constexpr std::size_t samples = 2500;

/// 2,500 samples of 100 features around two centres; the same in every run, each worker has its share.
alg::lr_problem rows_of(std::size_t first, std::size_t step) {
  constexpr std::uint32_t features = 100;
  sample_rows rows;
  rows.dense = true;
  rows.columns = features;
  for (std::size_t i = first; i < samples; i += step) {
    const double label = i % 2 == 0 ? 1 : -1;
    for (std::uint32_t j = 0; j < features; ++j) {
      const double u = chance(1000 + i, 2 * j);
      const double v = chance(1000 + i, 2 * j + 1);
      const double noise = std::sqrt(-2 * std::log(1 - u)) * std::cos(6.283185307179586 * v);
      rows.value.push_back(noise + label * (j < 10 ? 0.25 : 0.0));
    }
    rows.label.push_back(label);
    ++rows.row_count;
  }
  return {std::move(rows), features, true, true, 0.01};
}

struct report {
  std::uint64_t iterations = 0;   ///< over all workers
  double seconds = 0;             ///< of the slowest worker
  double objective_seconds = -1;  ///< rank 0: when it was reached; -1: never
  std::uint64_t objective_iterations = 0;
  double staleness = 0;     ///< summed over the iterations
  double cpu_seconds = 0;   ///< of the worker processes
  double read_seconds = 0;  ///< likewise; includes waiting for the clock
};
void add(report& sum, const report& r) {
  sum.iterations += r.iterations;
  sum.seconds = std::max(sum.seconds, r.seconds);
  if (r.objective_seconds >= 0) {
    sum.objective_seconds = r.objective_seconds;
    sum.objective_iterations = r.objective_iterations;
  }
  sum.staleness += r.staleness;
  sum.cpu_seconds += r.cpu_seconds;
  sum.read_seconds += r.read_seconds;
}

class late_worker : public paralg {
 public:
  late_worker()
      : paralg("", Comm(), "", 1 << 30, FLAGS_staleness, FLAGS_consistency != "asp"),
        delta_(FLAGS_objective > 0 ? 101 : FLAGS_values, 0.0) {
    if (FLAGS_consistency == "bsp") set_consistency(consistency_model::bsp);
    if (FLAGS_objective > 0) {
      make_batches();
      if (get_worker_id() == 0) all_ = rows_of(0, 1);
    }
    set_push(FLAGS_push);
    if (get_worker_id() == 0) {
      paracel_write("theta", delta_);
      paracel_write("done", 0);
    }
    paracel_sync();
  }

  report run() {
    report r;
    paracel_sync();
    const auto begin = bench::clock::now();
    const auto elapsed = [begin] { return seconds(bench::clock::now() - begin).count(); };
    std::vector<double> theta;
    for (std::uint64_t i = 0; elapsed() < FLAGS_seconds; ++i) {
      const auto before_read = elapsed();
      paracel_read("theta", theta);
      r.read_seconds += elapsed() - before_read;
      r.staleness += last_staleness();
      if (FLAGS_objective > 0) {
        if (get_worker_id() == 0 && r.objective_seconds < 0 && objective(theta) <= FLAGS_objective) {
          r.objective_seconds = elapsed();
          r.objective_iterations = i;
          paracel_write("done", 1);
        }
        if (paracel_read<int>("done") != 0) break;
        step(theta, i);
      }
      const bool late = chance(get_worker_id(), i) < FLAGS_late_probability;
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(work_ms_ + (late ? FLAGS_late_ms : 0)));
      paracel_update("theta", delta_);
      iter_commit();
      if (elapsed() < FLAGS_seconds) ++r.iterations;
    }
    r.seconds = std::min(elapsed(), FLAGS_seconds);
    r.cpu_seconds = static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
    return r;
  }

 private:
  double objective(std::span<const double> theta) {
    scratch_.assign(theta.size(), 0.0);
    return all_.add_gradient(theta, scratch_) / static_cast<double>(all_.rows()) + all_.penalty(theta);
  }
  void make_batches() {
    const auto me = get_worker_id();
    const auto size = get_worker_size();
    const auto count = FLAGS_batch == 0 ? 1 : std::max<std::size_t>(1, samples / size / FLAGS_batch);
    for (std::size_t b = 0; b < count; ++b) batches_.push_back(rows_of(me + b * size, count * size));
    if (FLAGS_batch != 0) work_ms_ = FLAGS_row_ms * static_cast<double>(batches_[0].rows());
  }
  /// Adds this worker's part of a step along the mean gradient of the rows of this iteration.
  void step(std::span<const double> theta, std::uint64_t iteration) {
    const auto& rows = batches_[iteration % batches_.size()];
    const auto n = static_cast<double>(rows.rows());
    std::fill(delta_.begin(), delta_.end(), 0.0);
    rows.add_gradient(theta, delta_);
    rows.add_penalty_gradient(theta, n, delta_);
    for (double& d : delta_) d *= -FLAGS_alpha / (n * static_cast<double>(get_worker_size()));
  }

  std::vector<alg::lr_problem> batches_;
  double work_ms_ = FLAGS_work_ms;
  alg::lr_problem all_;
  std::vector<double> delta_;
  std::vector<double> scratch_;
};

void run() {
  const job j({.bin_dir = FLAGS_bin_dir,
               .transport = FLAGS_transport,
               .workers = FLAGS_workers,
               .servers = FLAGS_servers,
               .threads = FLAGS_threads});
  const report sum = run_clients<report>(FLAGS_workers, [&j](int rank) {
    j.set_environment(rank);
    static int argc = 1;
    static char name[] = "bench_straggler";
    static char* words[] = {name, nullptr};
    static char** argv = words;
    auto environment = std::make_shared<main_env>(argc, argv);
    auto w = std::make_shared<late_worker>();
    return [environment, w]() mutable {
      const report r = w->run();
      w.reset();  // leaves the clock, so that no worker waits for this one
      environment.reset();
      return r;
    };
  });
  const double rate = static_cast<double>(sum.iterations) / FLAGS_workers / sum.seconds;
  const double staleness = sum.iterations == 0 ? 0 : sum.staleness / static_cast<double>(sum.iterations);
  const double read_ms = sum.iterations == 0 ? 0 : 1000 * sum.read_seconds / static_cast<double>(sum.iterations);
  std::printf(
      "{\"consistency\": \"%s\", \"staleness\": %d, \"iterations_per_second\": %.3f, \"mean_staleness\": %.2f, "
      "\"mean_read_ms\": %.3f, \"objective_seconds\": %s, \"objective_iterations\": %llu, \"cpu_seconds\": %.3f}\n",
      FLAGS_consistency.c_str(), FLAGS_staleness, rate, staleness, read_ms,
      sum.objective_seconds < 0 ? "null" : std::to_string(sum.objective_seconds).c_str(),
      static_cast<unsigned long long>(sum.objective_iterations), sum.cpu_seconds);
}

void check_flags() {
  if (FLAGS_consistency != "ssp" && FLAGS_consistency != "bsp" && FLAGS_consistency != "asp") {
    throw std::runtime_error("--consistency must be ssp, bsp or asp");
  }
  if (FLAGS_workers < 1 || FLAGS_servers < 1 || FLAGS_threads < 1 || FLAGS_staleness < 0 || FLAGS_values == 0) {
    throw std::runtime_error("workers, servers, threads and values must be at least 1, staleness at least 0");
  }
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("iterations a second of randomly delayed workers; prints one line of JSON");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    check_flags();
    run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_straggler: error: %s\n", e.what());
    return 1;
  }
  return 0;
}
