// SPDX-License-Identifier: BSD-3-Clause
//
// Matrix factorization in the manner of Paracel 0.3: users stay with the worker of their ratings, items are on the
// servers, where the workers' changes are added. A round is a pass of stochastic gradient descent; with ssp_switch
// workers may be limit_s rounds apart.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
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

using node_t = paracel::default_id_type;

class matrix_factorization : public paracel::paralg {
 public:
  matrix_factorization(paracel::Comm comm, string hosts, string _input, string output, string _ufile,
                       vector<string> _ufuncs, string _ffile, vector<string> _ffuncs, int _k, int _rounds,
                       double _alpha, double _beta, int _limit, bool _ssp)
      : paracel::paralg(hosts, comm, output, _rounds, _limit, _ssp),
        input(_input),
        update_file(_ufile),
        filter_file(_ffile),
        update_functions(_ufuncs),
        filter_functions(_ffuncs),
        k(_k),
        rounds(_rounds),
        alpha(_alpha),
        beta(_beta),
        ssp(_ssp) {}
  virtual ~matrix_factorization() {}

  virtual void solve() {
    auto local_parser = [](const string& line) { return paracel::str_split(line, ','); };
    f_parser = paracel::gen_parser(local_parser);
    paracel_load_as_graph(ratings, input, f_parser, "fmap");
    auto rating_lambda = [&](const node_t& u, const node_t& i, double r) {
      W[u] = first_factor(u, 0);
      H[i] = first_factor(i, 1);
      usr_bias[u] = 0.;
      item_bias[i] = 0.;
      miu += r;
    };
    ratings.traverse(rating_lambda);
    get_comm().allreduce(miu);
    paracel_bupdate("rating_cnt", static_cast<int>(ratings.e()), update_file, update_functions.at(0));
    for (auto& kv : H) {
      h_keys.push_back("H_" + paracel::cvt(kv.first));
      b_keys.push_back("item_bias_" + paracel::cvt(kv.first));
    }
    write_items();
    set_total_iters(rounds);
    paracel_sync();
    rating_cnt = paracel_read<int>("rating_cnt");
    miu /= rating_cnt;
    for (int rd = 0; rd < rounds; ++rd) {
      read_items();
      if (!ssp) paracel_sync();
      auto old_H = H;
      auto old_bias = item_bias;
      for (auto& u : ratings.left_vertex_bag()) learn(u);
      paracel::dict_type<string, vector<double>> h_delta;
      paracel::dict_type<string, double> b_delta;
      for (auto& kv : H) {
        auto& delta = h_delta["H_" + paracel::cvt(kv.first)];
        for (int j = 0; j < k; ++j) delta.push_back(kv.second[j] - old_H[kv.first][j]);
        b_delta["item_bias_" + paracel::cvt(kv.first)] = item_bias[kv.first] - old_bias[kv.first];
      }
      paracel_update_multi(h_delta, update_file, update_functions.at(1));
      paracel_update_multi(b_delta, update_file, update_functions.at(2));
      if (!ssp) paracel_sync();
      iter_commit();
    }
    paracel_sync();
    read_items();
  }

  /// Ratings of pairs whose user is here.
  void predict(const string& pairs_input) {
    paracel::bigraph<node_t> pairs;
    paracel_load_as_graph(pairs, pairs_input, f_parser, "fmap");
    vector<string> lines;
    auto predict_lambda = [&](const node_t& u, const node_t& i, double) {
      double r = W.count(u) > 0 && H.count(i) > 0 ? estimate(u, i) : miu;
      lines.push_back(paracel::cvt(u) + "," + paracel::cvt(i) + "," + dump_line_as_vector(vector<double>(1, r)));
    };
    pairs.traverse(predict_lambda);
    paracel_dump_vector(lines, "pred_v_", "\n");
  }

