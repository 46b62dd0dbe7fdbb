// SPDX-License-Identifier: BSD-3-Clause
//
// The graph programs without loading and writing: seconds of breadth-first search, shortest paths, core numbers and
// triangles on a graph in memory, in one worker or several. With one worker searches alternate with the serial
// references of baselines/graph_reference.hpp, from the same sources, and their results are compared.
//
// The caller generates the file (tool/datagen.py -m rmat).
#include <gflags/gflags.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <paracel/distributed_graph.hpp>

#include "alg/bfs/bfs.hpp"
#include "alg/k_core/k_core.hpp"
#include "alg/sssp/sssp.hpp"
#include "alg/triangle_count/triangle_count.hpp"
#include "baselines/graph_reference.hpp"
#include "bench_job.hpp"
#include "bench_support.hpp"
#include "worker/comm/comm_scheduler.hpp"
#include "worker/comm/single_comm.hpp"

DEFINE_string(file, "", "edges");
DEFINE_string(what, "bfs", "bfs, sssp, k_core or triangles");
DEFINE_int32(workers, 1, "workers");
DEFINE_int32(runs, 7, "repetitions, from different sources");
DEFINE_bool(undirected, false, "bfs, sssp: edges in both directions");
DEFINE_bool(incoming, false, "bfs: load the edges of the other direction too");
DEFINE_double(delta, 0, "sssp: width of the reference's buckets; 0: Dijkstra's algorithm");
DEFINE_double(our_delta, 0, "sssp: width of our buckets; 0: from the weights");
DEFINE_string(bin_dir, "", "where start_server and start_scheduler are; empty: the folder of this program");

