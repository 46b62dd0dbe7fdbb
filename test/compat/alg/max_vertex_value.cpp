// SPDX-License-Identifier: BSD-3-Clause
//
// The greatest value of any vertex that reaches a vertex, in the manner of Paracel 0.3. Each vertex begins with its id.
// (old_pregel.cpp is the same as a vertex program.)
#include <algorithm>
#include <iostream>
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

namespace paracel {
namespace alg {

using node_t = paracel::default_id_type;

class max_vertex_value : public paracel::paralg {
 public:
  max_vertex_value(paracel::Comm comm, string hosts, string _input, string output, string _file, string _func)
      : paracel::paralg(hosts, comm, output), input(_input), update_file(_file), update_func(_func) {}
  virtual ~max_vertex_value() {}

  virtual void solve() {
    auto local_parser = [](const string& line) { return paracel::str_split(line, ','); };
    auto f_parser = paracel::gen_parser(local_parser);
    paracel_load_as_graph(local_graph, input, f_parser, "fmap");
    paracel_register_bupdate(update_file, update_func);
    paracel::dict_type<string, double> messages;
    for (auto& v : local_graph.vertex_bag()) messages[paracel::cvt(v)] = static_cast<double>(v);
    paracel_bupdate_multi(messages);
    paracel_sync();

    int active = 1;
    while (active > 0) {
      // Vertices whose values have changed send them along their edges.
      paracel::list_type<string> keys;
      for (auto& v : local_graph.vertex_bag()) keys.push_back(paracel::cvt(v));
      auto values = paracel_read_multi<double>(keys);
      messages.clear();
      active = 0;
      for (size_t i = 0; i < keys.size(); ++i) {
        if (vertex_val.count(keys[i]) > 0 && vertex_val[keys[i]] == values[i]) continue;
        vertex_val[keys[i]] = values[i];
        active += 1;
        for (auto& edge : local_graph.adjacent(paracel::cvt(keys[i]))) {
          auto& message = messages[paracel::cvt(edge.first)];
          message = std::max(message, values[i]);
        }
      }
      if (!messages.empty()) paracel_bupdate_multi(messages);
      get_comm().allreduce(active);
      paracel_sync();
    }
  }

  void dump_result() { paracel_dump_dict(vertex_val, "mvv_"); }

 private:
  string input, update_file, update_func;
  paracel::digraph<node_t> local_graph;
  paracel::dict_type<string, double> vertex_val;
};

}  // namespace alg
}  // namespace paracel

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::SetUsageMessage("[options]\n\t--server_info\n\t--cfg_file\n");
  google::ParseCommandLineFlags(&argc, &argv, true);

  paracel::json_parser pt(FLAGS_cfg_file);
  paracel::alg::max_vertex_value solver(comm, FLAGS_server_info, pt.check_parse<string>("input"),
                                        pt.parse<string>("output"), pt.check_parse<string>("update_file"),
                                        pt.parse<string>("update_func"));
  solver.solve();
  solver.dump_result();
  return 0;
}
