// SPDX-License-Identifier: BSD-3-Clause
//
// From text to compressed rows: how fast a graph or a sparse matrix is loaded, how much memory it uses, and the peak
// during loading. Workers are processes; each loads its part of the file. With `--pull` also the time of a halo
// exchange.
//
// The caller generates the file (tool/datagen.py -m pagerank, rmat, mf); it is read once before the measurement.
#include <gflags/gflags.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <paracel/distributed_graph.hpp>
#include <paracel/sparse.hpp>

#include "bench_job.hpp"
#include "worker/comm/comm_scheduler.hpp"
#include "worker/comm/single_comm.hpp"

DEFINE_string(file, "", "edges or entries");
DEFINE_int32(workers, 1, "workers");
DEFINE_string(as, "graph", "graph, weighted, undirected, both (with incoming edges) or matrix");
DEFINE_string(transport, "ipc", "ipc or tcp, with more than one worker");
DEFINE_int32(runs, 3, "repetitions; the best one is reported");
DEFINE_uint64(pull, 0, "1: then pull a double for each ghost, 5 times a run");
DEFINE_uint64(exchange, 0, "instead of loading: doubles that each worker sends to each other one");
DEFINE_string(cache, "", "folder of the input in binary form, which an additional first run writes");
DEFINE_string(bin_dir, "", "where start_server and start_scheduler are; empty: the folder of this program");

namespace {

using namespace paracel;
using clock_type = std::chrono::steady_clock;

double seconds_since(clock_type::time_point t) { return std::chrono::duration<double>(clock_type::now() - t).count(); }

/// Processor time of this process, all threads: unaffected by other load.
double processor_seconds() {
  rusage u{};
  ::getrusage(RUSAGE_SELF, &u);
  const auto of = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6; };
  return of(u.ru_utime) + of(u.ru_stime);
}

struct result {
  double seconds = 1e300;
  double processor = 1e300;
  double pull_seconds = 1e300;
  std::uint64_t rows = 0;
  std::uint64_t entries = 0;
  std::uint64_t ghosts = 0;
  std::uint64_t structure_bytes = 0;
  std::uint64_t before_bytes = 0;
  std::uint64_t peak_bytes = 0;
};

std::uint64_t status_bytes(const char* what) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(what)) return std::stoull(line.substr(std::string(what).size() + 1)) * 1024;
  }
  return 0;
}

std::uint64_t bytes_of(const id_list& ids) {
  std::uint64_t n = ids.size() * 8;
  if (!ids.numeric() && ids.size() > 0)
    n += static_cast<std::uint64_t>(ids.name(ids.size() - 1).end() - ids.name(0).begin());
  return n;
}

void measure(Comm comm, result& r) {
  // The baseline of the process: libraries and sockets.
  r.before_bytes = status_bytes("VmRSS:");
  entry_options entries;
  entries.cache = {.on = !FLAGS_cache.empty(), .folder = FLAGS_cache};
  for (int run = FLAGS_cache.empty() ? 0 : -1; run < FLAGS_runs; ++run) {
    comm.synchronize();
    const auto start = clock_type::now();
    const auto processor_start = processor_seconds();
    const auto loaded = [&] {
      if (run < 0) return;
      r.seconds = std::min(r.seconds, seconds_since(start));
      r.processor = std::min(r.processor, processor_seconds() - processor_start);
      if (run == 0) r.peak_bytes = status_bytes("VmHWM:");
    };
    if (FLAGS_exchange > 0) {
      std::vector<byte_vector> blocks(comm.get_size(), byte_vector(FLAGS_exchange * 8));
      blocks[comm.get_rank()].clear();
      comm.synchronize();
      const auto from = clock_type::now();
      const auto processor_from = processor_seconds();
      const auto got = comm.alltoall_bytes(blocks);
      r.seconds = std::min(r.seconds, seconds_since(from));
      r.processor = std::min(r.processor, processor_seconds() - processor_from);
      r.entries = FLAGS_exchange;
      r.peak_bytes = std::max(status_bytes("VmHWM:"), r.before_bytes);
      continue;
    }
    if (FLAGS_as == "matrix") {
      const auto m = load_sparse(comm, {FLAGS_file}, entries);
      loaded();
      r.rows = m.rows();
      r.entries = m.column.size();
      r.structure_bytes = m.begin.size() * 8 + m.column.size() * 4 + m.value.size() * 8 + bytes_of(m.row_ids) +
                          bytes_of(m.column_ids) + m.column_number.size() * 8 + bytes_of(m.column_share);
      continue;
    }
    graph_options options;
    options.entries = entries;
    options.weighted = FLAGS_as == "weighted";
    options.undirected = FLAGS_as == "undirected";
    options.incoming = FLAGS_as == "both";
    const auto g = load_graph(comm, {FLAGS_file}, options);
    loaded();
    r.rows = g.own();
    r.entries = g.out.target.size() + g.in.target.size();
    r.ghosts = g.ghosts.size();
    r.structure_bytes = bytes_of(g.ids) + g.ghosts.size() * 8 + (g.out.begin.size() + g.in.begin.size()) * 8 +
                        (g.out.target.size() + g.in.target.size()) * 4 + (g.out.weight.size() + g.in.weight.size()) * 8;
    if (FLAGS_pull == 0) continue;
    halo shared(comm, g);
    std::vector<double> own(g.own(), 1.0);
    std::vector<double> ghost(g.ghosts.size());
    for (int k = 0; k < 5; ++k) {
      comm.synchronize();
      const auto from = clock_type::now();
      shared.pull<double>(own, ghost);
      r.pull_seconds = std::min(r.pull_seconds, seconds_since(from));
    }
  }
}

