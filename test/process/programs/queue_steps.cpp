// SPDX-License-Identifier: BSD-3-Clause
//
// A queue whose result depends on the order of all its operations, printed with all bits.
//
//   queue_steps STEPS [fail | slow]     task 1 fails in superstep 11; a pause in each superstep
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <paracel/com_queue.hpp>
#include <paracel/run.hpp>

using numbers = std::vector<double>;

int main(int argc, char** argv) {
  return paracel::run(argc, argv, [&] {
    if (argc < 2) throw paracel::usage_error("queue_steps STEPS [fail | slow]");
    const std::string how = argc > 2 ? argv[2] : "";
    paracel::paralg job{paracel::Comm()};
    paracel::com_queue q(job);
    q.init_with_broadcast_data("w", numbers(20'000, 0.1));
    q.add([&](paracel::com_context& c) {
      if (how == "fail" && c.step_no() == 11 && c.task_id() == 1) throw paracel::error("on purpose");
      if (how == "slow") std::this_thread::sleep_for(std::chrono::milliseconds{5});
      auto& own = c.contains_obj("own") ? c.get_obj<double>("own") : c.put_obj("own", 0.0);
      auto g = c.get_obj<numbers>("w");
      for (std::size_t i = 0; i < g.size(); ++i) g[i] = std::sin(g[i] + static_cast<double>(c.task_id() + i) + own);
      own += g[7];
      c.put_obj("g", std::move(g));
    });
    q.add(paracel::all_reduce("g"));
    q.add(paracel::all_reduce("own"));
    q.add([](paracel::com_context& c) {
      auto& w = c.get_obj<numbers>("w");
      const auto& g = c.get_obj<const numbers>("g");
      for (std::size_t i = 0; i < w.size(); ++i) w[i] = 0.9 * w[i] + g[i];
      c.set_metric("norm", w[0]);
    });
    q.set_compare_criterion_of_node0([](paracel::com_context&) { return false; });
    q.set_max_iter(std::atoi(argv[1]));
    q.close_with([](paracel::com_context& c) { return c.get_obj<numbers>("w"); });
    const auto w = q.exec<numbers>();
    if (job.get_worker_id() == 0) std::printf("%a %a %a\n", w[0], w[7], w.back());
  });
}
