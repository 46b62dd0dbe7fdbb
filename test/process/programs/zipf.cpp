// SPDX-License-Identifier: BSD-3-Clause
//
// Reads and updates keys, of which some are asked for much more often than others: test_zipf ROUNDS|FILE MILLISECONDS
// PREFIX
//
// In each step of a round a worker reads 6 keys, the one of rank k chosen in proportion to 1 / k^1.1, and adds to each
// what depends on its value; all steps of a round are under way at once. Updates take effect between rounds, in one
// order, so whatever becomes of the servers meanwhile, worker 0 prints, for the same number of rounds, the same digest
// of all bits at the end. FILE: a path with a slash; the job runs until it exists. MILLISECONDS: a pause after each
// round.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/random.hpp>
#include <paracel/run.hpp>

namespace {

constexpr std::size_t keys = 3000;
constexpr std::size_t steps = 200;
constexpr std::size_t asked = 6;
constexpr std::size_t at_once = 500;
constexpr int rounds_between_looks = 8;

class zipf : public paracel::paralg {
 public:
  zipf(const std::string& until, int pause, const std::string& prefix)
      : paralg(paracel::Comm()),
        file_(until.find('/') == std::string::npos ? "" : until),
        rounds_(file_.empty() ? std::atoi(until.c_str()) : std::numeric_limits<int>::max()),
        pause_(pause) {
    set_consistency(paracel::consistency_model::bsp);
    double sum = 0;
    for (std::size_t k = 0; k < keys; ++k) {
      names_.push_back(prefix + std::to_string(k));
      sums_.push_back(sum += std::pow(static_cast<double>(k + 1), -1.1));
    }
  }

  void solve() override {
    for (std::size_t k = get_worker_id(); k < keys; k += get_worker_size()) {
      paracel_write(names_[k], 1.0 + static_cast<double>(k));
    }
    paracel_sync();
    for (int round = 1; round <= rounds_; ++round) {
      paracel::counter_random random(7, get_worker_id(), static_cast<std::uint64_t>(round));
      run_steps(random);
      iter_commit();
      if (get_worker_id() == 0) report_progress({round, file_.empty() ? rounds_ : 0, 0});
      if (!file_.empty() && round % rounds_between_looks == 0 && is_told()) rounds_ = round;
      if (pause_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(pause_));
    }
    paracel_sync();
    if (get_worker_id() != 0) return;
    std::uint64_t digest = 0xcbf29ce484222325U;
    for (std::size_t first = 0; first < keys; first += at_once) {
      const std::vector<std::string> some(names_.begin() + static_cast<std::ptrdiff_t>(first),
                                          names_.begin() + static_cast<std::ptrdiff_t>(first + at_once));
      std::vector<double> values;
      paracel_read_multi_async(some, values).get();
      for (const double v : values) {
        std::uint64_t bits = 0;
        std::memcpy(&bits, &v, sizeof bits);
        digest = (digest ^ bits) * 0x100000001b3U;
      }
    }
    std::printf("%d rounds, digest %016llx\n", rounds_, static_cast<unsigned long long>(digest));
  }

 private:
  bool is_told() {
    double told = std::filesystem::exists(file_) ? 1 : 0;
    get_comm().allreduce(told, paracel::reduce_op::max);
    return told > 0;
  }
  void run_steps(paracel::counter_random& random) {
    for (auto& s : steps_) {
      s.which.clear();
      for (std::size_t i = 0; i < asked; ++i) {
        const auto at = std::ranges::upper_bound(sums_, random.uniform() * sums_.back());
        s.which.push_back(names_[std::min(keys - 1, static_cast<std::size_t>(at - sums_.begin()))]);
      }
      std::ranges::sort(s.which);
      s.which.erase(std::ranges::unique(s.which).begin(), s.which.end());
      paracel_read_multi_async(s.which, s.values);
    }
    paracel_wait();
    for (auto& s : steps_) {
      for (auto& v : s.values) v = std::sin(v) / (1.0 + static_cast<double>(get_worker_id()));
      paracel_update_multi_async(s.which, s.values);
    }
  }

  struct step {
    std::vector<std::string> which;
    std::vector<double> values;
  };

  std::string file_;
  int rounds_;
  int pause_;
  std::vector<std::string> names_;
  std::vector<double> sums_;  // of the probabilities of the keys up to each
  std::array<step, steps> steps_;
};

}  // namespace

int main(int argc, char** argv) {
  return paracel::run(argc, argv, [&] {
    if (argc < 4) throw paracel::usage_error("usage: test_zipf ROUNDS|FILE MILLISECONDS PREFIX");
    zipf(argv[1], std::atoi(argv[2]), argv[3]).solve();
  });
}
