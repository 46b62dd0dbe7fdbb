// SPDX-License-Identifier: BSD-3-Clause
//
// A program that records metrics of its own: test_metrics OUTPUT ROUNDS MILLISECONDS
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <paracel/metrics.hpp>
#include <paracel/paralg.hpp>
#include <paracel/run.hpp>

namespace {

class metrics_program : public paracel::paralg {
 public:
  metrics_program(const std::string& output, int rounds, int pause)
      : paralg(paracel::Comm(), output), rounds_(rounds), pause_(pause) {}

  void solve() override {
    if (get_worker_id() == 0) paracel_write("busy", std::vector<double>{0});
    paracel_sync();
    const std::vector<double> target{0, 0};
    for (int round = 1; round <= rounds_; ++round) {
      for (int i = 0; i < 300; ++i) paracel_read<std::vector<double>>("busy");
      std::this_thread::sleep_for(std::chrono::milliseconds(pause_));
      iter_commit();
      report_metric("loss", round == 3 ? std::numeric_limits<double>::quiet_NaN() : 1.0 / round);
      report_metric("rmse", paracel::rmse(std::vector<double>{3.0 / round, 4.0 / round}, target), round);
    }
  }

 private:
  int rounds_;
  int pause_;
};

}  // namespace

int main(int argc, char** argv) {
  return paracel::run(argc, argv, [&] {
    if (argc < 4) throw paracel::usage_error("usage: test_metrics OUTPUT ROUNDS MILLISECONDS");
    metrics_program(argv[1], std::atoi(argv[2]), std::atoi(argv[3])).solve();
  });
}
