// SPDX-License-Identifier: BSD-3-Clause
//
// A queue over rows in chunks, whose result depends on the order of all its operations. Prints the result with all
// bits, then how many chunks were computed by tasks other than their owners.
//
//   queue_rows STEPS on|off [LATE [MS]]     work stealing; task LATE sleeps MS ms (default 3) for a chunk, others 1
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <paracel/over_rows.hpp>
#include <paracel/run.hpp>

using numbers = std::vector<double>;
using table = std::vector<numbers>;

void add_gradient(const paracel::row_chunk<table>& chunk, std::span<double> g) {
  const auto& w = chunk.get_obj<numbers>("w");
  for (auto i = chunk.begin(); i < chunk.end(); ++i)
    for (std::size_t j = 0; j < g.size(); ++j) g[j] += std::sin(w[j] * chunk.rows()[i][j] + w[(j + 1) % g.size()]);
}

int main(int argc, char** argv) {
  return paracel::run(argc, argv, [&] {
    if (argc < 3) throw paracel::usage_error("queue_rows STEPS on|off [LATE [MS]]");
    const auto late = argc > 3 ? std::strtoul(argv[3], nullptr, 10) : ~0UL;
    const auto late_ms = argc > 4 ? std::atoi(argv[4]) : 3;
    paracel::paralg job{paracel::Comm()};
    const auto me = job.get_worker_id();
    table rows(100 + 10 * me, numbers(8));
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t j = 0; j < 8; ++j) rows[i][j] = std::sin(static_cast<double>(i * 8 + j + 1000 * me));
    std::int64_t taken = 0;
    const auto pause = [&](const paracel::row_chunk<table>& chunk) {
      if (late != ~0UL) std::this_thread::sleep_for(std::chrono::milliseconds{me == late ? late_ms : 1});
      taken += static_cast<std::int64_t>(chunk.owner() != me);
    };
    const paracel::row_work<table> gradient{
        .rows = "rows",
        .result = "g",
        .reads = {"w"},
        .length = [](paracel::com_context& c) { return c.get_obj<numbers>("w").size(); },
        .compute =
            [&](const paracel::row_chunk<table>& chunk, std::span<double> g) {
              pause(chunk);
              add_gradient(chunk, g);
            },
        .chunks = 20};
    paracel::com_queue q(job);
    q.set_work_stealing(std::string(argv[2]) == "on");
    q.init_with_partitioned_data("rows", std::move(rows));
    q.init_with_broadcast_data("w", numbers(8, 0.1));
    q.add(paracel::over_rows(gradient));
    q.add(paracel::all_reduce("g"));
    q.add([](paracel::com_context& c) {
      auto& w = c.get_obj<numbers>("w");
      const auto& g = c.get_obj<const numbers>("g");
      for (std::size_t i = 0; i < w.size(); ++i) w[i] = 0.9 * w[i] + 0.01 * g[i];
      c.set_metric("norm", w[0]);
    });
    q.set_compare_criterion_of_node0([](paracel::com_context&) { return false; });
    q.set_max_iter(std::atoi(argv[1]));
    q.close_with([](paracel::com_context& c) { return c.get_obj<numbers>("w"); });
    const auto w = q.exec<numbers>();
    auto comm = job.get_comm();
    comm.allreduce(taken);
    if (me == 0) {
      for (const double v : w) std::printf("%a ", v);
      std::printf("\n%lld\n", static_cast<long long>(taken));
    }
  });
}
