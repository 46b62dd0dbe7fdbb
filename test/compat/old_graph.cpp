// SPDX-License-Identifier: BSD-3-Clause
//
// A program in the style of Paracel 0.3: degrees, incoming links and distances in a graph that the workers have loaded
// together.
#include <cstddef>
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

class graph_numbers : public paracel::paralg {
 public:
  graph_numbers(paracel::Comm comm, string hosts, string _input, string _similar, string output, string _file,
                string _pattern, node_t _source)
      : paracel::paralg(hosts, comm, output),
        input(_input),
        similar(_similar),
        handle_file(_file),
        pattern(_pattern),
        source(_source) {}
  virtual ~graph_numbers() {}

  virtual void solve() {
    auto local_parser = [](const string& line) { return paracel::str_split(line, ','); };
    auto f_parser = paracel::gen_parser(local_parser);
    paracel_load_as_graph(local_graph, input, f_parser, pattern);
    int npx = 0, npy = 0;
    get_decomp_info(npx, npy);
    good = static_cast<size_t>(npx) * npy == get_worker_size();

    // Incoming links, on the servers: for each key a list of (from, weight).
    paracel::dict_type<string, vector<std::pair<node_t, double>>> links;
    auto link_lambda = [&](const node_t& a, const node_t& b, double w) {
      links[paracel::cvt(b) + "_links"].push_back(std::make_pair(a, w));
      edges += 1;
    };
    local_graph.traverse(link_lambda);
    paracel_bupdate_multi(links, handle_file, "links_updater");
    paracel_sync();
    for (auto& kv : links) {
      double sum = 0.;
      for (auto& link : paracel_read<vector<std::pair<node_t, double>>>(kv.first)) sum += link.second;
      in_weight[kv.first.substr(0, kv.first.find('_'))] = sum;
    }
    get_comm().allreduce(edges);

    // The complete graph: each worker's part is sent as a value.
    paracel_write("G_" + std::to_string(get_worker_id()), local_graph);
    paracel_sync();
    paracel::digraph<node_t> whole, part;
    for (size_t r = 0; r < get_worker_size(); ++r) {
      paracel_read<paracel::digraph<node_t>>("G_" + std::to_string(r), part);
      paracel::list_type<std::tuple<node_t, node_t, double>> triples;
      part.dump2triples(triples);
      whole.construct_from_triples(triples);
    }
    good = good && static_cast<long>(whole.e()) == edges;
    for (auto& v : whole.vertex_bag()) {
      string key = paracel::cvt(v);
      out_degree[key] = static_cast<int>(whole.outdegree(v));
      in_degree[key] = static_cast<int>(whole.indegree(v));
      good = good && whole.adjacent(v).size() == whole.outdegree(v);
    }
    auto note = [&](const node_t& v) { reached.push_back(v); };
    paracel::BFS<paracel::digraph<node_t>, node_t, decltype(note)> bfs(whole, source, note);
    for (auto& v : reached) distance[paracel::cvt(v)] = bfs.dist(v);
    auto nothing = [](const node_t&) {};
    paracel::DFS<paracel::digraph<node_t>, node_t, decltype(nothing)> dfs(whole, source, nothing);
    for (auto& v : whole.vertex_set()) good = good && dfs.visited(v) == bfs.visited(v);
    selfloops = static_cast<int>(whole.selfloops());

    paracel::undirected_graph<node_t> both(whole.get_data());
    paracel::connected_components<paracel::undirected_graph<node_t>, node_t> cc(both);
    components = cc.cnt();
    auto cc_lambda = [&](const node_t& v, int id) { component[paracel::cvt(v)] = id; };
    cc.handleCC(cc_lambda);
    whole.reverse();
    for (auto& v : whole.vertex_bag())
      good = good && in_degree[paracel::cvt(v)] == static_cast<int>(whole.outdegree(v));

    // Bipartite names, mixed lines: "a b:0.1|c:0.2".
    auto parser = paracel::gen_parser(paracel::parser_b, ' ', '|');
    paracel::bigraph<string> similar_graph;
    paracel_load_as_graph(similar_graph, similar, parser, "fset");
    auto best_lambda = [&](const string& a, const string& b, double w) {
      best[a].push_back(std::make_pair(b, w));
      good = good && similar_graph.is_connected(a, b) && similar_graph.get_wgt(a, b) == w;
    };
    similar_graph.traverse(best_lambda);

    paracel::bigraph_continuous numbered;
    paracel::dict_type<node_t, node_t> rm, cm;
    paracel_load_as_graph(numbered, rm, cm, input, f_parser, pattern);
    paracel::dict_type<node_t, paracel::dict_type<node_t, double>> last;
    auto last_lambda = [&](node_t a, node_t b, double w) { last[rm[a]][cm[b]] = w; };
    numbered.traverse(last_lambda);
    for (auto& kv : last) good = good && local_graph.adjacent(kv.first) == kv.second;
    good = good && last.size() <= rm.size();  // other workers may have edges of the same rows
  }

  void dump_result() {
    paracel_dump_dict(best, "best_");
    paracel_dump_dict(in_weight, "in_weight_", false, true);
    if (get_worker_id() != 0) return;
    paracel_dump_dict(out_degree, "out_degree_");
    paracel_dump_dict(in_degree, "in_degree_");
    paracel_dump_dict(distance, "distance_");
    paracel_dump_dict(component, "component_");
    std::cout << "edges " << edges << std::endl;
    std::cout << "selfloops " << selfloops << std::endl;
    std::cout << "components " << components << std::endl;
  }
  bool is_good() { return good; }

 private:
  string input, similar, handle_file, pattern;
  node_t source;
  bool good = true;
  paracel::digraph<node_t> local_graph;
  long edges = 0;
  int selfloops = 0, components = 0;
  vector<node_t> reached;
  paracel::dict_type<string, double> in_weight;
  paracel::dict_type<string, int> out_degree, in_degree, distance, component;
  paracel::dict_type<string, paracel::list_type<std::pair<string, double>>> best;
};

}  // namespace alg
}  // namespace paracel

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::SetUsageMessage("[options]\n\t--server_info\n\t--cfg_file\n");
  google::ParseCommandLineFlags(&argc, &argv, true);

  paracel::json_parser pt(FLAGS_cfg_file);
  paracel::alg::graph_numbers solver(comm, FLAGS_server_info, pt.check_parse<string>("input"),
                                     pt.check_parse<string>("similar"), pt.parse<string>("output"),
                                     pt.check_parse<string>("handle_file"), pt.parse<string>("pattern"),
                                     static_cast<paracel::default_id_type>(pt.parse<int>("source")));
  solver.solve();
  solver.dump_result();
  if (!solver.is_good()) std::cout << "checks: bad" << std::endl;
  return solver.is_good() ? 0 : 1;
}
