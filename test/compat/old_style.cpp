// SPDX-License-Identifier: BSD-3-Clause
//
// A program in the style of Paracel 0.3, written from its interface alone: ridge regression by gradient descent. It
// must compile unchanged with paracel::compat, and compute the same theta in every mode.
#include <cmath>
#include <cstddef>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <gflags/gflags.h>
#include <mpi.h>

#include "load.hpp"
#include "packer.hpp"
#include "paracel_types.hpp"
#include "ps.hpp"
#include "utils.hpp"

DEFINE_string(server_info, "host1:7777PARACELhost2:8888", "where the servers are");
DEFINE_string(cfg_file, "", "config file");

using std::string;
using std::vector;

namespace paracel {
namespace alg {

class ridge : public paracel::paralg {
 public:
  ridge(paracel::Comm comm, string hosts, string _input, string output, string _file, string _func, int _rounds,
        double _alpha, double _beta)
      : paracel::paralg(hosts, comm, output, _rounds, 0, false),
        input(_input),
        update_file(_file),
        update_func(_func),
        worker_id(comm.get_rank()),
        rounds(_rounds),
        alpha(_alpha),
        beta(_beta) {}
  virtual ~ridge() {}

  virtual void solve() {
    auto lines = paracel_load(input);
    for (auto& line : lines) {
      auto fields = paracel::str_split(line, ',');
      if (fields.size() < 2) continue;
      vector<double> x;
      x.push_back(1.);
      for (size_t i = 0; i + 1 < fields.size(); ++i) x.push_back(std::stod(fields[i]));
      samples.push_back(x);
      targets.push_back(std::stod(fields.back()));
    }
    int n = static_cast<int>(samples.size());
    get_comm().allreduce(n);
    paracel_sync();

    theta.resize(0);
    theta.resize(samples[0].size(), 0.);
    if (worker_id == 0) paracel_write("theta", theta);
    paracel_register_bupdate(update_file, update_func);
    paracel_sync();

    for (int rd = 0; rd < rounds; ++rd) {
      theta = paracel_read<vector<double>>("theta");
      paracel_sync();
      vector<double> delta(theta.size(), 0.);
      for (size_t s = 0; s < samples.size(); ++s) {
        double e = targets[s] - paracel::dot_product(samples[s], theta);
        for (size_t i = 0; i < delta.size(); ++i) delta[i] += alpha * e * samples[s][i] / n;
      }
      double weight = alpha * beta * samples.size() / n;
      for (size_t i = 0; i < delta.size(); ++i) delta[i] -= weight * theta[i];
      paracel_bupdate("theta", delta);
      paracel_sync();
      iter_commit();
    }
    theta = paracel_read<vector<double>>("theta");
    paracel_sync();
  }

  double loss() {
    double sum = 0.;
    for (size_t s = 0; s < samples.size(); ++s)
      sum += std::pow(targets[s] - paracel::dot_product(samples[s], theta), 2);
    auto worker_comm = get_comm();
    worker_comm.allreduce(sum);
    int n = static_cast<int>(samples.size());
    worker_comm.allreduce(n);
    return sum / n;
  }

  /// Operations of 0.3 algorithms on keys other than the main one.
  bool check_the_rest() {
    string mine = "count_" + std::to_string(get_worker_id());
    paracel_write(mine, 1);
    paracel::async_functor_type done = paracel_update(mine, 2);
    if (!paracel::wait(done)) return false;
    paracel_sync();
    paracel::list_type<paracel::str_type> keys;
    for (size_t r = 0; r < get_worker_size(); ++r) keys.push_back("count_" + std::to_string(r));
    auto counts = paracel_read_multi<int>(keys);
    bool good = true;
    for (auto c : counts) good = good && c == 3;
    paracel::dict_type<paracel::str_type, vector<string>> names;
    names[mine + "_names"] = {"a", "b"};
    paracel_write_multi(names);
    good = good && paracel_read<vector<string>>(mine + "_names").size() == 2;
    paracel_sync();
    good = good && paracel_contains(mine) && paracel_remove(mine) && !paracel_contains(mine);
    int value = 5;
    good = good && !paracel_read(mine, value) && value == 5;

    // Many keys at once, with and without their own functions; all workers use the same keys.
    paracel::list_type<string> shared = {"shared_a", "shared_b"};
    paracel::list_type<vector<double>> deltas(2, vector<double>(3, 1.));
    paracel_bupdate_multi(shared, deltas, update_file, update_func);
    paracel::dict_type<string, vector<double>> more;
    more["shared_a"] = vector<double>(3, 2.);
    paracel_bupdate_multi(more, update_file, update_func);
    paracel_sync();
    auto sums = paracel_read_multi<vector<double>>(shared);
    good = good && sums[0][2] == 3. * get_worker_size() && sums[1][0] == 1. * get_worker_size();
    good = good && !is_cached("never_read");
    paracel_write(mine + "_text", "some");
    good = good && paracel_read<string>(mine + "_text") == "some";
    paracel_sync();
    if (worker_id == 0) good = good && paracel_remove_multi(shared);

    vector<double> to(get_worker_size(), static_cast<double>(worker_id)), from(get_worker_size());
    get_comm().alltoall(to, from);
    for (size_t r = 0; r < from.size(); ++r) good = good && from[r] == static_cast<double>(r);
    string word = worker_id == 0 ? "root" : "";
    get_comm().bcast(word, 0);
    return good && word == "root" && get_server_size() >= 1;
  }

