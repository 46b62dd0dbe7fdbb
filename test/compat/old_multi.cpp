// SPDX-License-Identifier: BSD-3-Clause
//
// A program in the style of Paracel 0.3: calls with many keys and functions of a plug-in, under SSP.
#include <cstddef>
#include <iostream>
#include <string>
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

class many_keys : public paracel::paralg {
 public:
  many_keys(paracel::Comm comm, string hosts, string output, string _file, int _rounds, int limit_s, int _n)
      : paracel::paralg(hosts, comm, output, _rounds, limit_s, true), update_file(_file), rounds(_rounds), n(_n) {}
  virtual ~many_keys() {}

  virtual void solve() {
    paracel::list_type<string> keys, max_keys;
    for (int i = 0; i < n; ++i) {
      keys.push_back("sum_" + std::to_string(i));
      max_keys.push_back("max_" + std::to_string(i));
    }
    if (get_worker_id() == 0) {
      paracel::dict_type<string, double> first;
      for (auto& key : keys) first[key] = 0.;
      for (auto& key : max_keys) first[key] = -1.;
      paracel_write_multi(first);
      paracel::dict_type<string, vector<double>> rows;
      for (int i = 0; i < n; ++i) rows["row_" + std::to_string(i)] = vector<double>(3, i);
      paracel_write_multi(rows);
    }
    paracel_sync();
    paracel_register_update(update_file, "sum_updater");
    paracel_register_bupdate(update_file, "sum_updater");
    set_total_iters(rounds);

    double me = static_cast<double>(get_worker_id()) + 1.;
    for (int rd = 0; rd < rounds; ++rd) {
      auto now = paracel_read_multi<double>(keys);
      check(now.size() == keys.size());
      paracel::list_type<double> deltas(n, 0.), maxima(n, 0.);
      paracel::dict_type<string, double> more;
      for (int i = 0; i < n; ++i) {
        deltas[i] = me * (i + rd);
        maxima[i] = me * ((i + rd) % 11);
        if (i % 2 == 1) more[keys[i]] = 0.5;
      }
      paracel_bupdate_multi(keys, deltas, update_file, "sum_updater");
      paracel_bupdate_multi(more, update_file, "sum_updater");
      paracel_bupdate_multi(max_keys, maxima, update_file, "max_updater");
      paracel_update_multi(keys, deltas);
      paracel::async_functor_type future;
      paracel_update("alone", me, future);
      check(paracel::wait(future));
      iter_commit();
    }
    paracel_sync();
    sums = paracel_read_multi<double>(keys);
    maxima_read = paracel_read_multi<double>(max_keys);
    alone = paracel_read<double>("alone");
    auto rows = paracel_read_multi<vector<double>>({"row_2", "row_0"});
    check(rows[0] == vector<double>(3, 2.) && rows[1] == vector<double>(3, 0.));
    check(is_cached(keys[0]) && get_cache<double>(keys[0]) == sums[0]);
    paracel_sync();
    if (get_worker_id() == 0) check(paracel_remove_multi(max_keys) && !paracel_contains(max_keys[0]));
  }

  void dump_result() {
    if (get_worker_id() != 0) return;
    paracel_dump_vector(sums, "sum_", "|");
    paracel_dump_vector(maxima_read, "max_", "|");
    std::cout << "alone " << alone << std::endl;
  }
  bool is_good() { return good; }

 private:
  void check(bool holds) { good = good && holds; }
  string update_file;
  int rounds, n;
  bool good = true;
  double alone = 0.;
  vector<double> sums, maxima_read;
};

}  // namespace alg
}  // namespace paracel

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::SetUsageMessage("[options]\n\t--server_info\n\t--cfg_file\n");
  google::ParseCommandLineFlags(&argc, &argv, true);

  paracel::json_parser pt(FLAGS_cfg_file);
  paracel::alg::many_keys solver(comm, FLAGS_server_info, pt.parse<string>("output"),
                                 pt.check_parse<string>("update_file"), pt.parse<int>("rounds"),
                                 pt.parse<int>("limit_s"), pt.parse<int>("n"));
  solver.solve();
  solver.dump_result();
  if (!solver.is_good()) std::cout << "checks: bad" << std::endl;
  return solver.is_good() ? 0 : 1;
}
