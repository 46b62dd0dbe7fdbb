// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include <paracel/paralg.hpp>

#include "test/support/cluster.hpp"

namespace paracel::test {

/// Number of requests of each verb that the shards of a job have received.
inline std::map<std::string, std::int64_t> requests_at(cluster& c) {
  std::map<std::string, std::int64_t> all;
  for (std::size_t s = 0; s < c.members().servers.size(); ++s) {
    const auto stats = nlohmann::json::parse(c.node(s).object().stats_json());
    for (const auto& shard : stats["shards"])
      for (const auto& [verb, n] : shard["requests"].items()) all[verb] += n.template get<std::int64_t>();
  }
  return all;
}

/// Runs `f(paralg&)` in four workers, with two servers of two threads each; under SSP with a staleness of 2.
/// Returns: the requests that they made.
template <class F>
std::map<std::string, std::int64_t> run_four_workers(consistency_model model, int rounds, const F& f) {
  cluster c({.workers = 4, .servers = 2, .threads = 2});
  c.run([&](Comm comm) {
    paralg a("", comm, "", rounds, model == consistency_model::bsp ? 0 : 2, true);
    a.set_consistency(model);
    f(a);
  });
  return requests_at(c);
}

}  // namespace paracel::test