  /// Loads the input again, in each possible way.
  bool check_loads() {
    auto all = paracel_loadall(input);
    size_t rows = 0, lines = 0;
    auto count_rows = [&rows](paracel::list_type<string>& part) { rows += part.size(); };
    paracel_sequential_loadall(input, count_rows);
    auto count_lines = [&lines](const string&) { lines += 1; };
    paracel_load_handle(input, count_lines);
    paracel::parser_type parser = [](const string& line) { return paracel::str_split(line, ','); };
    size_t mine = paracel_load(input, parser).size();
    return rows == all.size() && lines == mine;
  }

  /// All kinds of results, merged by rank 0.
  bool check_results(const string& folder) {
    paracel::dict_type<string, int> counts;
    counts["rows_of_" + std::to_string(worker_id)] = static_cast<int>(samples.size());
    paracel_dump_dict(counts, "counts_", false, true);
    paracel::dict_type<string, double> errors;
    errors["theta0"] = theta[0];
    paracel_dump_dict(errors, "errors_", true);
    paracel::dict_type<paracel::default_id_type, vector<double>> rows;
    rows[worker_id] = theta;
    paracel_dump_dict(rows, "rows_");
    paracel::dict_type<string, paracel::list_type<std::pair<string, double>>> near;
    near["a"].push_back(std::make_pair("b", 0.5));
    paracel_dump_dict(near, "near_");
    paracel_dump_prob_mtx(near, "near_", true);
    paracel::dict_type<paracel::default_id_type, paracel::list_type<std::pair<paracel::default_id_type, double>>> ids;
    ids[1].push_back(std::make_pair(2, 0.5));
    paracel_dump_dict(ids, "ids_", false, true);
    paracel_dump_vector(theta, "merged_", ",", false, true);
    pkl_dat(theta, "theta_");
    vector<double> back;
    unpkl_dat(paracel::todir(folder) + "theta_" + std::to_string(worker_id) + ".pkl", back);
    paracel_sync();
    if (worker_id == 0) files_merge(paracel::todir(folder) + "rows_*", "rows_");
    int own = static_cast<int>(samples.size());
    auto add = [](const int& got, int& sum) { sum += got; };
    paracel::Comm local_comm = get_comm();
    int total = data_merge(own, add, local_comm);
    if (worker_id != 0) return back == theta;
    auto same = [](const string& line) { return line; };
    size_t lines = paracel::tail<string>(paracel::todir(folder) + "rows_merge", 1000, same).size();
    size_t named = paracel::tail<string>(paracel::todir(folder) + "counts_merge", 1000, same).size();
    return back == theta && lines == get_worker_size() && named == get_worker_size() &&
           total == static_cast<int>(paracel_loadall(input).size());
  }

  void dump_result() {
    if (worker_id == 0) paracel_dump_vector(theta, "theta_", "|");
    vector<std::pair<double, double>> pairs;
    for (size_t s = 0; s < samples.size(); ++s)
      pairs.push_back(std::make_pair(targets[s], paracel::dot_product(samples[s], theta)));
    paracel_dump_vector(pairs, "pred_v_", "\n");
  }

 private:
  string input, update_file, update_func;
  size_t worker_id;
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
  string input = pt.check_parse<string>("training_input");
  string output = pt.parse<string>("output");
  string update_file = pt.check_parse<string>("update_file");
  string update_func = pt.parse<string>("update_func");
  int rounds = pt.parse<int>("rounds");
  double alpha = pt.parse<double>("alpha");
  double beta = pt.parse<double>("beta");
  bool debug = pt.parse<bool>("debug");
  auto scales = pt.parse_v<double>("scales");

  paracel::alg::ridge solver(comm, FLAGS_server_info, input, output, update_file, update_func, rounds, alpha,
                             beta * scales[0]);
  solver.solve();
  double loss = solver.loss();
  bool good = solver.check_the_rest();
  good = solver.check_loads() && good;
  good = solver.check_results(output) && good;
  if (comm.get_rank() == 0) {
    std::cout << "final loss: " << loss << std::endl;
    std::cout << "checks: " << (good ? "good" : "bad") << std::endl;
    if (debug) std::cout << "workers: " << comm.get_size() << std::endl;
  }
  solver.dump_result();
  return good ? 0 : 1;
}
