// SPDX-License-Identifier: BSD-3-Clause
//
// Logistic regression in the manner of Paracel 0.3, whose documentation names four methods: dgd (gradients of all
// workers are added in each round), ipm (each worker descends by itself, the parameters are averaged), downpour and agd
// (asynchronous, with an exchange per round and per sample).
#include <cmath>
#include <cstddef>
#include <iostream>
#include <string>
#include <vector>

#include <gflags/gflags.h>
#include <mpi.h>

#include "load.hpp"
#include "paracel_types.hpp"
#include "ps.hpp"
#include "utils.hpp"

DEFINE_string(server_info, "host1:7777PARACELhost2:8888", "where the servers are");
DEFINE_string(cfg_file, "", "config file");

using std::string;
using std::vector;

namespace paracel {
namespace alg {

class logistic_regression : public paracel::paralg {
 public:
  logistic_regression(paracel::Comm comm, string hosts, string _input, string output, string _file, string _func,
                      string _method, int _rounds, double _alpha, double _beta)
      : paracel::paralg(hosts, comm, output, _rounds, 2, _method == "downpour"),
        input(_input),
        update_file(_file),
        update_func(_func),
        method(_method),
        rounds(_rounds),
        alpha(_alpha),
        beta(_beta) {}
  virtual ~logistic_regression() {}

  virtual void solve() {
    auto lines = paracel_load(input);
    for (auto& line : lines) {
      auto fields = paracel::str_split(line, ',');
      vector<double> x(1, 1.);
      for (size_t i = 0; i + 1 < fields.size(); ++i) x.push_back(std::stod(fields[i]));
      samples.push_back(x);
      labels.push_back(std::stod(fields.back()));
    }
    theta.assign(samples.empty() ? 0 : samples[0].size(), 0.);
    if (get_worker_id() == 0) paracel_write("theta", theta);
    paracel_register_update(update_file, update_func);
    paracel_register_bupdate(update_file, update_func);
    set_total_iters(rounds);
    paracel_sync();
    for (int rd = 0; rd < rounds; ++rd) {
      if (method == "dgd" || method == "ipm") {
        synchronous_round();
      } else if (method == "downpour") {
        push_round();
      } else {
        for (size_t s = 0; s < samples.size(); ++s) asynchronous_step(s);
      }
      iter_commit();
    }
    paracel_sync();
    theta = paracel_read<vector<double>>("theta");
    paracel_sync();
  }

  static double hypothesis(const vector<double>& x, const vector<double>& theta) {
    return 1. / (1. + std::exp(-paracel::dot_product(x, theta)));
  }

  double calc_loss() {
    double loss = 0.;
    for (size_t s = 0; s < samples.size(); ++s) {
      double h = hypothesis(samples[s], theta);
      loss -= std::log(labels[s] > 0.5 ? h : 1. - h);
    }
    int n = static_cast<int>(samples.size());
    auto worker_comm = get_comm();
    worker_comm.allreduce(loss);
    worker_comm.allreduce(n);
    return loss / n;
  }

  void dump_result() {
    if (get_worker_id() == 0) paracel_dump_vector(theta, "lr_theta_", "|");
    vector<string> predictions;
    for (size_t s = 0; s < samples.size(); ++s) {
      auto row = samples[s];
      row.push_back(hypothesis(row, theta));
      predictions.push_back(dump_line_as_vector(row));
    }
    paracel_dump_vector(predictions, "pred_v_", "\n");
  }

 private:
  /// One step on sample s; `weight` is that of the penalty.
  void step(size_t s, const vector<double>& at, vector<double>& to, double weight) {
    double e = labels[s] - hypothesis(samples[s], at);
    for (size_t i = 0; i < to.size(); ++i) to[i] += alpha * (e * samples[s][i] - weight * at[i]);
  }
  void synchronous_round() {
    theta = paracel_read<vector<double>>("theta");
    paracel_sync();
    vector<double> delta(theta.size(), 0.), local(theta);
    for (size_t s = 0; s < samples.size(); ++s) {
      if (method == "dgd") step(s, theta, delta, beta);
      if (method == "ipm") step(s, vector<double>(local), local, beta);
    }
    if (method == "ipm")
      for (size_t i = 0; i < delta.size(); ++i) delta[i] = (local[i] - theta[i]) / get_worker_size();
    paracel_bupdate("theta", delta);
    paracel_sync();
  }
  void push_round() {
    auto local = paracel_read<vector<double>>("theta");
    vector<double> delta(local.size(), 0.);
    for (size_t s = 0; s < samples.size(); ++s) {
      vector<double> before(local);
      step(s, before, local, beta);
      for (size_t i = 0; i < delta.size(); ++i) delta[i] += local[i] - before[i];
    }
    paracel_update("theta", delta);
  }
  void asynchronous_step(size_t s) {
    auto at = paracel_read<vector<double>>("theta");
    vector<double> delta(at.size(), 0.);
    step(s, at, delta, beta);
    paracel_bupdate("theta", delta);
  }

  string input, update_file, update_func, method;
  int rounds;
  double alpha, beta;
  vector<vector<double>> samples;
  vector<double> labels, theta;
};

}  // namespace alg
}  // namespace paracel

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::SetUsageMessage("[options]\n\t--server_info\n\t--cfg_file\n");
  google::ParseCommandLineFlags(&argc, &argv, true);

  paracel::json_parser pt(FLAGS_cfg_file);
  paracel::alg::logistic_regression solver(
      comm, FLAGS_server_info, pt.check_parse<string>("training_input"), pt.parse<string>("output"),
      pt.check_parse<string>("update_file"), pt.parse<string>("update_func"), pt.parse<string>("method"),
      pt.parse<int>("rounds"), pt.parse<double>("alpha"), pt.parse<double>("beta"));
  solver.solve();
  double loss = solver.calc_loss();
  if (comm.get_rank() == 0) std::cout << "final loss: " << loss << std::endl;
  solver.dump_result();
  return 0;
}
