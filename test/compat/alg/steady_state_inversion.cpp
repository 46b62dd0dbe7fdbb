// SPDX-License-Identifier: BSD-3-Clause
//
// Inversion of a steady state (Kumar et al., WSDM 2015) in the manner of Paracel 0.3: scores s of the right vertices of
// a bipartite graph with which q_j = sum_i p_i w_ij s_j / sum_k w_ik s_k is at least p_j (1 - epsilon). A worker has
// whole rows and whole columns; the rows' sums are under <left>_z, the scores under <right>_s.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iostream>
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
using rows_t = paracel::dict_type<string, vector<std::pair<string, double>>>;

class steady_state_inversion : public paracel::paralg {
 public:
  steady_state_inversion(paracel::Comm comm, string hosts, string _graph, string _distribution, string output,
                         int _rounds, double _epsilon, int _ktop)
      : paracel::paralg(hosts, comm, output, _rounds),
        graph_input(_graph),
        distribution_input(_distribution),
        rounds(_rounds),
        epsilon(_epsilon),
        ktop(_ktop) {}
  virtual ~steady_state_inversion() {}

  virtual void solve() {
    auto local_parser = [](const string& line) { return paracel::str_split(line, ','); };
    auto f_parser = paracel::gen_parser(local_parser);
    paracel::bigraph<string> by_row, by_column;
    paracel_load_as_graph(by_row, graph_input, f_parser, "fmap");
    paracel_load_as_graph(by_column, graph_input, f_parser, "smap");
    auto row_lambda = [&](const string& a, const string& b, double w) { rows[a].push_back(std::make_pair(b, w)); };
    by_row.traverse(row_lambda);
    auto column_lambda = [&](const string& a, const string& b, double w) {
      columns[b].push_back(std::make_pair(a, w));
    };
    by_column.traverse(column_lambda);
    for (auto& line : paracel_loadall(distribution_input)) {
      auto fields = paracel::str_split(line, ',');
      share[fields.at(0)] = std::stod(fields.at(1));
    }
    for (auto& kv : columns) scores[kv.first] = share[kv.first];
    write(scores, "_s");
    paracel_sync();
    for (missing = 1; rounds_done < rounds; ++rounds_done) {
      auto s = read(rows, "_s");
      row_t z;
      for (auto& row : rows)
        for (auto& one : row.second) z[row.first] += one.second * s[one.first];
      write(z, "_z");
      paracel_sync();
      missing = raise_scores(read(columns, "_z"));
      get_comm().allreduce(missing);
      if (missing == 0) break;
      write(scores, "_s");
      paracel_sync();
      iter_commit();
    }
  }

  void dump_result() {
    paracel_dump_dict(scores, "score_");
    paracel::dict_type<string, paracel::list_type<std::pair<string, double>>> matrix;
    auto s = read(rows, "_s");
    for (auto& row : rows) {
      auto& moves = matrix[row.first];
      double z = 0.;
      for (auto& one : row.second) z += one.second * s[one.first];
      for (auto& one : row.second) moves.push_back(std::make_pair(one.first, one.second * s[one.first] / z));
      auto more = [](const std::pair<string, double>& a, const std::pair<string, double>& b) {
        return a.second != b.second ? a.second > b.second : a.first < b.first;
      };
      std::sort(moves.begin(), moves.end(), more);
      if (moves.size() > ktop) moves.resize(ktop);
    }
    paracel_dump_prob_mtx(matrix, "transfer_prob_matrix_");
    if (get_worker_id() == 0) std::cout << "rounds " << rounds_done << std::endl << "short " << missing << std::endl;
  }

 private:
  /// Raises the score of each own right vertex that is short until it is not, all others unchanged; returns how many.
  int raise_scores(const row_t& z) {
    int count = 0;
    for (auto& column : columns) {
      double p = share[column.first], s = scores[column.first];
      auto received = [&](double x) {
        double q = 0.;
        for (auto& one : column.second) {
          double rest = std::max(0., z.at(one.first) - one.second * s);
          q += share[one.first] * one.second * x / (one.second * x + rest);
        }
        return q;
      };
      if (received(s) >= p * (1. - epsilon)) continue;
      count += 1;
      double low = s, high = 2. * s, target = p * (1. - epsilon / 2.);
      while (received(high) < target && high < 1e300) high *= 2.;
      for (int i = 0; i < 100; ++i) (received((low + high) / 2.) < target ? low : high) = (low + high) / 2.;
      scores[column.first] = high;
    }
    return count;
  }
  void write(const row_t& values, const string& suffix) {
    row_t named;
    for (auto& kv : values) named[kv.first + suffix] = kv.second;
    paracel_write_multi(named);
  }
  /// The values of all vertices that the lists of `of` lead to.
  row_t read(const rows_t& of, const string& suffix) {
    paracel::set_type<string> wanted;
    for (auto& kv : of)
      for (auto& one : kv.second) wanted.insert(one.first);
    paracel::list_type<string> keys;
    for (auto& id : wanted) keys.push_back(id + suffix);
    auto values = paracel_read_multi<double>(keys);
    row_t result;
    for (size_t i = 0; i < keys.size(); ++i) result[keys[i].substr(0, keys[i].size() - suffix.size())] = values[i];
    return result;
  }

  string graph_input, distribution_input;
  int rounds, rounds_done = 0, missing = 0;
  double epsilon;
  size_t ktop;
  rows_t rows, columns;
  row_t share, scores;
};

}  // namespace alg
}  // namespace paracel

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::SetUsageMessage("[options]\n\t--server_info\n\t--cfg_file\n");
  google::ParseCommandLineFlags(&argc, &argv, true);

  paracel::json_parser pt(FLAGS_cfg_file);
  paracel::alg::steady_state_inversion solver(
      comm, FLAGS_server_info, pt.check_parse<string>("bigraph_input"), pt.check_parse<string>("distribution_input"),
      pt.parse<string>("output"), pt.parse<int>("rounds"), pt.parse<double>("epsilon"), pt.parse<int>("ktop"));
  solver.solve();
  solver.dump_result();
  return 0;
}
