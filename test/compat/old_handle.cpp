// SPDX-License-Identifier: BSD-3-Clause
//
// A plug-in in the style of Paracel 0.3: update functions and filters that use the key, or key and value.
#include <cstddef>
#include <string>
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
extern paracel::update_result links_updater;
extern paracel::update_result sum_updater;
extern paracel::update_result max_updater;
extern paracel::update_result min_updater;
extern paracel::filter_with_key_result score_filter;
extern paracel::filter_with_key_result name_filter;
extern paracel::filter_result large_filter;
}

static vector<pair<node_t, double>> join(const vector<pair<node_t, double>>& a, const vector<pair<node_t, double>>& b) {
  vector<pair<node_t, double>> r(a);
  r.insert(r.end(), b.begin(), b.end());
  return r;
}
static double sum(const double& a, const double& b) { return a + b; }
static double max(double a, double b) { return a > b ? a : b; }
static double min(double a, double b) { return a < b ? a : b; }

static bool is_score(const string& key) { return paracel::startswith(key, "score_"); }
static bool is_name(const string& key) { return paracel::endswith(key, "_name"); }
static bool is_large(const string& key, const double& value) { return is_score(key) && value >= 10.; }

paracel::update_result links_updater = paracel::update_proxy(join);
paracel::update_result sum_updater = paracel::update_proxy(sum);
paracel::update_result max_updater = paracel::update_proxy(max);
paracel::update_result min_updater = paracel::update_proxy(min);
paracel::filter_with_key_result score_filter = paracel::filter_with_key_proxy(is_score);
paracel::filter_with_key_result name_filter = paracel::filter_with_key_proxy(is_name);
paracel::filter_result large_filter = paracel::filter_proxy(is_large);
