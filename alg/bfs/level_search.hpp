// SPDX-License-Identifier: BSD-3-Clause
//
// Breadth-first search from one vertex, one level per superstep, top-down or bottom-up.
//
// Top-down: each vertex of the frontier, which is the last level, assigns the next level to its targets that have none;
// targets on other workers are reported to their owners. Bottom-up: owners first announce which ghosts are in the
// frontier; then each vertex without a level looks for a vertex of the frontier among the sources of its edges. That is
// less work when the frontier is large, because each vertex stops at the first hit. It needs the incoming edges of a
// vertex: an undirected graph, or one loaded with `incoming`; other graphs are searched top-down.
//
// Source: E. Moore, "The shortest path through a maze", 1959; S. Beamer, K. Asanovic, D. Patterson,
// "Direction-optimizing breadth-first search", SC 2012: section 5 has the rule for changing the direction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <paracel/distributed_graph.hpp>

#include "alg/common/graph/ghost_sender.hpp"

namespace paracel::alg {

/// Thread-safety: none. Lifetime: the graph must outlive it. Memory: 4 bytes an own vertex, two or three bits a vertex
/// or ghost, and 4 bytes for each vertex of a frontier.
class level_search {
 public:
  static constexpr std::uint32_t unreached = ~std::uint32_t{0};

  /// `source`: a vertex number. A collective.
  level_search(Comm comm, const distributed_graph& graph, std::uint64_t source);

  /// Finds the vertices of the next level; nothing if the search is done. A collective.
  /// Cost: one all-to-all with at most 4 bytes, or a bit, for each ghost that a worker finds for the first time; for
  /// bottom-up a bit for each ghost; a reduction of two numbers if the direction may change.
  void step();
  [[nodiscard]] bool done() const noexcept { return done_; }
  /// Supersteps computed, which is the level of the frontier.
  [[nodiscard]] std::uint32_t superstep() const noexcept { return depth_; }
  /// Size of the frontier from which the last superstep searched, over all workers.
  [[nodiscard]] std::uint64_t visited() const noexcept { return visited_; }
  /// Bottom-up supersteps so far.
  [[nodiscard]] std::uint32_t bottom_up_steps() const noexcept { return bottom_up_steps_; }

  /// Levels of the own vertices.
  [[nodiscard]] const std::vector<std::uint32_t>& values() const noexcept { return levels_; }
  /// Moves the levels out; the object must not be used afterwards.
  [[nodiscard]] std::vector<std::uint32_t> take_values() noexcept { return std::move(levels_); }

  void save(byte_vector& state) const;
  void restore(byte_reader& in);

 private:
  /// Sums over all workers.
  struct totals {
    std::uint64_t vertices = 0, edges = 0;
  };
  void top_down();
  void bottom_up();
  void tell_frontier();
  void find(std::uint32_t own) {
    reached_.add(own);
    levels_[own] = depth_ + 1;
    found_.push_back(own);
  }
  void begin_next();
  void choose_direction(std::uint64_t found);

  Comm comm_;
  const distributed_graph& graph_;
  const adjacency* in_;  // null: top-down only
  halo borders_;
  ghost_sender<no_value> sender_;
  std::vector<std::uint32_t> levels_;
  std::vector<std::uint32_t> frontier_, found_;  // own vertices
  vertex_bits reached_;                          // local indices; a ghost: known to be reached
  vertex_bits in_frontier_;                      // local indices; valid in bottom-up steps only
  std::uint32_t depth_ = 0;
  std::uint32_t bottom_up_steps_ = 0;
  bool bottom_up_ = false;
  bool done_ = false;
  totals frontier_totals_{1, 0};  // as last determined; up to date for a bottom-up step
  std::uint64_t visited_ = 0;     // of all workers
  std::uint64_t unexplored_ = 0;  // edges of all workers that no step has followed
  std::uint64_t most_edges_ = 0;  // the greatest degree, over all workers
};

}  // namespace paracel::alg
