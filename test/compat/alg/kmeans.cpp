// SPDX-License-Identifier: BSD-3-Clause
//
// k-means in the manner of Paracel 0.3: points "name<tab>x,x,..." stay with their workers; sums of the points of each
// cluster, and at the end the clusters' points, are combined by two functions on the servers.
#include <cstddef>
#include <iostream>
#include <limits>
#include <string>
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

class kmeans : public paracel::paralg {
 public:
  kmeans(paracel::Comm comm, string hosts, string _input, string output, string _type, int _kclusters, string _file,
         vector<string> _functions, int _rounds)
      : paracel::paralg(hosts, comm, output, _rounds),
        input(_input),
        type(_type),
        kclusters(_kclusters),
        update_file(_file),
        functions(_functions),
        rounds(_rounds) {}
  virtual ~kmeans() {}

  virtual void solve() {
    if (type != "fvec") ERROR_ABORT("kmeans: type is " << type << ", want fvec");
    auto local_parser = [](const string& line) {
      auto parts = paracel::str_split(line, '\t');
      auto fields = paracel::str_split(parts.at(1), ',');
      fields.insert(fields.begin(), parts[0]);
      return fields;
    };
    auto f_parser = paracel::gen_parser(local_parser);
    paracel_load_as_matrix(points, names, input, f_parser);

    // The first points are the first centers.
    if (get_worker_id() == 0) {
      auto lines = paracel_loadall(input);
      for (int c = 0; c < kclusters; ++c) {
        centers.push_back(vector<double>());
        for (auto& field : paracel::str_split(paracel::str_split(lines.at(c), '\t')[1], ','))
          centers.back().push_back(std::stod(field));
      }
      paracel_write("centers", centers);
    }
    paracel_sync();
    centers = paracel_read<vector<vector<double>>>("centers");
    paracel_register_bupdate(update_file, functions.at(0));
    label.assign(points.rows(), -1);
    for (int changed = 1; changed > 0 && rounds_done < rounds; ++rounds_done) {
      changed = assign();
      get_comm().allreduce(changed);
      // For each cluster the sum of its points, and their number.
      vector<vector<double>> sums(kclusters, vector<double>(points.cols() + 1, 0.));
      for (int i = 0; i < points.rows(); ++i) {
        for (int j = 0; j < points.cols(); ++j) sums[label[i]][j] += points(i, j);
        sums[label[i]].back() += 1.;
      }
      string key = "clusters_" + std::to_string(rounds_done);
      paracel_bupdate(key, sums);
      paracel_sync();
      sums = paracel_read<vector<vector<double>>>(key);
      for (int c = 0; c < kclusters; ++c)
        if (sums[c].back() > 0.)
          for (size_t j = 0; j < centers[c].size(); ++j) centers[c][j] = sums[c][j] / sums[c].back();
      iter_commit();
    }
    paracel::dict_type<int, vector<string>> own;
    for (int i = 0; i < points.rows(); ++i) own[label[i]].push_back(names[i]);
    paracel_bupdate("kmeans_result", own, update_file, functions.at(1));
    paracel_sync();
  }

  void dump_result() {
    if (get_worker_id() != 0) return;
    groups = paracel_read<paracel::dict_type<int, vector<string>>>("kmeans_result");
    paracel::dict_type<int, vector<double>> rows;
    for (int c = 0; c < kclusters; ++c) rows[c] = centers[c];
    paracel_dump_dict(rows, "centers_");
    paracel_dump_dict(groups, "kmeans_");
    std::cout << "rounds " << rounds_done << std::endl;
  }

 private:
  /// Assigns each point to its nearest center; returns how many points have changed.
  int assign() {
    int changed = 0;
    for (int i = 0; i < points.rows(); ++i) {
      int best = 0;
      double least = std::numeric_limits<double>::max();
      for (int c = 0; c < kclusters; ++c) {
        double d = 0.;
        for (int j = 0; j < points.cols(); ++j) d += (points(i, j) - centers[c][j]) * (points(i, j) - centers[c][j]);
        if (d < least) {
          least = d;
          best = c;
        }
      }
      changed += label[i] != best;
      label[i] = best;
    }
    return changed;
  }

  string input, type;
  int kclusters;
  string update_file;
  vector<string> functions;
  int rounds, rounds_done = 0;
  Eigen::MatrixXd points;
  paracel::dict_type<paracel::default_id_type, string> names;
  vector<vector<double>> centers;
  vector<int> label;
  paracel::dict_type<int, vector<string>> groups;
};

}  // namespace alg
}  // namespace paracel

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::SetUsageMessage("[options]\n\t--server_info\n\t--cfg_file\n");
  google::ParseCommandLineFlags(&argc, &argv, true);

  paracel::json_parser pt(FLAGS_cfg_file);
  paracel::alg::kmeans solver(comm, FLAGS_server_info, pt.check_parse<string>("input"), pt.parse<string>("output"),
                              pt.parse<string>("type"), pt.parse<int>("kclusters"),
                              pt.check_parse<string>("update_file"), pt.parse_v<string>("update_functions"),
                              pt.parse<int>("rounds"));
  solver.solve();
  solver.dump_result();
  return 0;
}
