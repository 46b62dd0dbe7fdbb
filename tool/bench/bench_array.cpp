// SPDX-License-Identifier: BSD-3-Clause
//
// paracel::array: dense reads and updates, and sparse ones, by piece size. One worker process, real servers.
#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include <paracel/array.hpp>
#include <paracel/paralg.hpp>

#include "tool/bench/bench_job.hpp"
#include "tool/bench/bench_support.hpp"

DEFINE_uint64(doubles, 1'000'000, "elements of the array");
DEFINE_uint64(piece_bytes, 0, "bytes of a piece; 0: as the array chooses");
DEFINE_uint64(sparse, 10'000, "elements of a sparse call");
DEFINE_int32(servers, 2, "server processes");
DEFINE_int32(threads, 1, "shard threads of a server");
DEFINE_double(seconds, 0.5, "measured time of each kind of call");
DEFINE_string(transport, "ipc", "ipc or tcp");
DEFINE_string(bin_dir, "", "where start_server and start_scheduler are; empty: the folder of this program");

namespace {

using namespace paracel;
using namespace paracel::bench;

struct report {
  double piece_bytes = 0;
  double pieces = 0;
  double read = 0;  ///< microseconds a call, medians
  double update = 0;
  double read_at = 0;
  double update_at = 0;
};
void add(report& sum, const report& r) { sum = r; }

template <class F>
double microseconds(const F& call) {
  std::vector<double> all;
  call();
  const auto begin = std::chrono::steady_clock::now();
  while (all.size() < 5 || std::chrono::steady_clock::now() - begin < std::chrono::duration<double>(FLAGS_seconds)) {
    const auto before = std::chrono::steady_clock::now();
    call();
    all.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - before).count());
  }
  std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2));
  return all[all.size() / 2];
}

report measure() {
  paralg a("", Comm());
  array<double> x(a, "x", FLAGS_doubles, 0.0, {.piece_bytes = FLAGS_piece_bytes});
  std::vector<double> values(FLAGS_doubles, 1.0);
  std::vector<std::uint64_t> indices(FLAGS_sparse);
  std::mt19937_64 random(1);
  for (auto& i : indices) i = random() % FLAGS_doubles;
  std::vector<double> some(FLAGS_sparse, 1.0);
  report r;
  r.piece_bytes = static_cast<double>(x.piece_size() * sizeof(double));
  r.pieces = static_cast<double>(x.pieces().size());
  r.read = microseconds([&] { x.read(values); });
  r.update = microseconds([&] { x.bupdate(values); });
  r.read_at = microseconds([&] { x.read_at(indices, some); });
  r.update_at = microseconds([&] { x.bupdate_at(indices, some); });
  return r;
}

void run() {
  const job j({.bin_dir = FLAGS_bin_dir,
               .transport = FLAGS_transport,
               .workers = 1,
               .servers = FLAGS_servers,
               .threads = FLAGS_threads});
  const report r = run_clients<report>(1, [&j](int rank) {
    j.set_environment(rank);
    static int argc = 1;
    static char name[] = "bench_array";
    static char* words[] = {name, nullptr};
    static char** argv = words;
    auto environment = std::make_shared<main_env>(argc, argv);
    return [environment]() mutable {
      const report mine = measure();
      environment.reset();
      return mine;
    };
  });
  std::printf(
      "{\"doubles\": %llu, \"pieces\": %.0f, \"piece_bytes\": %.0f, \"read_us\": %.1f, \"update_us\": %.1f, "
      "\"sparse\": %llu, \"read_at_us\": %.1f, \"update_at_us\": %.1f}\n",
      static_cast<unsigned long long>(FLAGS_doubles), r.pieces, r.piece_bytes, r.read, r.update,
      static_cast<unsigned long long>(FLAGS_sparse), r.read_at, r.update_at);
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage("cost of reads and updates of paracel::array");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    if (FLAGS_servers < 1 || FLAGS_threads < 1 || FLAGS_doubles == 0)
      throw std::runtime_error("all options must be at least 1");
    run();
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_array: %s\n", e.what());
    return 1;
  }
}
