// SPDX-License-Identifier: BSD-3-Clause
//
// Communities by label propagation. Every vertex starts with its own label; in a round all vertices simultaneously take
// the most frequent label of their neighbours, ties by smallest. Stops when nothing changes, when the labels equal
// those of two rounds ago (on bipartite parts they oscillate), or after `rounds`. The graph is treated as undirected
// and simple; self-loops are ignored; a vertex without neighbours keeps its label.
//
//     modularity Q = (1/m) sum_c ( edges inside c - (degrees of c)^2 / (4 m) )
//
// Source: U. Raghavan, R. Albert, S. Kumara, "Near linear time algorithm to detect community structures", Phys. Rev. E
// 2007; M. Newman, M. Girvan, Phys. Rev. E 2004 (modularity).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <paracel/distributed_graph.hpp>

#include "alg/common/graph/graph_base.hpp"

namespace paracel::alg {

/// The most frequent element, ties by smallest; sorts `labels`, which must not be empty.
std::uint64_t most_frequent(std::vector<std::uint64_t>& labels);

struct label_propagation_result {
  std::vector<std::uint64_t> labels;  ///< of the own vertices: vertex numbers
  std::uint64_t rounds = 0;
  enum class ending { fixed_point, cycle, rounds } ended = ending::rounds;
  double modularity = 0;  ///< 0 without edges
};

/// The graph is undirected, without self-loops. A collective. Cost: 8 bytes a ghost and two numbers for each round.
/// `watch(round, changed)` is called on every worker. `job`: rounds are iterations of it (resumable_loop.hpp).
label_propagation_result propagate_labels(Comm comm, const distributed_graph& graph, std::uint64_t rounds,
                                          const std::function<void(std::uint64_t, std::uint64_t)>& watch = nullptr,
                                          paralg* job = nullptr);

/// Modularity of any labels that are vertex numbers. A collective.
double modularity_of(Comm comm, const distributed_graph& graph, std::span<const std::uint64_t> labels,
                     std::span<const std::uint64_t> ghost_labels);

struct label_propagation_settings : graph_settings {
  static constexpr auto program = "label_propagation";
  static constexpr auto summary = "communities by label propagation";
  void keys(key_list& k) {
    graph_settings::keys(k);
    k("rounds", rounds, "maximum number of rounds").at_least(0).at_most(1000000000);
  }

  int rounds = 100;
};

/// Reads the graph, finds the labels, writes label_<rank>.
class label_propagation : public paralg {
 public:
  using settings_type = label_propagation_settings;

  label_propagation(Comm comm, const std::string& server_info, const label_propagation_settings& settings)
      : paralg(server_info, std::move(comm), settings.output), settings_(settings) {}
  void solve() override;

 private:
  label_propagation_settings settings_;
};

}  // namespace paracel::alg
