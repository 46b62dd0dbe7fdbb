// SPDX-License-Identifier: BSD-3-Clause
//
// test_comm_steps ROUNDS [HOW]: collectives of a Comm whose result depends on their order and on that of every fold;
// worker 0 prints it.
//
//   slow     a millisecond a round     late     worker 1 sleeps in round 10, while the others wait for it
//   sums     all-reduces and barriers only
//   differ   worker 1 calls a barrier instead of an all-reduce in round 10
//   leave    worker 1 returns in round 10     fail     worker 1 throws in round 10
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/paralg.hpp>
#include <paracel/resumable_loop.hpp>
#include <paracel/run.hpp>

namespace {

using numbers = std::vector<double>;

/// What one round does with the vector in addition to sums.
void mix(paracel::Comm& comm, int round, numbers& w) {
  const auto me = comm.get_rank();
  const auto p = comm.get_size();
  const auto all = comm.allgather(std::map<std::string, double>{{"x", w[me] / 3}});
  for (std::size_t r = 0; r < p; ++r) w[r] += all[r].at("x");
  std::vector<numbers> out, in;
  for (std::size_t r = 0; r < p; ++r) out.emplace_back(r + 1, std::sin(w[r] + static_cast<double>(me)));
  comm.alltoall(out, in);
  for (const auto& from : in) w[p] += from.back();
  comm.bcast(w, static_cast<std::size_t>(round) % p);
  const auto half = comm.split(static_cast<int>(me % 2));
  w[0] =
      comm.treereduce(w[0], [](double from, double& into) { into = into / 2 + from; }) + (half.get_size() > p ? 1 : 0);
  comm.bcast(w);
}

}  // namespace

int main(int argc, char** argv) {
  return paracel::run(argc, argv, [&] {
    const int rounds = std::stoi(argv[1]);
    const std::string how = argc > 2 ? argv[2] : "";
    paracel::paralg job{paracel::Comm()};
    auto comm = job.get_comm();
    const bool is_odd = comm.get_rank() == 1;
    numbers w(9000);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = 0.1 * static_cast<double>(comm.get_rank() * 7 + i % 31);
    paracel::resumable_loop loop(job);  // so that a worker that dies can be replaced
    loop.keep("w", w);
    while (loop.next(rounds)) {
      const auto round = static_cast<int>(loop.iteration());
      if (comm.get_rank() == 0 && round % 50 == 5) comm.report(R"({"round":)" + std::to_string(round) + "}");
      if (how == "slow" || how == "sums") std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (round == 10 && is_odd && how == "late") std::this_thread::sleep_for(std::chrono::minutes(5));
      if (round == 10 && is_odd && how == "differ") comm.synchronize();
      if (round == 10 && is_odd && how == "leave") return;
      if (round == 10 && is_odd && how == "fail") throw paracel::data_error("on purpose");
      comm.allreduce(w);
      for (auto& x : w) x = std::sin(x);
      double greatest = w[comm.get_rank()];
      comm.allreduce(greatest, paracel::reduce_op::max);
      w[1] += greatest / 3;
      if (how != "sums") mix(comm, round, w);
      comm.synchronize();
    }
    double sum = 0;
    for (const double x : w) sum = std::cos(sum + x);
    if (comm.get_rank() == 0) std::printf("%a\n", sum);
  });
}
