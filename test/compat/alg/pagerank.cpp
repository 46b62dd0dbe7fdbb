// SPDX-License-Identifier: BSD-3-Clause
//
// PageRank in the manner of Paracel 0.3: the links into a vertex and its score are under <id>_links and <id>_pr; the
// function init_updater joins the links that the workers have found, pr_filter selects the scores.
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

using node_t = paracel::default_id_type;
using links_t = vector<std::pair<node_t, double>>;

class pagerank : public paracel::paralg {
 public:
  pagerank(paracel::Comm comm, string hosts, string _input, string output, int _rounds, double _damping, string _file,
           string _update, string _filter)
      : paracel::paralg(hosts, comm, output, _rounds),
        input(_input),
        rounds(_rounds),
        damping(_damping),
        handle_file(_file),
        update_function(_update),
        filter_function(_filter) {}
  virtual ~pagerank() {}

  virtual void solve() {
    auto local_parser = [](const string& line) { return paracel::str_split(line, ','); };
    auto f_parser = paracel::gen_parser(local_parser);
    paracel::digraph<node_t> local_graph;
    paracel_load_as_graph(local_graph, input, f_parser, "fmap");

    // All edges that leave a vertex are here, so its out-degree is known.
    paracel::dict_type<string, links_t> found, links;
    auto links_lambda = [&](const node_t& a, const node_t& b, double) {
      found[paracel::cvt(b) + "_links"].push_back(std::make_pair(a, 1. / local_graph.outdegree(a)));
    };
    local_graph.traverse(links_lambda);
    paracel_bupdate_multi(found, handle_file, update_function);
    paracel::list_type<string> keys;
    for (auto& v : local_graph.vertex_bag()) {
      keys.push_back(paracel::cvt(v) + "_links");
      scores[paracel::cvt(v)] = 1.;
    }
    write_scores();
    paracel_register_read_special(handle_file, filter_function);
    paracel_sync();
    size_t n = paracel_read_special<double>().size();
    paracel_read_multi(keys, links);  // a vertex without links has no such key
    paracel_sync();
    for (auto& kv : scores) kv.second = 1. / n;
    write_scores();
    paracel_sync();

    for (int rd = 0; rd < rounds; ++rd) {
      auto all = paracel_read_special<double>(handle_file, filter_function);
      paracel_sync();
      for (auto& kv : scores) {
        double sum = 0.;
        for (auto& link : links[kv.first + "_links"]) sum += all.at(paracel::cvt(link.first) + "_pr") * link.second;
        kv.second = 1. - damping + damping * sum;
      }
      write_scores();
      paracel_sync();
      iter_commit();
    }
  }

  void dump_result() { paracel_dump_dict(scores, "pagerank_"); }

 private:
  void write_scores() {
    paracel::dict_type<string, double> values;
    for (auto& kv : scores) values[kv.first + "_pr"] = kv.second;
    paracel_write_multi(values);
  }

  string input;
  int rounds;
  double damping;
  string handle_file, update_function, filter_function;
  paracel::dict_type<string, double> scores;
};

}  // namespace alg
}  // namespace paracel

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::SetUsageMessage("[options]\n\t--server_info\n\t--cfg_file\n");
  google::ParseCommandLineFlags(&argc, &argv, true);

  paracel::json_parser pt(FLAGS_cfg_file);
  paracel::alg::pagerank solver(comm, FLAGS_server_info, pt.check_parse<string>("input"), pt.parse<string>("output"),
                                pt.parse<int>("rounds"), pt.parse<double>("damping_factor"),
                                pt.check_parse<string>("handle_file"), pt.parse<string>("update_function"),
                                pt.parse<string>("filter_function"));
  solver.solve();
  solver.dump_result();
  return 0;
}
