// SPDX-License-Identifier: BSD-3-Clause
//
// Word count in the manner of Paracel 0.3: each worker counts the words of its lines, the counts are added on the
// servers as 100 dictionaries key_0, key_1, ..., and the topk words are printed.
#include <algorithm>
#include <cctype>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <gflags/gflags.h>
#include <mpi.h>

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

using counts_t = paracel::dict_type<string, int>;

class word_count : public paracel::paralg {
 public:
  word_count(paracel::Comm comm, string hosts, string _input, string output, int _k, string _file, string _update,
             string _filter)
      : paracel::paralg(hosts, comm, output),
        input(_input),
        topk(_k),
        handle_file(_file),
        update_function(_update),
        filter_function(_filter) {}
  virtual ~word_count() {}

  virtual void solve() {
    paracel::dict_type<string, counts_t> parts;
    paracel::hash_type<string> hash_func;
    auto count = [&](const string& word) { parts["key_" + std::to_string(hash_func(word) % 100)][word] += 1; };
    auto handle_line = [&](const string& line) {
      string word;
      for (char c : line + " ") {
        if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_') {
          word += c;
        } else if (!word.empty()) {
          count(word);
          word.clear();
        }
      }
    };
    paracel_load_handle(input, handle_line);
    paracel_bupdate_multi(parts, handle_file, update_function);
    paracel_sync();
  }

  void print() {
    if (get_worker_id() == 0) {
      vector<std::pair<string, int>> words;
      auto collect = [&](paracel::dict_type<string, counts_t>& part) {
        for (auto& kv : part) words.insert(words.end(), kv.second.begin(), kv.second.end());
      };
      paracel_read_special_handle<counts_t>(handle_file, filter_function, collect);
      auto more = [](const std::pair<string, int>& a, const std::pair<string, int>& b) {
        return a.second != b.second ? a.second > b.second : a.first < b.first;
      };
      size_t k = std::min<size_t>(topk, words.size());
      std::partial_sort(words.begin(), words.begin() + k, words.end(), more);
      for (size_t i = 0; i < k; ++i) std::cout << words[i].first << " : " << words[i].second << std::endl;
    }
    paracel_sync();
  }

 private:
  string input;
  int topk;
  string handle_file, update_function, filter_function;
};

}  // namespace alg
}  // namespace paracel

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::SetUsageMessage("[options]\n\t--server_info\n\t--cfg_file\n");
  google::ParseCommandLineFlags(&argc, &argv, true);

  paracel::json_parser pt(FLAGS_cfg_file);
  paracel::alg::word_count solver(comm, FLAGS_server_info, pt.check_parse<string>("input"), pt.parse<string>("output"),
                                  pt.parse<int>("topk"), pt.check_parse<string>("handle_file"),
                                  pt.parse<string>("update_function"), pt.parse<string>("filter_function"));
  solver.solve();
  solver.print();
  return 0;
}