namespace {

using namespace paracel;
using clock_type = std::chrono::steady_clock;

constexpr int most_runs = 100;

struct result {
  double load_seconds = 0;
  double seconds[most_runs] = {};
  double reference[most_runs] = {};
  double resident_mb = 0, peak_mb = 0;
};

double since(clock_type::time_point t) { return std::chrono::duration<double>(clock_type::now() - t).count(); }

double status_mb(const char* what) {
  std::FILE* f = std::fopen("/proc/self/status", "r");
  char line[256];
  double mb = 0;
  while (f != nullptr && std::fgets(line, sizeof line, f) != nullptr)
    if (std::string_view(line).starts_with(what)) mb = std::stod(line + std::string_view(what).size()) * 1024 / 1e6;
  if (f != nullptr) std::fclose(f);
  return mb;
}

/// The run-th source: a vertex with outgoing edges. A collective.
std::uint64_t source_of(Comm comm, const distributed_graph& graph, int run) {
  const auto n = graph.vertices_total();
  for (std::uint64_t k = 0;; ++k) {
    const auto v = (static_cast<std::uint64_t>(run) * 7919 + k + 1) * 2654435761U % n;
    const auto first = graph.first[graph.rank];
    std::int64_t edges = 0;
    if (v >= first && v - first < graph.own()) edges = static_cast<std::int64_t>(graph.out.degree(v - first));
    comm.allreduce(edges);
    if (edges > 0) return v;
  }
}

template <class Ours, class Theirs>
void timed(Comm& comm, result& r, int run, Ours&& ours, Theirs&& theirs) {
  comm.synchronize();
  auto start = clock_type::now();
  const auto mine = ours();
  r.seconds[run] = since(start);
  if (comm.get_size() > 1) return;
  start = clock_type::now();
  const auto other = theirs();
  r.reference[run] = since(start);
  if (!other.empty() && mine != other) throw std::runtime_error("results differ from the reference's");
}

void measure(Comm comm, result& r) {
  graph_options options;
  options.entries.values = entry_options::value_rule::ignore;
  options.self_loops = false;
  options.undirected = FLAGS_undirected || FLAGS_what == "k_core" || FLAGS_what == "triangles";
  options.once = FLAGS_what == "k_core" || FLAGS_what == "triangles";
  options.incoming = FLAGS_incoming;
  if (FLAGS_what == "sssp") {
    options.weighted = true;
    options.entries.values = entry_options::value_rule::take;
  }
  const auto start = clock_type::now();
  const auto graph = load_graph(comm, {FLAGS_file}, options);
  r.load_seconds = since(start);
  r.resident_mb = status_mb("VmRSS:");
  const adjacency* in = options.undirected ? &graph.out : FLAGS_incoming ? &graph.in : nullptr;
  for (int run = 0; run < FLAGS_runs; ++run) {
    const auto source = source_of(comm, graph, run);
    const auto local = static_cast<std::uint32_t>(source);
    if (FLAGS_what == "bfs") {
      timed(
          comm, r, run, [&] { return alg::breadth_first_levels(comm, graph, source).levels; },
          [&] { return bench::reference_bfs(graph.out, in, local); });
    } else if (FLAGS_what == "sssp") {
      timed(
          comm, r, run, [&] { return alg::shortest_paths(comm, graph, source, {}, FLAGS_our_delta).distances; },
          [&] {
            return FLAGS_delta > 0 ? bench::reference_delta(graph.out, local, FLAGS_delta)
                                   : bench::reference_dijkstra(graph.out, local);
          });
    } else if (FLAGS_what == "k_core") {
      timed(
          comm, r, run, [&] { return alg::core_numbers(comm, graph).cores; },
          [] { return std::vector<std::uint32_t>(); });
    } else {
      auto edges = graph;  // count_triangles consumes them
      timed(
          comm, r, run, [&] { return alg::count_triangles(comm, edges, false).of_vertices; },
          [] { return std::vector<std::uint64_t>(); });
    }
  }
  r.peak_mb = status_mb("VmHWM:");
}

double median(std::vector<double> list) {
  std::sort(list.begin(), list.end());
  return list[list.size() / 2];
}

void print(const std::vector<result>& all) {
  std::vector<double> ours, ratios;
  double load = 0;
  for (const auto& r : all) load = std::max(load, r.load_seconds);
  for (int k = 0; k < FLAGS_runs; ++k) {
    double slowest = 0;
    for (const auto& r : all) slowest = std::max(slowest, r.seconds[k]);
    ours.push_back(slowest);
    if (all[0].reference[k] > 0) ratios.push_back(all[0].reference[k] / slowest);
  }
  std::printf(R"({"what": "%s", "workers": %zu, "load_seconds": %.3f, "seconds": %.4f, "least": %.4f)",
              FLAGS_what.c_str(), all.size(), load, median(ours), *std::min_element(ours.begin(), ours.end()));
  if (!ratios.empty() && FLAGS_what != "k_core" && FLAGS_what != "triangles") {
    std::vector<double> theirs(all[0].reference, all[0].reference + FLAGS_runs);
    std::printf(R"(, "reference_seconds": %.4f, "reference_least": %.4f, "ratio": %.3f)", median(theirs),
                *std::min_element(theirs.begin(), theirs.end()), median(ratios));
  }
  std::printf(R"(, "loaded_mb": [)");
  for (std::size_t w = 0; w < all.size(); ++w) std::printf("%s%.1f", w == 0 ? "" : ", ", all[w].resident_mb);
  std::printf(R"(], "peak_mb": [)");
  for (std::size_t w = 0; w < all.size(); ++w) std::printf("%s%.1f", w == 0 ? "" : ", ", all[w].peak_mb);
  std::printf("]}\n");
}

int run() {
  FLAGS_runs = std::clamp(FLAGS_runs, 1, most_runs);
  if (FLAGS_workers == 1) {
    std::vector<result> all(1);
    measure(Comm(std::make_shared<single_comm>()), all[0]);
    print(all);
    return 0;
  }
  const bench::job job({.bin_dir = FLAGS_bin_dir, .transport = "ipc", .workers = FLAGS_workers, .server_options = {}});
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
    std::fprintf(stderr, "bench_graph_search: error: %s\n", e.what());
    return 1;
  }
}
