// SPDX-License-Identifier: BSD-3-Clause
//
// The topk most similar rows of each row of a sparse matrix by cosine, in the manner of Paracel 0.3: each worker has
// whole rows, and its block is broadcast to all.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <gflags/gflags.h>
#include <mpi.h>
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
using matrix_t = Eigen::SparseMatrix<double, Eigen::RowMajor>;

class sim_sparse : public paracel::paralg {
 public:
  sim_sparse(paracel::Comm comm, string hosts, string _input, string output, string _format, int _topk, double _bar,
             double _ubar)
      : paracel::paralg(hosts, comm, output),
        input(_input),
        format(_format),
        topk(_topk),
        sim_bar(_bar),
        sim_ubar(_ubar) {}
  virtual ~sim_sparse() {}

  virtual void solve() {
    auto local_parser = [this](const string& line) {
      auto fields = paracel::str_split(line, ',');
      if (format == "sfv") std::swap(fields.at(0), fields.at(1));
      return fields;
    };
    auto f_parser = paracel::gen_parser(local_parser);
    matrix_t blk;
    paracel::dict_type<node_t, string> row_map, col_map;
    paracel_load_as_matrix(blk, row_map, col_map, input, f_parser, "fmap");
    vector<double> norms(blk.rows(), 0.);
    auto square = [&](int r, int, double w) { norms[r] += w * w; };
    paracel::traverse_matrix(blk, square);
    auto scale = [&](int r, int, double& w) { w /= std::sqrt(norms[r]); };
    paracel::traverse_matrix(blk, scale);

    // With fmap every worker numbers the columns alike.
    for (size_t root = 0; root < get_worker_size(); ++root) {
      std::pair<vector<string>, vector<std::pair<std::pair<int, int>, double>>> block;
      if (root == get_worker_id()) {
        for (size_t i = 0; i < row_map.size(); ++i) block.first.push_back(row_map[i]);
        block.second = paracel::mat2vec(blk);
      }
      get_comm().bcast(block, root);
      if (block.second.empty()) continue;
      matrix_t other = paracel::vec2mat(block.second);
      other.conservativeResize(other.rows(), blk.cols());
      matrix_t sims = blk * matrix_t(other.transpose());
      auto keep = [&](int i, int j, double sim) {
        if (sim < sim_bar || sim > sim_ubar || row_map[i] == block.first[j]) return;
        result[row_map[i]].push_back(std::make_pair(block.first[j], sim));
      };
      paracel::traverse_matrix(sims, keep);
    }
    auto more = [](const std::pair<string, double>& a, const std::pair<string, double>& b) {
      return a.second != b.second ? a.second > b.second : a.first < b.first;
    };
    for (auto& kv : result) {
      std::sort(kv.second.begin(), kv.second.end(), more);
      if (kv.second.size() > topk) kv.second.resize(topk);
    }
  }

  void dump_result() { paracel_dump_dict(result, "similarities_"); }

 private:
  string input, format;
  size_t topk;
  double sim_bar, sim_ubar;
  paracel::dict_type<string, paracel::list_type<std::pair<string, double>>> result;
};

}  // namespace alg
}  // namespace paracel

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::SetUsageMessage("[options]\n\t--server_info\n\t--cfg_file\n");
  google::ParseCommandLineFlags(&argc, &argv, true);

  paracel::json_parser pt(FLAGS_cfg_file);
  paracel::alg::sim_sparse solver(comm, FLAGS_server_info, pt.check_parse<string>("input"), pt.parse<string>("output"),
                                  pt.parse<string>("format"), pt.parse<int>("topk"), pt.parse<double>("sim_bar"),
                                  pt.parse<double>("sim_ubar"));
  solver.solve();
  solver.dump_result();
  return 0;
}
