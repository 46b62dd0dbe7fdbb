// SPDX-License-Identifier: BSD-3-Clause
//
// A program in the style of Paracel 0.3: filters of a plug-in in calls that read, rank and remove.
#include <algorithm>
#include <cstddef>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <gflags/gflags.h>
#include <mpi.h>

#include "ps.hpp"
#include "utils.hpp"

DEFINE_string(server_info, "host1:7777PARACELhost2:8888", "where the servers are");
DEFINE_string(cfg_file, "", "config file");

using std::string;
using std::vector;

namespace paracel {
namespace alg {

class filtered : public paracel::paralg {
 public:
  filtered(paracel::Comm comm, string hosts, string output, string _file, int _n)
      : paracel::paralg(hosts, comm, output), filter_file(_file), n(_n) {}
  virtual ~filtered() {}

  virtual void solve() {
    // Worker r writes the keys that equal r modulo the number of workers: score_i = 37 i modulo n, and a name for every
    // fifth.
    paracel::dict_type<string, double> scores;
    for (int i = static_cast<int>(get_worker_id()); i < n; i += static_cast<int>(get_worker_size())) {
      scores["score_" + std::to_string(i)] = static_cast<double>(i * 37 % n);
      if (i % 5 == 0) paracel_write(std::to_string(i) + "_name", vector<string>(2, std::to_string(i)));
    }
    paracel_write_multi(scores);
    paracel_register_read_special(filter_file, "score_filter");
    paracel_register_remove_special(filter_file, "name_filter");
    paracel_sync();

    auto all = paracel_read_special<double>(filter_file, "score_filter");
    check(static_cast<int>(all.size()) == n);
    for (auto& kv : all) check(kv.second == static_cast<double>(std::stoi(kv.first.substr(6)) * 37 % n));
    auto names = paracel_read_special<vector<string>>(filter_file, "name_filter");
    check(static_cast<int>(names.size()) == (n + 4) / 5 && names.at("5_name")[1] == "5");

    size_t seen = 0;
    auto count_lambda = [&](paracel::dict_type<string, double>& d) { seen += d.size(); };
    paracel_read_special_handle<double>(filter_file, "score_filter", count_lambda);
    check(static_cast<int>(seen) == n);

    paracel_read_topk_with_key_filter(7, best, filter_file, "score_filter");
    paracel::list_type<std::pair<string, double>> whole;
    check(best.size() == 7 && best[0].second == static_cast<double>(n - 1));
    paracel_sync();

    // Without the names every value is a number, so everything can be read and ranked.
    if (get_worker_id() == 0) paracel_remove_special(filter_file, "name_filter");
    paracel_sync();
    check(!paracel_contains("5_name") && paracel_contains("score_5"));
    large = paracel_read_special<double>(filter_file, "large_filter");
    check(paracel_readall<double>() == all);
    size_t walked = 0;
    auto walk_lambda = [&](const paracel::dict_type<string, double>& d) { walked += d.size(); };
    paracel_readall_handle<double>(walk_lambda);
    check(static_cast<int>(walked) == n);
    paracel_read_topk<double>(7, whole);
    check(whole == best);
    paracel_sync();
  }

  void dump_result() {
    if (get_worker_id() != 0) return;
    paracel_dump_dict(large, "large_");
    paracel_dump_vector(best, "best_", "\n");
  }
  bool is_good() { return good; }

 private:
  void check(bool holds) { good = good && holds; }
  string filter_file;
  int n;
  bool good = true;
  paracel::dict_type<string, double> large;
  paracel::list_type<std::pair<string, double>> best;
};

}  // namespace alg
}  // namespace paracel

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::SetUsageMessage("[options]\n\t--server_info\n\t--cfg_file\n");
  google::ParseCommandLineFlags(&argc, &argv, true);

  paracel::json_parser pt(FLAGS_cfg_file);
  paracel::alg::filtered solver(comm, FLAGS_server_info, pt.parse<string>("output"),
                                pt.check_parse<string>("filter_file"), pt.parse<int>("n"));
  solver.solve();
  solver.dump_result();
  if (!solver.is_good()) std::cout << "checks: bad" << std::endl;
  return solver.is_good() ? 0 : 1;
}
