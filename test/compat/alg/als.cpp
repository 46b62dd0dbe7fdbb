// SPDX-License-Identifier: BSD-3-Clause
//
// Alternating least squares in the manner of Paracel 0.3: one side's factors are given and fit into every worker's
// memory, those of the other side are solved, W_u = (H_u'H_u + lambda I)^-1 H_u'r_u. validate_input has ratings that
// were held out.
#include <cmath>
#include <cstddef>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <gflags/gflags.h>
#include <mpi.h>
#include <eigen3/Eigen/Dense>
#include <eigen3/Eigen/Sparse>

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

using node_t = paracel::default_id_type;

class als : public paracel::paralg {
 public:
  als(paracel::Comm comm, string hosts, string _ratings, string _factors, string output, string _pattern,
      double _lambda)
      : paracel::paralg(hosts, comm, output),
        rating_input(_ratings),
        factor_input(_factors),
        pattern(_pattern),
        lambda(_lambda) {}
  virtual ~als() {}

  virtual void solve() {
    // Every worker has all of H: "id<tab>f|f|..."
    auto read_lambda = [&](paracel::list_type<string>& lines) {
      for (auto& line : lines) {
        auto parts = paracel::str_split(line, '\t');
        auto fields = paracel::str_split(parts.at(1), '|');
        Eigen::VectorXd h(fields.size());
        for (size_t j = 0; j < fields.size(); ++j) h[j] = std::stod(fields[j]);
        H[paracel::cvt(parts[0])] = h;
      }
    };
    paracel_sequential_loadall(factor_input, read_lambda);
    load(rating_input);
    auto solve_lambda = [&](node_t u, const vector<std::pair<node_t, double>>& row) {
      Eigen::Index k = H.begin()->second.size();
      Eigen::MatrixXd A = lambda * Eigen::MatrixXd::Identity(k, k);
      Eigen::VectorXd b = Eigen::VectorXd::Zero(k);
      for (auto& one : row) {
        auto& h = H.at(one.first);
        A += h * h.transpose();
        b += one.second * h;
      }
      W[u] = A.ldlt().solve(b);
    };
    for (auto& kv : rows) solve_lambda(kv.first, kv.second);
  }

  /// The root of the mean squared error over the ratings of `input` whose two sides are known.
  double validate(const string& input) {
    load(input);
    vector<double> sums(2, 0.);
    for (auto& kv : rows) {
      if (W.count(kv.first) == 0) continue;
      for (auto& one : kv.second) {
        if (H.count(one.first) == 0) continue;
        sums[0] += std::pow(one.second - W[kv.first].dot(H[one.first]), 2);
        sums[1] += 1.;
      }
    }
    get_comm().allreduce(sums);
    return std::sqrt(sums[0] / sums[1]);
  }

  void dump_result() {
    paracel::dict_type<node_t, vector<double>> result;
    for (auto& kv : W) result[kv.first] = paracel::evec2vec(kv.second);
    paracel_dump_dict(result, "W_");
  }

 private:
  /// The ratings of each id that is to be solved: whole rows with fmap, whole columns with smap.
  void load(const string& input) {
    auto local_parser = [](const string& line) { return paracel::str_split(line, ','); };
    auto f_parser = paracel::gen_parser(local_parser);
    Eigen::SparseMatrix<double, Eigen::RowMajor> blk_A;
    paracel::dict_type<node_t, node_t> row_map, col_map;
    paracel_load_as_matrix(blk_A, row_map, col_map, input, f_parser, pattern);
    rows.clear();
    auto row_lambda = [&](int r, int c, double rating) {
      node_t u = row_map[r], i = col_map[c];
      if (pattern == "smap") std::swap(u, i);
      rows[u].push_back(std::make_pair(i, rating));
    };
    paracel::traverse_matrix(blk_A, row_lambda);
  }

  string rating_input, factor_input, pattern;
  double lambda;
  paracel::dict_type<node_t, Eigen::VectorXd> W, H;
  paracel::dict_type<node_t, vector<std::pair<node_t, double>>> rows;
};

}  // namespace alg
}  // namespace paracel

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::SetUsageMessage("[options]\n\t--server_info\n\t--cfg_file\n");
  google::ParseCommandLineFlags(&argc, &argv, true);

  paracel::json_parser pt(FLAGS_cfg_file);
  paracel::alg::als solver(comm, FLAGS_server_info, pt.check_parse<string>("rating_input"),
                           pt.check_parse<string>("factor_input"), pt.parse<string>("output"),
                           pt.parse<string>("pattern"), pt.parse<double>("lambda"));
  solver.solve();
  solver.dump_result();
  double rmse = solver.validate(pt.check_parse<string>("validate_input"));
  std::cout.precision(15);
  if (comm.get_rank() == 0) std::cout << "rmse " << rmse << std::endl;
  return 0;
}
