// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel's functions for pagerank: lists of links are joined, and the scores are under keys that end in _pr.
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <paracel/update.hpp>

extern "C" {
extern paracel::update_result init_updater;
extern paracel::filter_result pr_filter;
}

namespace {

using links = std::vector<std::pair<std::uint64_t, double>>;

void join(links& value, const links& more) { value.insert(value.end(), more.begin(), more.end()); }
bool is_score(std::string_view key) { return key.ends_with("_pr"); }

}  // namespace

paracel::update_result init_updater = paracel::update_proxy(join);
paracel::filter_result pr_filter = paracel::filter_proxy(is_score);
