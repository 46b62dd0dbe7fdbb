// SPDX-License-Identifier: BSD-3-Clause
//
// A program in the style of Paracel 0.3: a sparse matrix in blocks times a vector, and the Gram matrix of a dense one.
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

using node_t = paracel::default_id_type;

class matrix_numbers : public paracel::paralg {
 public:
  matrix_numbers(paracel::Comm comm, string hosts, string _ratings, string _vectors, string output, string _file,
                 string _pattern)
      : paracel::paralg(hosts, comm, output),
        ratings(_ratings),
        vectors(_vectors),
        update_file(_file),
        pattern(_pattern) {}
  virtual ~matrix_numbers() {}

  virtual void solve() {
    auto comma = [](const string& line) { return paracel::str_split(line, ','); };
    auto f_parser = paracel::gen_parser(comma);

    // y = A x with x_j = 1 / (1 + j), A in blocks; partial sums are added on the servers.
    Eigen::SparseMatrix<double, Eigen::RowMajor> blk_A;
    paracel::dict_type<node_t, node_t> row_map, col_map;
    paracel_load_as_matrix(blk_A, row_map, col_map, ratings, f_parser, pattern);
    Eigen::VectorXd x(blk_A.cols());
    for (auto& kv : col_map) x[kv.first] = 1. / (1. + static_cast<double>(kv.second));
    Eigen::VectorXd y = blk_A * x;
    for (size_t i = 0; i < row_map.size(); ++i)
      paracel_bupdate("y_" + paracel::cvt(row_map[i]), y[i], update_file, "sum_updater");
    paracel_sync();
    for (auto& kv : row_map) result[paracel::cvt(kv.second)] = paracel_read<double>("y_" + paracel::cvt(kv.second));

    double sum = 0.;
    auto sum_lambda = [&](int r, int c, double w) { sum += w * (row_map[r] % 3) * (col_map[c] % 2); };
    paracel::traverse_matrix(blk_A, sum_lambda);
    get_comm().allreduce(sum);
    weighted = sum;
    auto again = paracel::vec2mat(paracel::mat2vec(blk_A));
    good = good && again.nonZeros() == blk_A.nonZeros() && again.sum() == blk_A.sum();

    // The same with names and complete rows; the sum over all entries.
    Eigen::SparseMatrix<double, Eigen::RowMajor> by_name;
    paracel::dict_type<node_t, string> row_names, col_names;
    paracel_load_as_matrix(by_name, row_names, col_names, ratings, f_parser, "fmap");
    double total = by_name.sum();
    get_comm().allreduce(total);
    sparse_total = total;
    for (auto& kv : row_names) good = good && kv.first < static_cast<node_t>(by_name.rows());

    Eigen::SparseMatrix<double, Eigen::RowMajor> without_maps;
    paracel_load_as_matrix(without_maps, ratings, f_parser);
    int nonzeros = static_cast<int>(without_maps.nonZeros());
    get_comm().allreduce(nonzeros);
    entries = nonzeros;

    // Dense rows: "id<tab>v|v|v".
    auto factors = [](const string& line) {
      auto parts = paracel::str_split(line, '\t');
      auto fields = paracel::str_split(parts[1], '|');
      fields.insert(fields.begin(), parts[0]);
      return fields;
    };
    auto vector_parser = paracel::gen_parser(factors);
    Eigen::MatrixXd blk_V;
    paracel::dict_type<node_t, string> ids;
    paracel_load_as_matrix(blk_V, ids, vectors, vector_parser);
    Eigen::MatrixXd gram = blk_V.transpose() * blk_V;
    auto numbers = paracel::mat2vec(gram);
    get_comm().allreduce(numbers);
    gram = paracel::vec2mat(numbers, gram.cols());
    gram_row = paracel::evec2vec(gram.row(0));
    for (size_t i = 0; i < ids.size(); ++i) norms[ids[i]] = blk_V.row(i).norm();
  }

  void dump_result() {
    paracel_dump_dict(norms, "norm_");
    paracel_dump_dict(result, "y_");
    if (get_worker_id() != 0) return;
    paracel_dump_vector(gram_row, "gram_", "|");
    std::cout << "entries " << entries << std::endl;
    std::cout << "sparse_total " << sparse_total << std::endl;
    std::cout << "weighted " << weighted << std::endl;
  }
  bool is_good() { return good; }

 private:
  string ratings, vectors, update_file, pattern;
  bool good = true;
  int entries = 0;
  double sparse_total = 0., weighted = 0.;
  vector<double> gram_row;
  paracel::dict_type<string, double> result, norms;
};

}  // namespace alg
}  // namespace paracel

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::SetUsageMessage("[options]\n\t--server_info\n\t--cfg_file\n");
  google::ParseCommandLineFlags(&argc, &argv, true);

  paracel::json_parser pt(FLAGS_cfg_file);
  paracel::alg::matrix_numbers solver(comm, FLAGS_server_info, pt.check_parse<string>("ratings"),
                                      pt.check_parse<string>("vectors"), pt.parse<string>("output"),
                                      pt.check_parse<string>("update_file"), pt.parse<string>("pattern"));
  solver.solve();
  std::cout.precision(17);
  solver.dump_result();
  if (!solver.is_good()) std::cout << "checks: bad" << std::endl;
  return solver.is_good() ? 0 : 1;
}
