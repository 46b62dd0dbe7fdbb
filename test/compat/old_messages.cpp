// SPDX-License-Identifier: BSD-3-Clause
//
// A program in the manner of Paracel 0.3 whose workers talk to each other directly: what it prints depends on the
// number of workers only.
#include <csignal>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

#include <gflags/gflags.h>
#include <mpi.h>

#include "ps.hpp"
#include "utils.hpp"
#include "utils/comm.hpp"

DEFINE_string(server_info, "host1:7777PARACELhost2:8888", "where the servers are");
DEFINE_string(cfg_file, "", "config file");

using std::string;
using std::vector;

namespace paracel {
namespace alg {

class talk : public paracel::paralg {
 public:
  talk(paracel::Comm comm, string hosts, string output) : paracel::paralg(hosts, comm, output) {}

  virtual void solve() {
    paracel::Comm comm = get_comm();
    int rank = static_cast<int>(comm.get_rank()), size = static_cast<int>(comm.get_size());
    int next = (rank + 1) % size, before = (rank + size - 1) % size;

    // A token around the ring: each worker adds its rank.
    vector<double> token(3, 0.);
    if (rank == 0) comm.send(token, next, 1);
    MPI_Status stat = comm.recv(token, before, 1);
    good = good && comm.get_source(stat) == before && stat.MPI_TAG == 1;
    if (rank != 0) {
      for (auto& t : token) t += rank;
      comm.send(token, next, 1);
    }
    sum = token[2];

    // All to all, started before any worker receives.
    paracel::vrequest requests;
    for (int r = 0; r < size; ++r) {
      auto sent = comm.isend(100 * rank + r, r, 2);
      requests.append(sent);
    }
    vector<int> got(size, -1);
    for (int r = 0; r < size; ++r) {
      auto received = comm.irecv(got[r], r, 2);
      requests.append(received);
    }
    comm.wait(requests);
    good = good && requests.test() && requests.size() == 2 * size;
    for (int r = 0; r < size; ++r) good = good && got[r] == 100 * r + rank;

    paracel::triple_type mine("u" + std::to_string(rank), "v", 0.5 * rank), theirs;
    comm.sendrecv(mine, theirs, next, 3, before, 3);
    good = good && std::get<0>(theirs) == "u" + std::to_string(before) && std::get<2>(theirs) == 0.5 * before;
    paracel::dict_type<string, vector<double>> rows, other;
    rows["row"] = vector<double>(2, rank);
    comm.sendrecv(rows, other, next, 4, before, 4);
    good = good && other["row"][1] == before;
    comm.send(token, 2, next, 5);
    vector<double> part(2);
    comm.recv(part, 2, before, paracel::any_tag);

    vector<int> seen;
    auto note = [&seen](const vector<int>& one) { seen.insert(seen.end(), one.begin(), one.end()); };
    comm.bcastring(vector<int>(1, rank), note);
    vector<vector<int>> blocks(size), unused;
    for (int r = 0; r < size; ++r) blocks[r].assign(1, 10 * rank + r);
    comm.alltoallring(blocks, unused, note);
    for (int i = 0; i < size; ++i) {
      int from = (rank + i) % size;
      good = good && seen[i] == from && seen[size + i] == 10 * from + rank;
    }

    paracel::Comm half = comm.split(rank % 2);
    int ranks = rank;
    half.allreduce(ranks);
    int want = 0;
    for (int r = rank % 2; r < size; r += 2) want += r;
    good = good && ranks == want && static_cast<int>(half.get_rank()) == rank / 2;
    string word = half.get_rank() == 0 ? "first of " + std::to_string(rank % 2) : "";
    half.bcast(word, 0);
    good = good && word == "first of " + std::to_string(rank % 2);
    paracel::Comm same(comm.get_comm());
    good = good && same.get_size() == comm.get_size();
    same.sync();

    // What has been read is in the cache.
    if (rank == 0) paracel_write("theta", vector<double>(2, 1.5));
    paracel_sync();
    paracel_read<vector<double>>("theta");
    auto cache = get_cache();
    good = good && (cache.empty() || cache["theta"].as<vector<double>>()[1] == 1.5);
    good = good && dump_line_as_vector(vector<double>(2, 1.5)) == "1.5,1.5";
    comm.sync();
  }
  double sum = 0;
  bool good = true;
};

}  // namespace alg
}  // namespace paracel

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::ParseCommandLineFlags(&argc, &argv, true);
  paracel::json_parser pt(FLAGS_cfg_file);
  paracel::alg::talk solver(comm, FLAGS_server_info, pt.parse<string>("output"));
  if (pt.has("die")) {  // one worker is killed while the others wait for its message
    int n = 0;
    if (comm.get_rank() == 1) std::raise(SIGKILL);
    comm.recv(n, 1, 0);
  }
  solver.solve();
  int wrong = solver.good ? 0 : 1;
  comm.allreduce(wrong);
  if (comm.get_rank() == 0) std::cout << "sum " << solver.sum << "\nwrong " << wrong << std::endl;
  return wrong;
}
