// SPDX-License-Identifier: BSD-3-Clause
//
// A program in the manner of Paracel 0.3 that uses its lower layers: the loader, the partition, the table in memory,
// the ring, the client. The sums of what it loads do not depend on the number of workers.
// As in 0.3, the headers below bring all that it uses of the standard library.
#include <google/gflags.h>
#include <mpi.h>

#include "client.hpp"
#include "graph.hpp"
#include "kv.hpp"
#include "kv_def.hpp"
#include "load/loader.hpp"
#include "load/partition.hpp"
#include "load/scheduler.hpp"
#include "ps.hpp"
#include "ring.hpp"
#include "server.hpp"
#include "utils.hpp"
#include "utils/func_utility.hpp"
#include "utils/hash.hpp"

DEFINE_string(server_info, "host1:7777PARACELhost2:8888", "where the servers are");
DEFINE_string(cfg_file, "", "config file");

using std::string;
using std::vector;

static int wrong = 0;
#define WANT(condition)                                                              \
  if (!(condition)) {                                                                \
    std::cout << __FILE__ << ":" << __LINE__ << ": not " << #condition << std::endl; \
    wrong += 1;                                                                      \
  }

static double twice(int, const string&) { return 0; }

/// What programs used of the standard library and the system without including its header.
static void standard_library() {
  std::priority_queue<int> heap;
  heap.push(2);
  std::queue<int> queue;
  std::deque<int> deque(1, 1);
  std::map<string, std::unique_ptr<int>> map;
  std::unordered_map<int, std::unordered_set<int>> dict;
  std::mutex mutex;
  std::thread thread([&] { const std::lock_guard<std::mutex> lock(mutex); });
  thread.join();
  std::future<bool> later = std::async(std::launch::async, [] { return true; });
  WANT(later.get() && heap.top() == 2 && queue.empty() && map.empty() && dict.empty());
  std::mt19937 engine(1);
  std::istringstream text("7");
  int seven = 0;
  text >> seven;
  const std::function<int(int)> same = [](int x) { return x; };
  WANT(same(std::accumulate(deque.begin(), deque.end(), 6)) == seven && engine() > 0);
  struct stat s;
  WANT(stat("/", &s) == 0 && std::memcmp("a", "a", 1) == 0 && getpid() > 0 && time(nullptr) != 0 && htole64(1) != 0);
  assert(getpid() > 0);
  WANT(dlsym(RTLD_DEFAULT, "main") == nullptr || dlerror() == nullptr);
}

static void tables() {
  paracel::kvs<string, vector<double>> table;
  table.set("a", vector<double>(2, 1.));
  WANT(table.contains("a") && !table.get("b") && (*table.get("a"))[1] == 1.);
  WANT(table.incr("a", vector<double>(2, 2.)) && !table.incr("a", vector<double>(3, 2.)));
  auto named = table.gets("a");
  WANT(named && (*named).first[0] == 3.);
  WANT(table.cas("a", vector<double>(1, 9.), (*named).second) && !table.cas("a", vector<double>(), (*named).second));
  WANT(table.getall().size() == 1 && table.del("a") && !table.del("a"));
  paracel::ssp_tbl.set("server_clock", 0);
  WANT(paracel::ssp_tbl.incr("server_clock", 2) && *paracel::ssp_tbl.get("server_clock") == 2);
  paracel::tbl_store.set("x", "y");
  WANT(paracel::tbl_store.contains("x"));

  vector<int> servers;
  for (int i = 0; i < 4; ++i) servers.push_back(i);
  paracel::ring<int> ring(servers), less(servers);
  less.remove_server(2);
  vector<int> counts(4, 0);
  int moved = 0;
  for (int i = 0; i < 4000; ++i) {
    string key = "key_" + std::to_string(i);
    int at = ring.get_server(key);
    counts[at] += 1;
    if (at != 2 && less.get_server(key) != at) moved += 1;
    WANT(less.get_server(key) != 2);
  }
  WANT(moved == 0);
  for (int c : counts) WANT(c > 400 && c < 2000);

  paracel::hash_type<vector<int>> of_list;
  WANT(of_list({1, 2}) != of_list({2, 1}) && of_list({1, 2}) == of_list({1, 2}));
  paracel::hash_type<std::pair<string, int>> of_pair;
  WANT(of_pair({"a", 1}) != of_pair({"a", 2}));
  auto lambda = [](double x, int n) { return x * n; };
  using traits = paracel::f_traits<decltype(lambda)>;
  WANT(traits::arity == 2 && (std::is_same<traits::args<1>::type, int>::value));
  WANT((std::is_same<paracel::f_traits<decltype(&twice)>::result_type, double>::value));
}

