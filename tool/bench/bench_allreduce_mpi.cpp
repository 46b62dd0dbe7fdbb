// SPDX-License-Identifier: BSD-3-Clause
//
// All-reduces of doubles under mpirun: MPI_Allreduce and ours, which a job's collectives use there, alternately in the
// same processes. It starts itself under mpirun:
//
//   bench_allreduce_mpi TASKS BYTES BTL      BTL: vader (shared memory) or tcp
//
// us: MPI_Allreduce; ours_us: ours by MPI's messages, as between hosts; shared_us: in the memory that ranks of one host
// share; ratio: ours_us / us.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <paracel/collectives.hpp>
#include <paracel/comm.hpp>

#include "tool/bench/bench_support.hpp"
#include "worker/comm/mpi_library.hpp"

namespace {

using namespace paracel;

int start_under_mpirun(char** argv) {
  const std::string btl = std::string(argv[3]) + ",self";
  // Not bound to cores, as by prun.py.
  std::vector<std::string> words{
      "mpirun", "--oversubscribe", "--bind-to", "none", "-n", argv[1], "--mca", "pml", "ob1", "--mca", "btl",
      btl,      "/proc/self/exe"};
  char self[4096] = {};
  if (::readlink("/proc/self/exe", self, sizeof self - 1) > 0) words.back() = self;
  for (int i = 1; i < 4; ++i) words.emplace_back(argv[i]);
  if (::geteuid() == 0) words.insert(words.begin() + 1, "--allow-run-as-root");
  std::vector<char*> all;
  for (auto& w : words) all.push_back(w.data());
  all.push_back(nullptr);
  ::execvp("mpirun", all.data());
  std::perror("mpirun");
  return 1;
}

collectives made(bool shares) {
  ::setenv("PARACEL_SHARED_MEMORY", shares ? "1" : "0", 1);
  return collectives(Comm(std::shared_ptr<comm_backend>(paracel_mpi_comm(nullptr))));
}

/// The times of one of several alternating implementations.
class timed {
 public:
  template <class F>
  void add(bool counts, const F& call) {
    const auto before = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - before;
    if (counts) all_.push_back(time.count());
  }
  /// The largest median of all ranks, on rank 0.
  double median() {
    const auto middle = all_.begin() + static_cast<std::ptrdiff_t>(all_.size() / 2);
    std::nth_element(all_.begin(), middle, all_.end());
    double most = 0;
    MPI_Reduce(&*middle, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return most;
  }

 private:
  std::vector<double> all_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "bench_allreduce_mpi TASKS BYTES BTL\n");
    return 2;
  }
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return start_under_mpirun(argv);
  const std::string btl = argv[3];  // MPI_Init changes argv
  const auto bytes = std::strtoull(argv[2], nullptr, 10);
  paracel::bench::keep_large_blocks();
  MPI_Init(&argc, &argv);
  int tasks = 1, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &tasks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const auto repeat =
      static_cast<int>(std::clamp<std::uint64_t>((std::uint64_t{512} << 20U) / std::max(bytes, 1ULL), 7, 1000));
  std::vector<double> v(bytes / sizeof(double), 1);
  timed theirs, ours, shared;
  bool right = true;
  {
    auto by_messages = made(false), in_memory = made(true);
    // Many in a row: how long a rank spins before it sleeps depends on how long it waited before.
    constexpr int turns = 5;
    const auto row = (repeat + turns - 1) / turns;
    for (int i = 0; i < turns; ++i) {
      const auto each = [&](timed& t, const auto& call) {
        for (int k = 0; k < row + 3; ++k) t.add(k >= 3, call);
      };
      each(theirs, [&] {
        MPI_Allreduce(MPI_IN_PLACE, v.data(), static_cast<int>(v.size()), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
      });
      std::fill(v.begin(), v.end(), 1.0);
      each(ours, [&] { by_messages.all_reduce(std::span(v)); });
      std::fill(v.begin(), v.end(), 1.0);
      each(shared, [&] { in_memory.all_reduce(std::span(v)); });
      std::fill(v.begin(), v.end(), 1.0);
      by_messages.all_reduce(std::span(v));
      right = right && (v.empty() || v.back() == tasks);
      in_memory.all_reduce(std::span(v));
      right = right && (v.empty() || v.back() == tasks * tasks);
    }
  }
  const double us = theirs.median(), ours_us = ours.median(), shared_us = shared.median();
  if (rank == 0)
    std::printf(
        "{\"tasks\": %d, \"bytes\": %llu, \"way\": \"%s\", \"us\": %.1f, \"ours_us\": %.1f, \"shared_us\": %.1f, "
        "\"ratio\": %.3f}\n",
        tasks, bytes, btl.c_str(), us, ours_us, shared_us, ours_us / us);
  MPI_Finalize();
  return right ? 0 : 1;
}
