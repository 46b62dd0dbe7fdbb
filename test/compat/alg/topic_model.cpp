// SPDX-License-Identifier: BSD-3-Clause
//
// Latent Dirichlet allocation by collapsed Gibbs sampling in the manner of Paracel 0.3: documents stay with their
// workers, the counts of a word in each topic are under the word, those of a topic under sum_topic_<k>, and the plug-in
// adds the workers' changes.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iostream>
#include <random>
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

using counts_t = paracel::dict_type<string, vector<int>>;

class gLDA : public paracel::paralg {
 public:
  gLDA(paracel::Comm comm, string hosts, string _input, string output, string _file, double _alpha, double _beta,
       int _topics, int _iters, int _top_words)
      : paracel::paralg(hosts, comm, output, _iters),
        input(_input),
        handle_file(_file),
        alpha(_alpha),
        beta(_beta),
        topics(_topics),
        iters(_iters),
        top_words(_top_words),
        random(static_cast<unsigned>(comm.get_rank())) {}
  virtual ~gLDA() {}

  virtual void solve() {
    for (auto& line : paracel_load(input)) {
      docs.push_back(vector<std::pair<string, int>>());
      for (auto& word : paracel::str_split(line, " \t")) {
        docs.back().push_back(std::make_pair(word, static_cast<int>(random() % topics)));
        word_cnt[word].resize(topics, 0);
      }
    }
    for (auto& kv : word_cnt) words.push_back(kv.first);
    for (int k = 0; k < topics; ++k) topic_keys.push_back("sum_topic_" + std::to_string(k));
    auto delta = zeros();
    vector<int> sum_delta(topics, 0);
    for (auto& doc : docs)
      for (auto& token : doc) {
        delta[token.first][token.second] += 1;
        sum_delta[token.second] += 1;
      }
    paracel::dict_type<string, int> own;
    for (auto& kv : word_cnt) own[kv.first] = 1;
    paracel_bupdate("dictionary", own, handle_file, "gLDA_dict_update");
    push(delta, sum_delta);
    vocabulary = static_cast<int>(paracel_read<paracel::dict_type<string, int>>("dictionary").size());
    pull();
    for (int it = 0; it < iters; ++it) {
      paracel_sync();
      delta = zeros();
      sum_delta.assign(topics, 0);
      for (auto& doc : docs) sample(doc, delta, sum_delta);
      push(delta, sum_delta);
      pull();
      iter_commit();
    }
  }

  /// The most probable words of each topic, collected via the servers.
  void dump_result() {
    paracel::dict_type<string, double> phi;
    for (auto& word : words)
      for (int k = 0; k < topics; ++k)
        phi["key_" + std::to_string(k) + "_" + word] = (word_cnt[word][k] + beta) / (sum[k] + vocabulary * beta);
    paracel_write_multi(phi);
    paracel_sync();
    if (get_worker_id() != 0) return;
    paracel::dict_type<string, vector<std::pair<string, double>>> best;
    for (auto& kv : paracel_read_special<double>(handle_file, "gLDA_dump_filter")) {
      size_t at = kv.first.find('_', 4);
      best[kv.first.substr(4, at - 4) + "topic"].push_back(std::make_pair(kv.first.substr(at + 1), kv.second));
    }
    auto more = [](const std::pair<string, double>& a, const std::pair<string, double>& b) {
      return a.second != b.second ? a.second > b.second : a.first < b.first;
    };
    for (auto& kv : best) {
      std::sort(kv.second.begin(), kv.second.end(), more);
      if (kv.second.size() > top_words) kv.second.resize(top_words);
    }
    paracel_dump_dict(best, "lda_topics_");
    paracel::dict_type<string, int> totals;
    for (int k = 0; k < topics; ++k) totals[topic_keys[k]] = sum[k];
    paracel_dump_dict(totals, "topic_counts_");
  }

 private:
  counts_t zeros() {
    counts_t delta;
    for (auto& word : words) delta[word].assign(topics, 0);
    return delta;
  }
  void push(const counts_t& delta, const vector<int>& sum_delta) {
    if (!delta.empty()) paracel_bupdate_multi(delta, handle_file, "gLDA_word_update");
    paracel_bupdate_multi(topic_keys, sum_delta, handle_file, "gLDA_sum_topic_update");
    paracel_sync();
  }
  void pull() {
    paracel_read_multi(words, word_cnt);
    sum = paracel_read_multi<int>(topic_keys);
  }
  void sample(vector<std::pair<string, int>>& doc, counts_t& delta, vector<int>& sum_delta) {
    vector<int> doc_cnt(topics, 0);
    for (auto& token : doc) doc_cnt[token.second] += 1;
    for (auto& token : doc) {
      auto& counts = word_cnt[token.first];
      auto& change = delta[token.first];
      auto add = [&](int n) {
        int k = token.second;
        doc_cnt[k] += n;
        counts[k] += n;
        sum[k] += n;
        change[k] += n;
        sum_delta[k] += n;
      };
      add(-1);
      vector<double> p(topics);
      for (int k = 0; k < topics; ++k) p[k] = (doc_cnt[k] + alpha) * (counts[k] + beta) / (sum[k] + vocabulary * beta);
      token.second = std::discrete_distribution<int>(p.begin(), p.end())(random);
      add(1);
    }
  }

  string input, handle_file;
  double alpha, beta;
  int topics, iters;
  size_t top_words;
  int vocabulary = 0;
  std::mt19937 random;
  vector<vector<std::pair<string, int>>> docs;
  paracel::list_type<string> words, topic_keys;
  counts_t word_cnt;
  vector<int> sum;
};

}  // namespace alg
}  // namespace paracel

int main(int argc, char* argv[]) {
  paracel::main_env comm_main_env(argc, argv);
  paracel::Comm comm(MPI_COMM_WORLD);
  google::SetUsageMessage("[options]\n\t--server_info\n\t--cfg_file\n");
  google::ParseCommandLineFlags(&argc, &argv, true);

  paracel::json_parser pt(FLAGS_cfg_file);
  paracel::alg::gLDA solver(comm, FLAGS_server_info, pt.check_parse<string>("input"), pt.parse<string>("output"),
                            pt.check_parse<string>("update_lib"), pt.parse<double>("alpha"), pt.parse<double>("beta"),
                            pt.parse<int>("k_topics"), pt.parse<int>("iters"), pt.parse<int>("top_words"));
  solver.solve();
  solver.dump_result();
  return 0;
}