void print(const std::vector<result>& all) {
  double seconds = 0;
  for (const auto& r : all) seconds = std::max(seconds, r.seconds);
  const double bytes = FLAGS_file.empty() ? 0 : static_cast<double>(std::filesystem::file_size(FLAGS_file));
  std::printf(
      R"({"as": "%s", "workers": %zu, "seconds": %.4f, "mb_per_second": %.1f, "mb_per_second_and_worker": %.1f)",
      FLAGS_as.c_str(), all.size(), seconds, bytes / 1e6 / seconds,
      bytes / 1e6 / seconds / static_cast<double>(all.size()));
  for (const auto& r : all) {
    std::printf(R"(, "rows": %llu, "entries": %llu, "ghosts": %llu, "structure_mb": %.1f, "peak_mb": %.1f, )"
                R"("processor_seconds": %.3f)",
                static_cast<unsigned long long>(r.rows), static_cast<unsigned long long>(r.entries),
                static_cast<unsigned long long>(r.ghosts), static_cast<double>(r.structure_bytes) / 1e6,
                static_cast<double>(r.peak_bytes - r.before_bytes) / 1e6, r.processor);
    if (FLAGS_pull != 0) std::printf(R"(, "pull_ms": %.3f)", r.pull_seconds * 1e3);
  }
  std::printf("}\n");
}

int run() {
  if (!FLAGS_file.empty()) {
    std::vector<char> chunk(1U << 20U);
    for (std::ifstream in(FLAGS_file, std::ios::binary);
         in.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));) {
    }
  }
  if (FLAGS_workers == 1) {
    std::vector<result> all(1);
    measure(Comm(std::make_shared<single_comm>()), all[0]);
    print(all);
    return 0;
  }
  const bench::job job({.bin_dir = FLAGS_bin_dir, .transport = FLAGS_transport, .workers = FLAGS_workers});
  const auto workers = static_cast<std::size_t>(FLAGS_workers);
  auto* const shared = static_cast<result*>(
      ::mmap(nullptr, workers * sizeof(result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (shared == MAP_FAILED) throw std::runtime_error("cannot get memory");
  std::vector<pid_t> pids;
  for (std::size_t w = 0; w < workers; ++w) {
    const pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error("cannot fork");
    if (pid > 0) {
      pids.push_back(pid);
      continue;
    }
    int status = 0;
    try {
      const auto mine = job.join(static_cast<int>(w));
      auto& r = *new (shared + w) result();
      measure(Comm(std::make_shared<comm_scheduler>(w, workers, [mine] { return mine; }), mine), r);
      mine->leave();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "worker %zu: %s\n", w, e.what());
      status = 1;
    }
    ::_exit(status);
  }
  bool well = true;
  for (const pid_t p : pids) {
    int status = 0;
    ::waitpid(p, &status, 0);
    well = well && status == 0;
  }
  if (!well) return 1;
  print({shared, shared + workers});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    return run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_graph_load: error: %s\n", e.what());
    return 1;
  }
}
