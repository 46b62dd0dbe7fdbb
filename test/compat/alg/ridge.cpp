// SPDX-License-Identifier: BSD-3-Clause
//
// Ridge regression in the manner of Paracel 0.3: each worker makes a pass of stochastic gradient descent over its
// samples, and the workers' changes are averaged on the servers.
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

class ridge_regression : public paracel::paralg {
 public:
  ridge_regression(paracel::Comm comm, string hosts, string _input, string output, string _file, string _func,
                   int _rounds, double _alpha, double _beta)
      : paracel::paralg(hosts, comm, output, _rounds),
        input(_input),
        update_file(_file),
        update_func(_func),
        rounds(_rounds),
        alpha(_alpha),
        beta(_beta) {}
  virtual ~ridge_regression() {}

  void load(const string& files) {
    samples.clear();
    targets.clear();
    auto one_line = [&](const string& line) {
      auto fields = paracel::str_split(line, ',');
      if (fields.empty()) return;
      vector<double> x(1, 1.);
      for (size_t i = 0; i + 1 < fields.size(); ++i) x.push_back(std::stod(fields[i]));
      samples.push_back(x);
      targets.push_back(std::stod(fields.back()));
    };
    paracel_load_handle(files, one_line);
  }

  virtual void solve() {
    load(input);
    if (get_worker_id() == 0) paracel_write("theta", vector<double>(samples.at(0).size(), 0.));
    paracel_register_bupdate(update_file, update_func);
    paracel_sync();
    for (int rd = 0; rd < rounds; ++rd) {
      theta = paracel_read<vector<double>>("theta");
      paracel_sync();
      vector<double> old(theta), delta(theta.size());
      for (size_t s = 0; s < samples.size(); ++s) {
        double e = targets[s] - paracel::dot_product(samples[s], theta);
        for (size_t i = 0; i < theta.size(); ++i)
          theta[i] += alpha * (2. * e * samples[s][i] - (i > 0 ? 2. * beta * theta[i] : 0.));
      }
      for (size_t i = 0; i < theta.size(); ++i) delta[i] = (theta[i] - old[i]) / get_worker_size();
      paracel_bupdate("theta", delta);
      paracel_sync();
      iter_commit();
    }
    theta = paracel_read<vector<double>>("theta");
    paracel_sync();
  }

  double calc_loss() {
    vector<double> sums(2, 0.);
    for (size_t s = 0; s < samples.size(); ++s) {
      double e = targets[s] - paracel::dot_product(samples[s], theta);
      sums[0] += e * e;
      sums[1] += 1.;
    }
    get_comm().allreduce(sums);
    return sums[0] / sums[1];
  }
  double test(const string& files) {
    load(files);
    return calc_loss();
  }

  void dump_result() {
    if (get_worker_id() == 0) paracel_dump_vector(theta, "ridge_theta_", "|");
    vector<string> predictions;
    for (auto row : samples) {
      row.push_back(paracel::dot_product(row, theta));
      predictions.push_back(dump_line_as_vector(row));
    }
    paracel_dump_vector(predictions, "pred_v_", "\n");
  }

 private:
  string input, update_file, update_func;
  int rounds;
  double alpha, beta;
  vector<vector<double>> samples;
  vector<double> targets, theta;
};

}  // namespace alg
}  // namespace paracel

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::SetUsageMessage("[options]\n\t--server_info\n\t--cfg_file\n");
  google::ParseCommandLineFlags(&argc, &argv, true);

  paracel::json_parser pt(FLAGS_cfg_file);
  paracel::alg::ridge_regression solver(comm, FLAGS_server_info, pt.check_parse<string>("training_input"),
                                        pt.parse<string>("output"), pt.check_parse<string>("update_file"),
                                        pt.parse<string>("update_func"), pt.parse<int>("rounds"),
                                        pt.parse<double>("alpha"), pt.parse<double>("beta"));
  solver.solve();
  std::cout.precision(15);
  double loss = solver.calc_loss();
  if (comm.get_rank() == 0) std::cout << "final loss: " << loss << std::endl;
  loss = solver.test(pt.check_parse<string>("test_input"));
  if (comm.get_rank() == 0) std::cout << "loss in test dataset is: " << loss << std::endl;
  solver.load(pt.check_parse<string>("predict_input"));
  solver.dump_result();
  return 0;
}
