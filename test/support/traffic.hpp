// SPDX-License-Identifier: BSD-3-Clause
//
// What the shards of a cluster have served.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "test/support/cluster.hpp"

namespace paracel::test {

struct traffic {
  std::map<std::string, std::int64_t> requests;  // by verb
  std::int64_t bytes_in = 0;
  std::int64_t bytes_out = 0;
};

/// The shards' counters, summed over the first `servers` servers.
inline traffic traffic_of(cluster& c, std::size_t servers) {
  traffic t;
  for (std::size_t s = 0; s < servers; ++s) {
    const auto stats = nlohmann::json::parse(c.node(s).object().stats_json());
    for (const auto& shard : stats["shards"]) {
      for (const auto& [verb, n] : shard["requests"].items()) t.requests[verb] += n.template get<std::int64_t>();
      t.bytes_in += shard["bytes_in"].template get<std::int64_t>();
      t.bytes_out += shard["bytes_out"].template get<std::int64_t>();
    }
  }
  return t;
}

}  // namespace paracel::test
