// SPDX-License-Identifier: BSD-3-Clause
//
// Interview trees for new users in the manner of Paracel 0.3. A node asks the item that divides its users, into those
// with p_u.q_i >= 0 and the others, so that sum |p_u - mean of the part|^2 is least. Each worker has all users and a
// part of the items, and offers the best of these to the servers; tree n asks the n-th best item at its root.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <set>
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

using node_t = paracel::default_id_type;
using offer_t = std::pair<node_t, double>;
static const node_t nothing = std::numeric_limits<node_t>::max();

class decision_tree_builder : public paracel::paralg {
 public:
  decision_tree_builder(paracel::Comm comm, string hosts, string _users, string _items, string output, int _level,
                        int _first, int _last, string _file)
      : paracel::paralg(hosts, comm, output),
        user_input(_users),
        item_input(_items),
        level(_level),
        first_tree(_first),
        last_tree(_last),
        handle_file(_file) {}
  virtual ~decision_tree_builder() {}

  virtual void solve() {
    for (auto& line : paracel_loadall(user_input)) users.push_back(factors(line));
    for (auto& line : paracel_load(item_input)) {
      node_t id = paracel::cvt(paracel::str_split(line, '\t')[0]);
      items[id] = factors(line);
      paracel_write("item_" + paracel::cvt(id), items[id]);
    }
    paracel_register_bupdate(handle_file, "smallest_error_updater");
    vector<int> everybody(users.size());
    for (size_t u = 0; u < users.size(); ++u) everybody[u] = static_cast<int>(u);

    // The items that the root may ask, the best first.
    for (auto& kv : items) {
      double error = split_error(everybody, kv.second);
      if (error >= 0.) paracel_write("err_" + paracel::cvt(kv.first), error);
    }
    paracel_sync();
    vector<std::pair<double, node_t>> roots;
    for (auto& kv : paracel_read_special<double>(handle_file, "small_errors_filter"))
      roots.push_back(std::make_pair(kv.second, paracel::cvt(kv.first.substr(4))));
    std::sort(roots.begin(), roots.end());
    for (int t = first_tree; t <= last_tree; ++t) build(t, roots.at(t).second, everybody);
  }

  void dump_result() {
    if (get_worker_id() != 0) return;
    paracel_dump_dict(trees, "tree_");
    for (auto& kv : means) {
      vector<string> lines;
      for (auto& mean : kv.second) lines.push_back(dump_line_as_vector(mean, "|"));
      paracel_dump_vector(lines, "average_user_factor_" + std::to_string(kv.first) + "_", "\n");
    }
  }

 private:
  static vector<double> factors(const string& line) {
    vector<double> f;
    for (auto& field : paracel::str_split(paracel::str_split(line, '\t').at(1), '|')) f.push_back(std::stod(field));
    return f;
  }
  /// Those who like the item, and those who do not.
  std::pair<vector<int>, vector<int>> split(const vector<int>& node, const vector<double>& item) {
    std::pair<vector<int>, vector<int>> parts;
    for (auto u : node) (paracel::dot_product(users[u], item) >= 0. ? parts.first : parts.second).push_back(u);
    return parts;
  }
  Eigen::VectorXd mean_of(const vector<int>& node) {
    Eigen::VectorXd mean = Eigen::VectorXd::Zero(users.at(0).size());
    for (auto u : node) mean += paracel::vec2evec(users[u]) / node.size();
    return mean;
  }
  double error_of(const vector<int>& node) {
    Eigen::VectorXd mean = mean_of(node);
    double error = 0.;
    for (auto u : node) error += (paracel::vec2evec(users[u]) - mean).squaredNorm();
    return error;
  }
  /// -1 where a part is empty, or at least three times the other one.
  double split_error(const vector<int>& node, const vector<double>& item) {
    auto parts = split(node, item);
    size_t a = parts.first.size(), b = parts.second.size();
    if (a == 0 || b == 0 || a >= 3 * b || b >= 3 * a) return -1.;
    return error_of(parts.first) + error_of(parts.second);
  }

  void build(int t, node_t root, const vector<int>& everybody) {
    size_t size = (size_t(1) << level) - 1;
    vector<vector<int>> nodes(1, everybody);
    std::set<node_t> used;
    auto& tree = trees["tree_" + std::to_string(t)];
    for (size_t n = 0; n < size; ++n) {
      string key = "smallest_error_" + std::to_string(t) + "_" + std::to_string(n);
      offer_t best(nothing, std::numeric_limits<double>::max());
      for (auto& kv : items) {
        if (used.count(kv.first) > 0 || (n == 0 && kv.first != root)) continue;
        double error = split_error(nodes[n], kv.second);
        bool smaller = error < best.second || (error == best.second && kv.first < best.first);
        if (error >= 0. && smaller) best = offer_t(kv.first, error);
      }
      paracel_bupdate(key, best);
      paracel_sync();
      best = paracel_read<offer_t>(key);
      tree.push_back(best.first);
      used.insert(best.first);
      means[t].push_back(paracel::evec2vec(mean_of(nodes[n])));
      std::pair<vector<int>, vector<int>> parts;
      if (best.first != nothing)
        parts = split(nodes[n], paracel_read<vector<double>>("item_" + paracel::cvt(best.first)));
      nodes.push_back(parts.first);
      nodes.push_back(parts.second);
    }
  }

  string user_input, item_input;
  int level, first_tree, last_tree;
  string handle_file;
  vector<vector<double>> users;
  paracel::dict_type<node_t, vector<double>> items;
  paracel::dict_type<string, vector<node_t>> trees;
  paracel::dict_type<int, vector<vector<double>>> means;
};

}  // namespace alg
}  // namespace paracel

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::SetUsageMessage("[options]\n\t--server_info\n\t--cfg_file\n");
  google::ParseCommandLineFlags(&argc, &argv, true);

  paracel::json_parser pt(FLAGS_cfg_file);
  paracel::alg::decision_tree_builder solver(comm, FLAGS_server_info, pt.check_parse<string>("user_fac_input"),
                                             pt.check_parse<string>("item_fac_input"), pt.parse<string>("output"),
                                             pt.parse<int>("level"), pt.parse<int>("tree_start_index"),
                                             pt.parse<int>("tree_end_index"), pt.check_parse<string>("handle_file"));
  solver.solve();
  solver.dump_result();
  return 0;
}
