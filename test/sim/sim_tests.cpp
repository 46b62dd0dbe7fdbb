// SPDX-License-Identifier: BSD-3-Clause
//
//   sim_tests --seeds N [--from S]   N jobs; reports the seed of the first failure
//             [--long-seeds M]       M instead of N when PARACEL_LONG is 1
//   sim_tests --seed S [--verbose]   one job, reproducibly; prints the hash of its events
//             [--calm] [--twice]     without faults; run twice, and both must have the same hash
//   sim_tests --mutation NAME --seeds N  with a deliberate defect (mutations.hpp), which one of the jobs must detect
//   sim_tests --big [--servers N] ...    a large job without faults, timed (big_job.hpp); prints a line of JSON
//             [--within P]               fails when the run differs from what is computed by more than P percent
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <string>
#include <string_view>

#include "test/sim/big_job.hpp"
#include "test/sim/job.hpp"
#include "test/sim/server_process.hpp"

namespace {

using namespace paracel::sim;

void print(const job_options& o, const job_result& r) {
  std::printf(
      "seed %llu: %.1f s simulated, %llu events, %llu answers, %u losses, %u moves, %u rebalanced, %u checkpoints, "
      "hash %016llx\n",
      static_cast<unsigned long long>(o.seed), static_cast<double>(r.time) / 1e9,
      static_cast<unsigned long long>(r.events), static_cast<unsigned long long>(r.answers), r.losses, r.moves,
      r.rebalanced, r.checkpoints, static_cast<unsigned long long>(r.hash));
}

int usage() {
  std::fprintf(
      stderr,
      "usage: sim_tests --seed S [--verbose] [--calm] [--twice]\n"
      "       sim_tests --seeds N [--from S] [--long-seeds M] [--mutation NAME]\n"
      "       sim_tests --big [--seed S] [--servers N] [--threads N] [--workers N] [--iterations N] [--staleness N]\n"
      "                 [--keys N] [--keys_each N] [--sets 0|1] [--compute_us N] [--link_mbit N] [--latency_us N]\n"
      "                 [--stragglers none|one|pauses|power] [--within PERCENT]\n");
  return 64;
}

/// Whether two figures differ by at most so many percent.
bool agree(const char* what, double computed, double run, double percent) {
  if (std::abs(run - computed) * 100 <= computed * percent) return true;
  std::printf("%s: computed %.4g, but %.4g in the run, which is more than %g %% off\n", what, computed, run, percent);
  return false;
}

int run_big(int argc, char** argv) {
  big_options o;
  double within = 0;
  for (int i = 2; i < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (i + 1 == argc) return usage();
    const std::string_view text = argv[i + 1];
    if (flag == "--stragglers") {
      constexpr std::string_view patterns[] = {"none", "one", "pauses", "power"};
      const auto at = std::ranges::find(patterns, text);
      if (at == std::end(patterns)) return usage();
      o.slow = static_cast<stragglers>(at - std::begin(patterns));
      continue;
    }
    std::uint64_t n = 0;
    if (const auto end = text.data() + text.size(); std::from_chars(text.data(), end, n).ptr != end) return usage();
    const auto small = static_cast<std::uint32_t>(n);
    if (flag == "--seed") o.seed = n;
    else if (flag == "--servers") o.servers = small;
    else if (flag == "--threads") o.threads = small;
    else if (flag == "--workers") o.workers = small;
    else if (flag == "--iterations") o.iterations = small;
    else if (flag == "--staleness") o.staleness = small;
    else if (flag == "--keys") o.keys = n;
    else if (flag == "--keys_each") o.keys_each = small;
    else if (flag == "--sets") o.sets = n != 0;
    else if (flag == "--compute_us") o.compute = static_cast<nanos>(n) * 1000;
    else if (flag == "--link_mbit") o.link = static_cast<double>(n) / 8000;
    else if (flag == "--latency_us") o.latency = static_cast<nanos>(n) * 1000;
    else if (flag == "--within") within = static_cast<double>(n);
    else return usage();
  }
  if (o.servers == 0 || o.threads == 0 || o.threads > most_threads || o.workers == 0 || o.iterations == 0 ||
      o.keys < o.workers || o.keys_each == 0 || o.link <= 0) {
    std::fprintf(stderr,
                 "sim_tests: error: --big needs servers, workers, iterations, keys_each and link_mbit of at "
                 "least 1, 1 to 16 threads, and at least as many keys as workers\n");
    return 64;
  }
  try {
    const auto r = run_big_job(o);
    std::printf("%s\n", to_json(o, r).c_str());
    if (within == 0) return 0;
    const auto& c = r.computed;
    constexpr double counted = 2;  // what the ring and the choice of keys leave
    const bool same = agree("messages of a worker", c.messages, r.run.messages, counted) &
                      agree("bytes of a worker", c.bytes, r.run.bytes, counted) &
                      agree("bytes into a server", c.server_in, r.run.server_in, counted) &
                      agree("bytes out of a server", c.server_out, r.run.server_out, counted) &
                      agree("milliseconds of an iteration", c.ms, r.run.ms, within);
    return same ? 0 : 1;
  } catch (const std::exception& e) {
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(o.seed), e.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--big") return run_big(argc, argv);
  job_options o;
  std::uint64_t seeds = 1;
  bool one = true;
  bool twice = false;
  const char* const long_form = std::getenv("PARACEL_LONG");
  const bool is_long = long_form != nullptr && std::string_view(long_form) == "1";
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--verbose") {
      o.verbose = true;
      continue;
    }
    if (flag == "--calm") {
      o.faults = false;
      continue;
    }
    if (flag == "--twice") {
      twice = true;
      continue;
    }
    if (++i == argc) return usage();
    if (flag == "--seed" || flag == "--from") o.seed = std::strtoull(argv[i], nullptr, 10);
    else if (flag == "--seeds") seeds = std::strtoull(argv[i], nullptr, 10), one = false;
    else if (flag == "--long-seeds") seeds = is_long ? std::strtoull(argv[i], nullptr, 10) : seeds;
    else if (flag == "--mutation") {
      const auto b = bite_named(argv[i]);
      if (!b) return usage();
      o.broken = *b;
    } else return usage();
  }
  const auto begun = std::chrono::steady_clock::now();
  const auto first = o.seed;
  std::uint64_t answers = 0;
  unsigned losses = 0;
  unsigned moves = 0;
  unsigned rebalanced = 0;
  unsigned checkpoints = 0;
  for (; o.seed < first + seeds; ++o.seed) {
    try {
      const auto r = run_job(o);
      answers += r.answers;
      losses += r.losses;
      moves += r.moves;
      rebalanced += r.rebalanced;
      checkpoints += r.checkpoints;
      if (one) print(o, r);
      if (twice && run_job(o).hash != r.hash) throw violation("the second run was another one than the first");
    } catch (const std::exception& e) {
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(o.seed), e.what());
      if (o.broken == mutation::none) {
        std::printf("again: sim_tests --seed %llu --verbose\n", static_cast<unsigned long long>(o.seed));
        return 1;
      }
      std::printf("noticed after %llu seeds\n", static_cast<unsigned long long>(o.seed - first + 1));
      return 0;
    }
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begun;
  if (!one) {
    std::printf("%llu seeds, %llu answers, %u losses, %u moves, %u rebalanced, %u checkpoints, %.1f s\n",
                static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(answers), losses, moves,
                rebalanced, checkpoints, time.count());
  }
  if (o.broken == mutation::none) return 0;
  std::printf("nothing was noticed\n");
  return 1;
}
