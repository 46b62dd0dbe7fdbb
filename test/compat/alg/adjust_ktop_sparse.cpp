// SPDX-License-Identifier: BSD-3-Clause
//
// For each user the number of neighbours that predicts the known ratings best, in the manner of Paracel 0.3: ratings
// are on the servers under their users' ids, the lists of similar users are divided among the workers.
#include <algorithm>
#include <cstddef>
#include <iostream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gflags/gflags.h>
#include <mpi.h>

#include "graph.hpp"
#include "load.hpp"
#include "ps.hpp"
#include "utils.hpp"

DEFINE_string(server_info, "host1:7777PARACELhost2:8888", "where the servers are");
DEFINE_string(cfg_file, "", "config file");

using std::string;
using std::vector;

namespace paracel {
namespace alg {

using row_t = paracel::dict_type<string, double>;

class adjust_ktop : public paracel::paralg {
 public:
  adjust_ktop(paracel::Comm comm, string hosts, string _ratings, string _fmt, string _sims, int _lower, string output)
      : paracel::paralg(hosts, comm, output), rating_input(_ratings), fmt(_fmt), sim_input(_sims), lower(_lower) {}
  virtual ~adjust_ktop() {}

  virtual void solve() {
    auto local_parser = [this](const string& line) {
      auto fields = paracel::str_split(line, ',');
      if (fmt == "smap") std::swap(fields.at(0), fields.at(1));
      return fields;
    };
    auto f_parser = paracel::gen_parser(local_parser);
    paracel::bigraph<string> ratings;
    paracel_load_as_graph(ratings, rating_input, f_parser, "fmap");
    paracel::dict_type<string, row_t> rows;
    for (auto& u : ratings.left_vertex_bag()) rows[u + "_ratings"] = ratings.adjacent(u);
    paracel_write_multi(rows);
    paracel_sync();

    for (auto& line : paracel_load(sim_input)) {
      auto fields = paracel::parser_b(line, '\t', '|');
      vector<std::pair<row_t, double>> neighbours;
      for (size_t i = 1; i < fields.size(); ++i) {
        auto pair = paracel::str_split(fields[i], ':');
        row_t row;
        paracel_read(pair.at(0) + "_ratings", row);
        neighbours.push_back(std::make_pair(row, std::stod(pair.at(1))));
      }
      row_t own;
      paracel_read(fields[0] + "_ratings", own);
      ktop[fields[0]] = best_k(own, neighbours);
    }
    paracel_sync();
  }

  void dump_result() {
    paracel_dump_dict(ktop, "ktop_result_", false, true);
    get_comm().allreduce(errors);
    if (get_worker_id() == 0) std::cout << "base " << errors[0] << std::endl << "adjusted " << errors[1] << std::endl;
  }

 private:
  int best_k(const row_t& own, const vector<std::pair<row_t, double>>& neighbours) {
    double mean = 0.;
    for (auto& kv : own) mean += kv.second / own.size();
    row_t weighted, weights;
    int best = static_cast<int>(neighbours.size());
    double least = std::numeric_limits<double>::max(), error = 0.;
    for (size_t k = 1; k <= neighbours.size(); ++k) {
      auto& one = neighbours[k - 1];
      error = 0.;
      for (auto& kv : own) {
        auto it = one.first.find(kv.first);
        if (it != one.first.end()) {
          weighted[kv.first] += one.second * it->second;
          weights[kv.first] += one.second;
        }
        double w = weights[kv.first];
        double e = kv.second - (w != 0. ? weighted[kv.first] / w : mean);
        error += e * e;
      }
      if (k >= lower && error < least) {
        least = error;
        best = static_cast<int>(k);
      }
    }
    errors[0] += error;
    errors[1] += neighbours.size() < lower ? error : least;
    return best;
  }

  string rating_input, fmt, sim_input;
  size_t lower;
  vector<double> errors = vector<double>(2, 0.);
  paracel::dict_type<string, int> ktop;
};

}  // namespace alg
}  // namespace paracel

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::SetUsageMessage("[options]\n\t--server_info\n\t--cfg_file\n");
  google::ParseCommandLineFlags(&argc, &argv, true);

  paracel::json_parser pt(FLAGS_cfg_file);
  paracel::alg::adjust_ktop solver(comm, FLAGS_server_info, pt.check_parse<string>("rating_input"),
                                   pt.parse<string>("fmt"), pt.check_parse<string>("sim_input"),
                                   pt.parse<int>("lower bound"), pt.parse<string>("output"));
  solver.solve();
  std::cout.precision(15);
  solver.dump_result();
  return 0;
}
