// SPDX-License-Identifier: BSD-3-Clause
//
// The topk most similar rows of each row by cosine, in the manner of Paracel 0.3: the workers' blocks travel in a ring.
// With input_a and input_b, rows of a among those of b.
#include <algorithm>
#include <cstddef>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <gflags/gflags.h>
#include <mpi.h>
#include <eigen3/Eigen/Dense>

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

class sim_dense : public paracel::paralg {
 public:
  sim_dense(paracel::Comm comm, string hosts, string _a, string _b, string output, double _simbar, int _topk)
      : paracel::paralg(hosts, comm, output), input_a(_a), input_b(_b), simbar(_simbar), topk(_topk) {}
  virtual ~sim_dense() {}

  virtual void solve() {
    Eigen::MatrixXd blk_a, blk_b;
    paracel::dict_type<paracel::default_id_type, string> ids_a, ids_b;
    load(input_a, blk_a, ids_a);
    if (input_a == input_b) {
      blk_b = blk_a;
      ids_b = ids_a;
    } else {
      load(input_b, blk_b, ids_b);
    }
    // A block: names and, column by column, numbers.
    block_t block;
    for (size_t i = 0; i < ids_b.size(); ++i) block.first.push_back(ids_b[i]);
    block.second = paracel::mat2vec(blk_b);
    auto compare_lambda = [&](const block_t& other) {
      if (other.first.empty()) return;
      Eigen::MatrixXd sims = blk_a * paracel::vec2mat(other.second, blk_b.cols()).transpose();
      for (int i = 0; i < sims.rows(); ++i)
        for (int j = 0; j < sims.cols(); ++j)
          if (sims(i, j) >= simbar && (input_a != input_b || ids_a[i] != other.first[j]))
            result[ids_a[i]].push_back(std::make_pair(other.first[j], sims(i, j)));
    };
    get_comm().bcastring(block, compare_lambda);
    auto more = [](const std::pair<string, double>& a, const std::pair<string, double>& b) {
      return a.second != b.second ? a.second > b.second : a.first < b.first;
    };
    for (auto& kv : result) {
      std::sort(kv.second.begin(), kv.second.end(), more);
      if (kv.second.size() > topk) kv.second.resize(topk);
    }
  }

  void dump_result() { paracel_dump_prob_mtx(result, "result_"); }

 private:
  using block_t = std::pair<vector<string>, vector<double>>;

  void load(const string& input, Eigen::MatrixXd& blk, paracel::dict_type<paracel::default_id_type, string>& ids) {
    auto f_parser = paracel::gen_parser(paracel::parser_a, ',');
    paracel_load_as_matrix(blk, ids, input, f_parser);
    for (int i = 0; i < blk.rows(); ++i) blk.row(i) /= blk.row(i).norm();
  }

  string input_a, input_b;
  double simbar;
  size_t topk;
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
  string a, b;
  try {
    a = b = pt.parse<string>("input");
  } catch (const std::exception&) {
    a = pt.check_parse<string>("input_a");
    b = pt.check_parse<string>("input_b");
  }
  paracel::alg::sim_dense solver(comm, FLAGS_server_info, a, b, pt.parse<string>("output"), pt.parse<double>("simbar"),
                                 pt.parse<int>("topk"));
  solver.solve();
  solver.dump_result();
  return 0;
}
