// SPDX-License-Identifier: BSD-3-Clause
//
// What searches in supersteps share: options, checkpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include <paracel/distributed_graph.hpp>
#include <paracel/pregel_checkpoint.hpp>

namespace paracel::alg {

struct search_options {
  std::string checkpoint_folder{};     ///< empty: no checkpoints
  std::uint64_t checkpoint_every = 0;  ///< supersteps between checkpoints; 0: none
  bool resume = false;                 ///< from a checkpoint in that folder, if there is one
  /// Called on every worker after each superstep: its number, and the vertices visited in it by all workers.
  std::function<void(std::uint64_t superstep, std::uint64_t visited)> watch{};
};

/// Runs supersteps to the end. A collective. `identity`: of the computation (pregel_identity). Search has
///   step(), done(), superstep() and visited() as level_search; save(byte_vector&), restore(byte_reader&)
template <class Search>
void run_search(Comm comm, const distributed_graph& graph, std::uint64_t identity, const search_options& options,
                Search& search) {
  superstep_checkpoints checkpoints(std::move(comm), graph);
  checkpoints.identify(identity);
  if (options.resume) {
    if (const auto state = checkpoints.restore(options.checkpoint_folder)) {
      byte_reader in(*state);
      search.restore(in);
    }
  }
  while (!search.done()) {
    search.step();
    if (options.watch) options.watch(search.superstep() - 1, search.visited());
    if (search.done() || options.checkpoint_every == 0 || search.superstep() % options.checkpoint_every != 0) continue;
    byte_vector state;
    search.save(state);
    checkpoints.save(options.checkpoint_folder, search.superstep(), state);
  }
  checkpoints.remove();
}

}  // namespace paracel::alg
