// SPDX-License-Identifier: BSD-3-Clause
//
// The plug-in of the programs in this folder, in the style of Paracel 0.3, which had one per algorithm.
#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "paracel_types.hpp"
#include "proxy.hpp"
#include "utils.hpp"

using std::pair;
using std::string;
using std::vector;
using node_t = paracel::default_id_type;

extern "C" {
extern paracel::update_result lr_theta_update;
extern paracel::update_result ridge_theta_update;
extern paracel::update_result local_update_kmeans_clusters;
extern paracel::update_result local_update_kmeans_groups;
extern paracel::update_result max_updater;
extern paracel::update_result init_updater;
extern paracel::filter_with_key_result pr_filter;
extern paracel::update_result wc_updater;
extern paracel::filter_with_key_result wc_filter;
extern paracel::update_result smallest_error_updater;
extern paracel::filter_with_key_result small_errors_filter;
extern paracel::update_result cnt_updater;
extern paracel::update_result mf_fac_updater;
extern paracel::update_result mf_bias_updater;
extern paracel::filter_with_key_result mf_ubias_filter;
extern paracel::filter_with_key_result mf_ibias_filter;
extern paracel::filter_with_key_result mf_W_filter;
extern paracel::filter_with_key_result mf_H_filter;
extern paracel::update_result svd_updater;
extern paracel::update_result gLDA_dict_update;
extern paracel::update_result gLDA_word_update;
extern paracel::update_result gLDA_sum_topic_update;
extern paracel::filter_with_key_result gLDA_dump_filter;
}

template <class T>
static vector<T> add(vector<T> value, const vector<T>& delta) {
  for (size_t i = 0; i < value.size(); ++i) value[i] += delta[i];
  return value;
}
static double add_number(double value, double delta) { return value + delta; }
static int add_count(int value, int delta) { return value + delta; }

static vector<vector<double>> add_rows(vector<vector<double>> value, const vector<vector<double>>& delta) {
  for (size_t i = 0; i < value.size(); ++i) value[i] = add(value[i], delta[i]);
  return value;
}
using groups_t = std::unordered_map<int, vector<string>>;
static groups_t join_groups(groups_t value, const groups_t& more) {
  for (auto& kv : more) value[kv.first].insert(value[kv.first].end(), kv.second.begin(), kv.second.end());
  return value;
}
static double greater_of(double a, double b) { return a > b ? a : b; }
using links_t = vector<pair<node_t, double>>;
static links_t join_links(links_t value, const links_t& more) {
  value.insert(value.end(), more.begin(), more.end());
  return value;
}
using counts_t = std::unordered_map<string, int>;
static counts_t add_words(counts_t value, const counts_t& more) {
  for (auto& kv : more) value[kv.first] += kv.second;
  return value;
}
using offer_t = pair<node_t, double>;
static offer_t smaller_of(const offer_t& a, const offer_t& b) {  // ties: the smaller item
  return b.second < a.second || (b.second == a.second && b.first < a.first) ? b : a;
}

static bool is_pr(const string& key) { return paracel::endswith(key, "_pr"); }
static bool is_words(const string& key) { return paracel::startswith(key, "key_"); }
static bool is_error(const string& key) { return paracel::startswith(key, "err_"); }
static bool is_ubias(const string& key) { return paracel::startswith(key, "usr_bias_"); }
static bool is_ibias(const string& key) { return paracel::startswith(key, "item_bias_"); }
static bool is_W(const string& key) { return paracel::startswith(key, "W_"); }
static bool is_H(const string& key) { return paracel::startswith(key, "H_"); }

paracel::update_result lr_theta_update = paracel::update_proxy(add<double>);
paracel::update_result ridge_theta_update = paracel::update_proxy(add<double>);
paracel::update_result local_update_kmeans_clusters = paracel::update_proxy(add_rows);
paracel::update_result local_update_kmeans_groups = paracel::update_proxy(join_groups);
paracel::update_result max_updater = paracel::update_proxy(greater_of);
paracel::update_result init_updater = paracel::update_proxy(join_links);
paracel::filter_with_key_result pr_filter = paracel::filter_with_key_proxy(is_pr);
paracel::update_result wc_updater = paracel::update_proxy(add_words);
paracel::filter_with_key_result wc_filter = paracel::filter_with_key_proxy(is_words);
paracel::update_result smallest_error_updater = paracel::update_proxy(smaller_of);
paracel::filter_with_key_result small_errors_filter = paracel::filter_with_key_proxy(is_error);
paracel::update_result cnt_updater = paracel::update_proxy(add_count);
paracel::update_result mf_fac_updater = paracel::update_proxy(add<double>);
paracel::update_result mf_bias_updater = paracel::update_proxy(add_number);
paracel::filter_with_key_result mf_ubias_filter = paracel::filter_with_key_proxy(is_ubias);
paracel::filter_with_key_result mf_ibias_filter = paracel::filter_with_key_proxy(is_ibias);
paracel::filter_with_key_result mf_W_filter = paracel::filter_with_key_proxy(is_W);
paracel::filter_with_key_result mf_H_filter = paracel::filter_with_key_proxy(is_H);
paracel::update_result svd_updater = paracel::update_proxy(add<double>);
paracel::update_result gLDA_dict_update = paracel::update_proxy(add_words);
paracel::update_result gLDA_word_update = paracel::update_proxy(add<int>);
paracel::update_result gLDA_sum_topic_update = paracel::update_proxy(add_count);
paracel::filter_with_key_result gLDA_dump_filter = paracel::filter_with_key_proxy(is_words);
