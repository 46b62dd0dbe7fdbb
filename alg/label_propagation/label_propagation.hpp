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

/// Finds the most frequent of some labels, ties by smallest: add them all, then take it.
/// Thread-safety: none. Cost: O(1) a label. Memory: 24 to 40 bytes for each distinct one among those of a vertex.
class label_counts {
 public:
  /// The label occurs `times` more.
  void add(std::uint64_t label, std::uint32_t times = 1) {
    auto& found = slot_of(label);
    if (found.count == 0) {
      found.label = label;
      used_.push_back(static_cast<std::uint32_t>(&found - slots_.data()));
    }
    found.count += times;
    if (found.count > most_ || (found.count == most_ && label < best_)) {
      most_ = found.count;
      best_ = label;
    }
    if (2 * used_.size() > mask_) grow();
  }
  /// The most frequent label of those added since the last call, of which there must be one.
  std::uint64_t take();

 private:
  struct slot {
    std::uint64_t label = 0;
    std::uint32_t count = 0;  // 0: free
  };
  static constexpr unsigned least_bits = 8;

  slot& slot_of(std::uint64_t label) {
    auto at = (label * 0x9e3779b97f4a7c15U) >> shift_;
    while (slots_[at].count != 0 && slots_[at].label != label) at = (at + 1) & mask_;
    return slots_[at];
  }
  void grow();

  std::vector<slot> slots_ = std::vector<slot>(1U << least_bits);  // only the first mask_ + 1 are used: for few labels
  std::size_t mask_ = (1U << least_bits) - 1;                      // few cache lines
  unsigned shift_ = 64 - least_bits;
  std::vector<std::uint32_t> used_;
  std::uint64_t best_ = 0;
  std::uint32_t most_ = 0;
};

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
class label_propagation : public graph_program<label_propagation_settings> {
 public:
  using graph_program::graph_program;
  void solve() override;
};

}  // namespace paracel::alg