static void helpers(const string& folder) {
  std::ofstream(folder + "/b.txt") << "one two one";
  paracel::file_replace(folder + "/b.txt", "one", "three");
  std::ifstream f(folder + "/b.txt");
  string line;
  std::getline(f, line);
  WANT(line == "three two three");
  WANT(paracel::paracel_glob(folder + "/*.txt").size() == 1);
  WANT(paracel::expand_dir_rec(folder).back() == folder + "/b.txt");
  WANT(paracel::seperator == "_PARACEL_" && paracel::seperator_inner == "_ps_");
  auto hosts = paracel::get_hostnames_dict("h1:1,2" + paracel::seperator + "h2:3,4");
  WANT(hosts.size() == 2 && hosts[1]["host"] == "h2" && hosts[0]["ports"] == "1,2");
  auto ports = paracel::get_ports();
  WANT(std::set<size_t>(ports.begin(), ports.end()).size() == 5);
  try {
    paracel::cvt("no id");
    WANT(false);
  } catch (const std::invalid_argument&) {
  }
  try {
    paracel::init_thrds("host", "7777");
    WANT(false);
  } catch (const std::exception& e) {
    WANT(string(e.what()).find("prun.py") != string::npos);
  }
}

static void loads(paracel::Comm comm, const string& input, const string& vectors, const string& pattern) {
  auto parser = [](const string& line) { return paracel::str_split(line, ','); };
  auto f_parser = paracel::gen_parser(parser);
  paracel::loader<string> ld(input, comm, f_parser, pattern);
  auto lines = ld.load();
  int count = static_cast<int>(lines.size());
  comm.allreduce(count);
  paracel::digraph<paracel::default_id_type> graph;
  auto again = lines;
  ld.create_graph(again, graph);
  WANT(again.empty());
  Eigen::SparseMatrix<double, Eigen::RowMajor> block;
  paracel::dict_type<paracel::default_id_type, paracel::default_id_type> rows, columns;
  paracel::dict_type<paracel::default_id_type, string> row_names, column_names;
  again = lines;
  // fmap: the default of 0.3; ids as numbers and as names give the same entries.
  ld.create_matrix(again, block, rows, columns);
  double total = block.sum(), weighted = 0;
  auto weigh = [&](int i, int j, double w) { weighted += w * (rows[i] % 3) * (columns[j] % 2); };
  paracel::traverse_matrix(block, weigh);
  Eigen::SparseMatrix<double, Eigen::RowMajor> named;
  again = lines;
  ld.create_matrix(again, named, row_names, column_names);
  double total_named = named.sum();
  int edges = static_cast<int>(graph.e());
  comm.allreduce(total);
  comm.allreduce(weighted);
  comm.allreduce(total_named);
  comm.allreduce(edges);
  WANT(total - total_named < 1e-9 && total_named - total < 1e-9);

  paracel::bigraph_continuous both;
  paracel::dict_type<paracel::default_id_type, paracel::default_id_type> left, right;
  again = lines;
  ld.create_graph(again, both, left, right);
  WANT(left.size() == rows.size());

  auto dense_parser = [](const string& line) { return paracel::str_split(line, "\t|"); };
  paracel::loader<string> dense(vectors, comm, paracel::gen_parser(dense_parser), "fvec");
  auto texts = dense.fixload();
  Eigen::MatrixXd matrix;
  paracel::dict_type<paracel::default_id_type, string> names;
  dense.create_matrix(texts, matrix, names);
  double dense_total = matrix.sum();
  comm.allreduce(dense_total);
  if (comm.get_rank() == 0) {
    std::printf("lines %d\nedges %d\ntotal %.12g\nweighted %.12g\ndense %.12g\n", count, edges, total, weighted,
                dense_total);
    std::fflush(stdout);
  }

  // Every range of every file, whichever worker reads it.
  paracel::partition parts(paracel::expand(input), 7, pattern);
  parts.files_partition();
  auto begins = parts.get_start_list(), ends = parts.get_end_list();
  size_t all = 0;
  for (size_t i = 0; i < begins.size(); ++i) all += parts.files_load_lines_impl(begins[i], ends[i]).size();
  WANT(static_cast<int>(all) == count);
}

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::ParseCommandLineFlags(&argc, &argv, true);
  paracel::json_parser pt(FLAGS_cfg_file);
  {
    paracel::paralg job(FLAGS_server_info, comm, pt.parse<string>("output"));
    standard_library();
    tables();
    if (comm.get_rank() == 0) helpers(pt.check_parse<string>("folder"));
    loads(comm, pt.check_parse<string>("input"), pt.check_parse<string>("vectors"), pt.parse<string>("pattern"));
    paracel::kvclt client("host", "1,2,3,4,5");
    string key = "key_" + std::to_string(comm.get_rank());
    WANT(client.push(key, 4) && client.pull<int>(key) == 4 && client.contains(key));
    bool r = false;
    WANT(client.bupdate(key, 3, r) == 7 && r);
    WANT(client.push_int(key, 1) && client.incr_int(key, 2) && client.pull_int(key) == 3);
    WANT(client.remove(key) && !client.contains(key));
    job.paracel_sync();
  }
  comm.allreduce(wrong);
  if (comm.get_rank() == 0) std::cout << "wrong " << wrong << std::endl;
  return wrong;
}