  void dump_result() {
    paracel::dict_type<string, vector<double>> w_values;
    paracel::dict_type<string, double> b_values;
    for (auto& kv : W) w_values["W_" + paracel::cvt(kv.first)] = kv.second;
    for (auto& kv : usr_bias) b_values["usr_bias_" + paracel::cvt(kv.first)] = kv.second;
    paracel_write_multi(w_values);
    paracel_write_multi(b_values);
    paracel_sync();
    if (get_worker_id() != 0) return;
    paracel_dump_dict(paracel_read_special<double>(filter_file, filter_functions.at(0)), "ubias_");
    paracel_dump_dict(paracel_read_special<double>(filter_file, filter_functions.at(1)), "ibias_");
    paracel_dump_dict(paracel_read_special<vector<double>>(filter_file, filter_functions.at(2)), "W_");
    paracel_dump_dict(paracel_read_special<vector<double>>(filter_file, filter_functions.at(3)), "H_");
    paracel::dict_type<string, double> mean;
    mean["rating_cnt"] = rating_cnt;
    mean["miu"] = miu;
    paracel_dump_dict(mean, "miu_");
  }

 private:
  /// Small numbers that depend on the id alone.
  vector<double> first_factor(node_t id, int side) const {
    vector<double> f;
    for (int j = 0; j < k; ++j) f.push_back(0.1 * std::sin(static_cast<double>(1 + id * 7 + j * 3 + side)));
    return f;
  }
  double estimate(node_t u, node_t i) { return miu + usr_bias[u] + item_bias[i] + paracel::dot_product(W[u], H[i]); }
  void learn(node_t u) {
    auto row = ratings.adjacent(u);
    vector<std::pair<node_t, double>> ordered(row.begin(), row.end());
    std::sort(ordered.begin(), ordered.end());
    for (auto& one : ordered) {
      double e = one.second - estimate(u, one.first);
      auto &w = W[u], &h = H[one.first];
      usr_bias[u] += alpha * (2. * e - beta * usr_bias[u]);
      item_bias[one.first] += alpha * (2. * e - beta * item_bias[one.first]);
      for (int j = 0; j < k; ++j) {
        double wj = w[j];
        w[j] += alpha * (2. * e * h[j] - beta * wj);
        h[j] += alpha * (2. * e * wj - beta * h[j]);
      }
    }
  }
  void write_items() {
    paracel::dict_type<string, vector<double>> h_values;
    paracel::dict_type<string, double> b_values;
    for (auto& kv : H) h_values["H_" + paracel::cvt(kv.first)] = kv.second;
    for (auto& kv : item_bias) b_values["item_bias_" + paracel::cvt(kv.first)] = kv.second;
    paracel_write_multi(h_values);
    paracel_write_multi(b_values);
  }
  void read_items() {
    auto rows = paracel_read_multi<vector<double>>(h_keys);
    auto biases = paracel_read_multi<double>(b_keys);
    size_t at = 0;
    for (auto& kv : H) {
      kv.second = rows[at];
      item_bias[kv.first] = biases[at++];
    }
  }

  string input, update_file, filter_file;
  vector<string> update_functions, filter_functions;
  int k, rounds;
  double alpha, beta;
  bool ssp;
  paracel::parser_type f_parser;
  paracel::bigraph<node_t> ratings;
  paracel::dict_type<node_t, vector<double>> W, H;
  paracel::dict_type<node_t, double> usr_bias, item_bias;
  paracel::list_type<string> h_keys, b_keys;
  double miu = 0.;
  int rating_cnt = 0;
};

}  // namespace alg
}  // namespace paracel

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::SetUsageMessage("[options]\n\t--server_info\n\t--cfg_file\n");
  google::ParseCommandLineFlags(&argc, &argv, true);

  paracel::json_parser pt(FLAGS_cfg_file);
  paracel::alg::matrix_factorization solver(
      comm, FLAGS_server_info, pt.check_parse<string>("input"), pt.parse<string>("output"),
      pt.check_parse<string>("update_file"), pt.parse_v<string>("update_functions"),
      pt.check_parse<string>("filter_file"), pt.parse_v<string>("filter_functions"), pt.parse<int>("k"),
      pt.parse<int>("rounds"), pt.parse<double>("alpha"), pt.parse<double>("beta"), pt.parse<int>("limit_s"),
      pt.parse<bool>("ssp_switch"));
  solver.solve();
  solver.predict(pt.check_parse<string>("predict_input"));
  solver.dump_result();
  return 0;
}
