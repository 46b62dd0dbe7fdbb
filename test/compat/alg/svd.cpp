// SPDX-License-Identifier: BSD-3-Clause
//
// The k greatest singular values of a sparse matrix in the manner of Paracel 0.3: each worker has whole rows and all of
// V; products with A' are added on the servers by svd_updater. Subspace iteration; at the end the values within it.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iostream>
#include <string>
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

class svd : public paracel::paralg {
 public:
  svd(paracel::Comm comm, string hosts, string _input, string output, int _k, int _rounds, string _file, string _func)
      : paracel::paralg(hosts, comm, output, _rounds),
        input(_input),
        k(_k),
        rounds(_rounds),
        update_file(_file),
        update_func(_func) {}
  virtual ~svd() {}

  virtual void solve() {
    auto local_parser = [](const string& line) { return paracel::str_split(line, ','); };
    auto f_parser = paracel::gen_parser(local_parser);
    paracel_load_as_matrix(A, row_map, col_map, input, f_parser, "fmap");
    paracel_register_bupdate(update_file, update_func);

    // Every worker begins with the same numbers: two columns more than asked for.
    Eigen::Index width = std::min<Eigen::Index>(k + 2, A.cols());
    V = paracel::vec2mat(paracel::random_double_list(A.cols() * width), width);
    orthonormalize(V);
    for (int rd = 0; rd < rounds; ++rd) {
      Eigen::MatrixXd U = A * V;
      V = sum_over_workers(A.transpose() * U, "AtU_" + std::to_string(rd));
      orthonormalize(V);
      iter_commit();
    }
    Eigen::MatrixXd U = A * V;
    Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> small(sum_over_workers(U.transpose() * U, "UtU"));
    for (int j = 0; j < k; ++j) sigma.push_back(std::sqrt(small.eigenvalues()[width - 1 - j]));
    V = (V * small.eigenvectors().rightCols(k).rowwise().reverse()).eval();
  }

  void dump_result() {
    Eigen::MatrixXd U = A * V;
    paracel::dict_type<string, vector<double>> u_rows, v_rows;
    for (int j = 0; j < k; ++j) U.col(j) /= sigma[j];
    for (auto& kv : row_map) u_rows[kv.second] = paracel::evec2vec(U.row(kv.first));
    for (auto& kv : col_map) v_rows[kv.second] = paracel::evec2vec(V.row(kv.first));
    paracel_dump_dict(u_rows, "U_");
    if (get_worker_id() != 0) return;
    paracel_dump_dict(v_rows, "V_");
    paracel_dump_vector(sigma, "sigma_", "\n");
  }

 private:
  Eigen::MatrixXd sum_over_workers(const Eigen::MatrixXd& part, const string& key) {
    paracel_bupdate(key, paracel::mat2vec(part));
    paracel_sync();
    return paracel::vec2mat(paracel_read<vector<double>>(key), part.cols());
  }
  static void orthonormalize(Eigen::MatrixXd& m) {
    Eigen::HouseholderQR<Eigen::MatrixXd> qr(m);
    m = qr.householderQ() * Eigen::MatrixXd::Identity(m.rows(), m.cols());
  }

  string input;
  int k, rounds;
  string update_file, update_func;
  Eigen::SparseMatrix<double, Eigen::RowMajor> A;
  paracel::dict_type<paracel::default_id_type, string> row_map, col_map;
  Eigen::MatrixXd V;
  vector<double> sigma;
};

}  // namespace alg
}  // namespace paracel

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::SetUsageMessage("[options]\n\t--server_info\n\t--cfg_file\n");
  google::ParseCommandLineFlags(&argc, &argv, true);

  paracel::json_parser pt(FLAGS_cfg_file);
  paracel::alg::svd solver(comm, FLAGS_server_info, pt.check_parse<string>("input"), pt.parse<string>("output"),
                           pt.parse<int>("k"), pt.parse<int>("rounds"), pt.check_parse<string>("update_file"),
                           pt.parse<string>("update_function"));
  solver.solve();
  solver.dump_result();
  return 0;
}
