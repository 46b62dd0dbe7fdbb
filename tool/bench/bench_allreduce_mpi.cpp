// SPDX-License-Identifier: BSD-3-Clause
//
// MPI_Allreduce of doubles, measured as bench_allreduce measures ours. It starts itself under mpirun:
//
//   bench_allreduce_mpi TASKS BYTES BTL      BTL: vader (shared memory) or tcp
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

int start_under_mpirun(char** argv) {
  const std::string btl = std::string(argv[3]) + ",self";
  std::vector<std::string> words{"mpirun", "--oversubscribe", "-n",  argv[1], "--mca",         "pml",
                                 "ob1",    "--mca",           "btl", btl,     "/proc/self/exe"};
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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "bench_allreduce_mpi TASKS BYTES BTL\n");
    return 2;
  }
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return start_under_mpirun(argv);
  const std::string btl = argv[3];  // MPI_Init changes argv
  const auto bytes = std::strtoull(argv[2], nullptr, 10);
  MPI_Init(&argc, &argv);
  int tasks = 1, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &tasks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const auto repeat =
      static_cast<int>(std::clamp<std::uint64_t>((std::uint64_t{512} << 20U) / std::max(bytes, 1ULL), 7, 1000));
  std::vector<double> v(bytes / sizeof(double), 1), times;
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < repeat + 3; ++i) {
    const double before = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, v.data(), static_cast<int>(v.size()), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (i >= 3) times.push_back((MPI_Wtime() - before) * 1e6);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  double median = times[times.size() / 2], most = 0;
  MPI_Reduce(&median, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0)
    std::printf("{\"tasks\": %d, \"bytes\": %llu, \"way\": \"%s\", \"us\": %.1f, \"mb_per_s\": %.1f}\n", tasks, bytes,
                btl.c_str(), most, static_cast<double>(bytes) / most);
  MPI_Finalize();
}
