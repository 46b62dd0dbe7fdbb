// SPDX-License-Identifier: BSD-3-Clause
//
// Single-source shortest paths as a vertex program: d(v) = least sum of weights on a path from the source to v; weights
// must not be negative. A vertex whose distance fell sends its targets the new distances; a worker combines messages to
// the same vertex by their minimum.
//
// Source: R. Bellman, "On a routing problem", 1958; G. Malewicz et al., "Pregel", SIGMOD 2010, section 5.2.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <paracel/distributed_graph.hpp>
#include <paracel/pregel.hpp>

#include "alg/common/graph_base.hpp"

namespace paracel::alg {

struct sssp_program {
  using value_type = double;  // the distance; the caller initialises it to infinity
  using message_type = double;
  std::uint64_t source = 0;
  static void combine(double& into, double more) {
    if (more < into) into = more;
  }
  template <class Vertex>
  void compute(Vertex& v, std::span<const double> messages) {
    v.vote_to_halt();
    bool news = false;
    if (v.superstep() == 0 && v.number() == source) {
      v.value() = 0;
      news = true;
    }
    for (const auto m : messages) {
      if (m >= v.value()) continue;
      v.value() = m;
      news = true;
    }
    if (!news) return;
    const auto targets = v.targets();
    for (std::size_t e = 0; e < targets.size(); ++e) v.send(targets[e], v.value() + v.weight(e));
  }
};

struct sssp_result {
  std::vector<double> distances;  ///< of the own vertices; infinity if not reached
  std::uint64_t reached = 0;      ///< over all workers, the source included
  double farthest = 0;
  double sum_of_distances = 0;
  std::uint64_t supersteps = 0;
};

/// The graph has weights >= 0. `source`: a vertex number. A collective.
sssp_result shortest_paths(Comm comm, const distributed_graph& graph, std::uint64_t source,
                           const pregel_options& options = {}, bool resume = false);

struct sssp_settings : graph_settings {
  explicit sssp_settings(const config& from)
      : graph_settings(from),
        source(from.get<std::string>("source")),
        source_place(from.place_of("source")),
        directed(from.get<bool>("directed")) {
    read_checkpoint_keys(from, *this);
  }
  std::string source;
  std::string source_place;
  bool directed;
};

config_schema sssp_schema();

/// Reads the graph, computes the distances, writes distance_<rank>.
class single_source_shortest_paths : public paralg {
 public:
  single_source_shortest_paths(Comm comm, const std::string& server_info, const sssp_settings& settings)
      : paralg(server_info, std::move(comm), settings.output), settings_(settings) {}
  void solve() override;

 private:
  sssp_settings settings_;
};

}  // namespace paracel::alg
