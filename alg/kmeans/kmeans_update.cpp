// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel's functions for kmeans: they add up the workers' parts of the centres, and concatenate the points of each
// cluster.
#include <cstddef>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include <paracel/update.hpp>

extern "C" {
extern paracel::update_result local_update_kmeans_clusters;
extern paracel::update_result local_update_kmeans_groups;
}

namespace {

using centres = std::vector<std::vector<double>>;
using groups = std::unordered_map<int, std::vector<std::string>>;

void add(centres& value, const centres& part) {
  if (part.size() != value.size()) throw std::runtime_error("the number of centres differs");
  for (std::size_t c = 0; c < value.size(); ++c) {
    if (part[c].size() != value[c].size()) throw std::runtime_error("the number of coordinates differs");
    for (std::size_t j = 0; j < value[c].size(); ++j) value[c][j] += part[c][j];
  }
}

void join(groups& value, const groups& part) {
  for (const auto& [cluster, points] : part) value[cluster].insert(value[cluster].end(), points.begin(), points.end());
}

}  // namespace

paracel::update_result local_update_kmeans_clusters = paracel::update_proxy(add);
paracel::update_result local_update_kmeans_groups = paracel::update_proxy(join);
