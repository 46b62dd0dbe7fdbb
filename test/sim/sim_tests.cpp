// SPDX-License-Identifier: BSD-3-Clause
//
//   sim_tests --seeds N [--from S]   N jobs; reports the seed of the first failure
//             [--long-seeds M]       M instead of N when PARACEL_LONG is 1
//   sim_tests --seed S [--verbose]   one job, reproducibly; prints the hash of its events
//             [--calm] [--twice]     without faults; run twice, and both must have the same hash
//   sim_tests --mutation NAME --seeds N  with a deliberate defect (mutations.hpp), which one of the jobs must detect
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "test/sim/job.hpp"

namespace {

using namespace paracel::sim;

void print(const job_options& o, const job_result& r) {
  std::printf(
      "seed %llu: %.1f s simulated, %llu events, %llu answers, %u losses, %u moves, %u checkpoints, hash %016llx\n",
      static_cast<unsigned long long>(o.seed), static_cast<double>(r.time) / 1e9,
      static_cast<unsigned long long>(r.events), static_cast<unsigned long long>(r.answers), r.losses, r.moves,
      r.checkpoints, static_cast<unsigned long long>(r.hash));
}

int usage() {
  std::fprintf(stderr,
               "usage: sim_tests --seed S [--verbose] [--calm] [--twice]\n"
               "       sim_tests --seeds N [--from S] [--long-seeds M] [--mutation NAME]\n");
  return 64;
}

}  // namespace

int main(int argc, char** argv) {
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
  unsigned checkpoints = 0;
  for (; o.seed < first + seeds; ++o.seed) {
    try {
      const auto r = run_job(o);
      answers += r.answers;
      losses += r.losses;
      moves += r.moves;
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
    std::printf("%llu seeds, %llu answers, %u losses, %u moves, %u checkpoints, %.1f s\n",
                static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(answers), losses, moves,
                checkpoints, time.count());
  }
  if (o.broken == mutation::none) return 0;
  std::printf("nothing was noticed\n");
  return 1;
}
