// SPDX-License-Identifier: BSD-3-Clause
//
// Options and checkpoints of algorithms that search in supersteps.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include <paracel/distributed_graph.hpp>
#include <paracel/pregel_checkpoint.hpp>
#include <paracel/resumable_loop.hpp>

namespace paracel::alg {

/// Makes the loop refuse to resume with a graph of another size, whose state per vertex would not fit. Call it before
/// any `keep`. Returns: the loop. Lifetime: the graph must outlive the loop.
resumable_loop& keep_size(resumable_loop& loop, const distributed_graph& graph);

struct search_options {
  std::string checkpoint_folder{};     ///< empty: no checkpoints
  std::uint64_t checkpoint_every = 0;  ///< supersteps between checkpoints; 0: none
  bool resume = false;                 ///< from a checkpoint in that folder, if there is one
  paralg* job = nullptr;               ///< supersteps are resumable iterations of this job; null: they are not
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
  if (options.checkpoint_every != 0) checkpoints.prepare();
  auto first = search.superstep();
  resumable_loop loop(options.job);
  if (options.job != nullptr) {
    checkpoints.keep(keep_size(loop, graph).keep("first", first));
    loop.keep_with(
        [&](saved_state& to, const std::string& prefix) {
          byte_vector state;
          search.save(state);
          pregel_detail::put_kept(to, prefix + "search", std::move(state));
        },
        [&](const saved_state& from, const std::string& prefix) {
          const auto state = pregel_detail::get_kept(from, prefix + "search");
          byte_reader in(state);
          search.restore(in);
        });
  }
  if (search.done()) loop.stop();
  while (loop.next()) {
    // Here, after the previous superstep has been committed, so that the save can be repeated.
    if (options.checkpoint_every != 0 && search.superstep() != first &&
        search.superstep() % options.checkpoint_every == 0) {
      byte_vector state;
      search.save(state);
      checkpoints.save(options.checkpoint_folder, search.superstep(), state);
    }
    search.step();
    if (options.watch) options.watch(search.superstep() - 1, search.visited());
    if (search.done()) loop.stop();
  }
  checkpoints.remove();
}

}  // namespace paracel::alg
