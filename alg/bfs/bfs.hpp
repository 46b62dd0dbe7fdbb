// SPDX-License-Identifier: BSD-3-Clause
//
// Breadth-first search as a vertex program: the level of a vertex is the number of edges of a shortest path from the
// source.
//
// A vertex that receives a message for the first time in superstep s has level s; it notifies its targets and halts.
// Messages carry no data, so only the set of reached vertices is sent.
//
// Source: E. Moore, "The shortest path through a maze", 1959; G. Malewicz et al., "Pregel", SIGMOD 2010.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <paracel/distributed_graph.hpp>
#include <paracel/pregel.hpp>

#include "alg/common/graph_base.hpp"

namespace paracel::alg {

struct bfs_program {
  static constexpr std::uint32_t unreached = ~std::uint32_t{0};
  using value_type = std::uint32_t;  // the level
  struct message_type {};
  std::uint64_t source = 0;
  static void combine(message_type&, const message_type&) {}
  template <class Vertex>
  void compute(Vertex& v, std::span<const message_type> messages) {
    v.vote_to_halt();
    const bool begins = v.superstep() == 0 && v.number() == source;
    if (v.value() != unreached || (messages.empty() && !begins)) return;
    v.value() = static_cast<std::uint32_t>(v.superstep());
    v.send_to_targets({});
  }
};

struct bfs_result {
  std::vector<std::uint32_t> levels;  ///< of the own vertices; bfs_program::unreached if not reached
  std::uint64_t reached = 0;          ///< over all workers, the source included
  std::uint64_t depth = 0;            ///< the greatest level
  std::uint64_t sum_of_levels = 0;
};

/// `source`: a vertex number. `resume`: from a checkpoint in options.checkpoint_folder. A collective.
bfs_result breadth_first_levels(Comm comm, const distributed_graph& graph, std::uint64_t source,
                                const pregel_options& options = {}, bool resume = false);

struct bfs_settings : graph_settings {
  explicit bfs_settings(const config& from)
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

config_schema bfs_schema();

/// Reads the graph, searches, writes level_<rank>.
class breadth_first_search : public paralg {
 public:
  breadth_first_search(Comm comm, const std::string& server_info, const bfs_settings& settings)
      : paralg(server_info, std::move(comm), settings.output), settings_(settings) {}
  void solve() override;

 private:
  bfs_settings settings_;
};

}  // namespace paracel::alg
