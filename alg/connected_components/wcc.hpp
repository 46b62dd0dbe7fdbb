// SPDX-License-Identifier: BSD-3-Clause
//
// Weakly connected components: two vertices are in one component if a path of edges joins them, whatever the directions
// of the edges.
//
// Each worker first joins the vertices connected by its own edges (union-find). The remaining graph has these groups as
// vertices and its edges join groups of different workers; a vertex program spreads the least vertex number of each
// component on it. That graph is small, so supersteps are cheap: a group sends one number to each adjacent group. If
// `most_supersteps` do not suffice (a path that alternates between workers needs as many as it has vertices), rank 0
// joins the groups.
//
// Source: R. Tarjan 1975 (union-find); U. Kang, C. Tsourakakis, C. Faloutsos: "PEGASUS", ICDM 2009 (least label).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <paracel/distributed_graph.hpp>
#include <paracel/pregel.hpp>

#include "alg/common/graph/graph_base.hpp"

namespace paracel::alg {

/// Spreads the least label along the edges of a symmetric graph. The caller sets the initial values.
struct least_label_program {
  using value_type = std::uint64_t;
  using message_type = std::uint64_t;
  static void combine(std::uint64_t& into, std::uint64_t more) {
    if (more < into) into = more;
  }
  template <class Vertex>
  void compute(Vertex& v, std::span<const std::uint64_t> messages) {
    bool news = v.superstep() == 0;
    for (const auto m : messages) {
      if (m >= v.value()) continue;
      v.value() = m;
      news = true;
    }
    if (news) v.send_to_targets(v.value());
    v.vote_to_halt();
  }
};

struct wcc_result {
  std::vector<std::uint64_t> labels;  ///< of the own vertices: the least number of a vertex in the component
  std::uint64_t supersteps = 0;
  std::uint64_t groups = 0;  ///< groups left after joining each worker's own edges, of all workers
  bool gathered = false;     ///< rank 0 had to finish the computation
};

/// Graphs of groups have a small diameter (2 to 5 supersteps where it was measured); after so many supersteps the
/// vertex program is unlikely to finish soon.
inline constexpr std::uint64_t most_supersteps = 100;

/// The directions of the edges are ignored. `resume`: from a checkpoint in options.checkpoint_folder. A collective.
wcc_result weak_components(Comm comm, const distributed_graph& graph, pregel_options options = {}, bool resume = false);

struct wcc_settings : graph_settings {
  static constexpr auto program = "wcc";
  static constexpr auto summary = "weakly connected components";
  void keys(key_list& k) {
    graph_settings::keys(k);
    checkpoint_keys(k);
  }
};

/// Reads the graph, finds the components, writes component_<rank>.
class connected_components : public graph_program<wcc_settings> {
 public:
  using graph_program::graph_program;
  void solve() override;
};

}  // namespace paracel::alg
