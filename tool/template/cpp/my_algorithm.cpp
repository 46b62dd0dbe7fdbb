// SPDX-License-Identifier: BSD-3-Clause
//
// A straight line through points x,y by gradient descent: replace the settings and solve() with your own.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/run.hpp>

/// The keys of the config: each with its member, whose initial value is the default, its help and its limits.
struct my_algorithm_settings {
  static constexpr auto program = "my_algorithm", summary = "a straight line through points";

  std::vector<std::string> training_input;
  std::string output;
  std::string update_file = "libmy_algorithm_update.so", update_func = "my_algorithm_step";
  int rounds = 200;
  double alpha = 0.5;

  void keys(paracel::key_list& k) {
    k.files("training_input", training_input, "points, a line x,y each").required();
    k.output_folder("output", output, "folder of the results").required();
    k.plugin("update_file", update_file, "plug-in of the servers");
    k("update_func", update_func, "its function that applies a step");
    k("rounds", rounds, "number of steps").at_least(1);
    k("alpha", alpha, "step size").above(0).at_most(1);
  }
};

class my_algorithm : public paracel::paralg {
 public:
  using settings_type = my_algorithm_settings;
  explicit my_algorithm(const settings_type& settings)
      : paralg(paracel::Comm(), settings.output, settings.rounds), settings_(settings) {
    set_consistency(paracel::consistency_model::bsp);
    paracel_register_update(settings.update_file, settings.update_func);
  }

  void solve() override {
    load();
    if (get_worker_id() == 0) paracel_write("line", std::vector<double>{0, 0});
    paracel_sync();
    for (int round = 0; round < settings_.rounds; ++round) {
      paracel_update("line", step_from(paracel_read<std::vector<double>>("line")));  // sent to the servers
      iter_commit();  // takes effect when all workers have committed
    }
    const auto line = paracel_read<std::vector<double>>("line");  // height at the mean of x, slope
    double squares = 0;
    for (std::size_t i = 0; i < x_.size(); ++i) squares += std::pow(y_[i] - (line[0] + line[1] * x_[i]), 2);
    get_comm().allreduce(squares);
    if (get_worker_id() != 0) return;
    const std::vector<double> result{line[0] - line[1] * mean_, line[1]};
    std::printf("y = %.6f %+.6f x\nobjective %.10g\n", result[0], result[1], squares / n_);
    paracel_dump_vector(result, "line_");
  }

 private:
  /// This worker's part of the points, and what all of them have in common.
  void load() {
    for (const auto& text : paracel_load(settings_.training_input)) {
      double x = 0, y = 0;
      if (std::sscanf(text.c_str(), "%lf,%lf", &x, &y) != 2) throw paracel::data_error("found " + text + ", want x,y");
      x_.push_back(x);
      y_.push_back(y);
      mean_ += x;
    }
    n_ = static_cast<double>(x_.size());
    get_comm().allreduce(n_);
    get_comm().allreduce(mean_);
    mean_ /= n_;
    for (double& x : x_) {
      x -= mean_;
      spread_ += x * x;
    }
    get_comm().allreduce(spread_);
    if (!(spread_ > 0)) throw paracel::data_error("want points with at least two different x");
  }

  std::vector<double> step_from(const std::vector<double>& line) const {
    std::vector<double> step(2);
    for (std::size_t i = 0; i < x_.size(); ++i) {
      const double residual = y_[i] - (line[0] + line[1] * x_[i]);
      step[0] += settings_.alpha * residual / n_;
      step[1] += settings_.alpha * residual * x_[i] / spread_;
    }
    return step;
  }

  my_algorithm_settings settings_;
  std::vector<double> x_, y_;  // x from their mean
  double n_ = 0, mean_ = 0, spread_ = 0;
};

int main(int argc, char** argv) { return paracel::run<my_algorithm>(argc, argv); }
