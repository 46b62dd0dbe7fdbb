// SPDX-License-Identifier: BSD-3-Clause
//
// Messages of `communicate` that come about 20 ms after their receiver began to wait: that is how long a worker looks
// for a message before it looks whether the sender calls something else. Task 0 sends to all others at once, and
// receives from them.
//
//   late_messages STEPS
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include <paracel/com_queue.hpp>
#include <paracel/run.hpp>

int main(int argc, char** argv) {
  return paracel::run(argc, argv, [&] {
    if (argc < 2) throw paracel::usage_error("late_messages STEPS");
    paracel::paralg job{paracel::Comm()};
    std::minstd_rand dice(static_cast<unsigned>(std::random_device{}()));
    int received = 0;
    const auto receive = [&](paracel::com_context& c, paracel::collectives& all, std::size_t from) {
      if (all.receive<int>(from) != c.step_no()) throw paracel::error("another message than the one that was sent");
      ++received;
    };
    paracel::com_queue q(job);
    q.add([](paracel::com_context& c) { c.put_obj("x", 1.0); });
    q.add(paracel::all_reduce("x"));  // then all share memory
    q.add(paracel::communicate([&](paracel::com_context& c, paracel::collectives& all) {
      if (all.rank() != 0) {
        receive(c, all, 0);
        return all.send(0, c.step_no());
      }
      std::this_thread::sleep_for(std::chrono::microseconds(19'500 + dice() % 1'500));
      for (std::size_t r = 1; r < all.size(); ++r) all.send(r, c.step_no());
      for (std::size_t r = 1; r < all.size(); ++r) receive(c, all, r);
    }));
    q.set_max_iter(std::atoi(argv[1]));
    q.exec();
    std::printf("task %zu: %d received\n", job.get_worker_id(), received);
  });
}
