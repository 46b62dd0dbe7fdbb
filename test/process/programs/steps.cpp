// SPDX-License-Identifier: BSD-3-Clause
//
// Two algorithms one after the other, under bsp, while workers are killed. Each has collectives before its loop (one of
// them large), in its iterations and after its loop, random numbers that continue from round to round, keys and rows.
// Worker 0 prints the results with all bits; they must not depend on which workers were killed.
//
//   steps ROUNDS [MICROSECONDS [FILE]]     a pause in each round, while the file does not exist;
//                                          0 rounds: an update and then a pause until it exists, without a loop
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <paracel/paralg.hpp>
#include <paracel/table.hpp>

namespace {

constexpr std::size_t numbers = 20'000;  // a reply of 160 kB is not kept in the scheduler's memory
constexpr std::size_t width = 4;

class steps : public paracel::paralg {
 public:
  steps(std::string name, int rounds, int pause_us, std::string enough)
      : paralg(paracel::Comm()),
        name_(std::move(name)),
        enough_(std::move(enough)),
        rounds_(rounds),
        pause_(pause_us),
        engine_(get_worker_id() + 1) {
    set_consistency(paracel::consistency_model::bsp);
  }

  void solve() override {
    if (rounds_ == 0) {
      paracel_bupdate(name_, 1.0);
      while (rest()) continue;
      return;
    }
    const auto rank = static_cast<double>(get_worker_id());
    std::vector<double> large(numbers, 0.1 + rank);
    get_comm().allreduce(large);
    const auto scale = large.back() / 1000;
    paracel::table<double> rows(*this, name_ + "_rows", width);
    if (get_worker_id() == 0 && !resumed()) paracel_write(name_, std::vector<double>(8, 1.0));
    paracel_sync();
    const std::vector<std::uint64_t> ids{1, 2, get_worker_id() + 10};
    std::vector<double> x;
    std::vector<double> got(ids.size() * width);
    for (int round = first_iteration(); round < rounds_; ++round) {
      paracel_read(name_, x);
      rows.pull(ids, got);
      double sum = std::accumulate(x.begin(), x.end(), std::accumulate(got.begin(), got.end(), draw()));
      get_comm().allreduce(sum);
      for (auto& v : x) v = draw() * scale + sum * 1e-9;
      paracel_update(name_, x);
      for (auto& v : got) v = draw();
      rows.update(ids, got);
      rest();
      get_comm().synchronize();
      iter_commit();
      if (get_worker_id() == 0) report_progress({round + 1, rounds_, sum});
    }
    paracel_sync();
    paracel_read(name_, x);
    rows.pull(ids, got);
    double all = std::accumulate(x.begin(), x.end(), std::accumulate(got.begin(), got.end(), draw()));
    get_comm().allreduce(all);
    if (get_worker_id() == 0) std::printf("%s %a\n", name_.c_str(), all);
  }

  void checkpoint_state(paracel::saved_state& to) override { to.put_random("engine", engine_); }
  void restore_state(const paracel::saved_states& from) override { from.own().get_random("engine", engine_); }

 private:
  /// Returns whether there was a pause.
  bool rest() const {
    if (pause_ == 0 || (!enough_.empty() && access(enough_.c_str(), F_OK) == 0)) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(pause_));
    return true;
  }
  double draw() { return std::uniform_real_distribution<double>(-1, 1)(engine_); }

  std::string name_, enough_;
  int rounds_, pause_;
  std::mt19937_64 engine_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    paracel::main_env environment(argc, argv);
    if (argc < 2) {
      std::fprintf(stderr, "steps: error: want steps ROUNDS [MICROSECONDS [FILE]]\n");
      return 2;
    }
    const int rounds = std::atoi(argv[1]);
    const int pause = argc > 2 ? std::atoi(argv[2]) : 0;
    const std::string enough = argc > 3 ? argv[3] : "";
    steps("first", rounds, pause, enough).solve();
    steps("second", rounds, pause, enough).solve();
  } catch (const paracel::error& e) {
    std::fprintf(stderr, "steps: error: %s\n", e.what());
    return e.status();
  }
}
