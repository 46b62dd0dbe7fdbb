// SPDX-License-Identifier: BSD-3-Clause
//
// Checkpoints of vertex programs: the identity of a computation, and the files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/detail/saved_state.hpp>
#include <paracel/distributed_graph.hpp>
#include <paracel/error.hpp>
#include <paracel/resumable_loop.hpp>

namespace paracel {

/// A number that identifies a computation, derived from its name and its arguments in order.
std::uint64_t pregel_identity(std::string_view name, std::initializer_list<std::uint64_t> arguments = {});

/// A number that identifies a graph, derived from its edges, their weights and the ids of its vertices; the same on
/// every worker and for any number of workers. A collective. Cost: O(own edges), 8 bytes a worker.
std::uint64_t graph_identity(Comm comm, const distributed_graph& graph);

namespace pregel_detail {

/// What a checkpoint must match to be restored.
struct checkpoint_shape {
  std::uint64_t workers = 0, rank = 0, vertices = 0, own = 0, edges = 0, value_bytes = 0, message_bytes = 0,
                aggregate_bytes = 0, identity = 0;
  bool operator==(const checkpoint_shape&) const = default;
};

/// The state as a value of a resumable_loop. Throws (get_kept): error when it has none.
void put_kept(saved_state& to, const std::string& name, byte_vector state);
byte_vector get_kept(const saved_state& from, const std::string& name);

/// <folder>/pregel_<superstep>_<rank>, written atomically: to a temporary file, synced to disk and renamed.
/// Throws: error that names the file.
void write_checkpoint(const std::string& folder, std::uint64_t superstep, const checkpoint_shape& shape,
                      std::span<const std::byte> state);
/// Supersteps of the complete files of this rank. Throws: error that names the file when one is malformed.
std::vector<std::uint64_t> find_checkpoints(const std::string& folder, const checkpoint_shape& shape);
byte_vector read_checkpoint(const std::string& folder, std::uint64_t superstep, const checkpoint_shape& shape);
/// Removes the files of this rank, except those of that superstep.
void remove_checkpoints(const std::string& folder, std::uint64_t rank, std::optional<std::uint64_t> but = {});

}  // namespace pregel_detail

/// The checkpoints of a computation in supersteps on a graph: each worker writes its own file for each of them.
/// Lifetime: the graph must outlive it. Thread-safety: none. Every call is a collective.
class superstep_checkpoints {
 public:
  superstep_checkpoints(Comm comm, const distributed_graph& graph) : comm_(std::move(comm)), graph_(graph) {}

  /// Distinguishes these checkpoints from those of other computations on the same graph (see pregel_identity); 0 if
  /// never called. Call it before the first `save` or `restore`.
  void identify(std::uint64_t computation) noexcept { computation_ = computation; }
  /// Sizes that must match when a checkpoint is restored; 0 if never called.
  void expect_sizes(std::uint64_t value, std::uint64_t message, std::uint64_t aggregate) noexcept {
    value_bytes_ = value;
    message_bytes_ = message;
    aggregate_bytes_ = aggregate;
  }

  /// Runs the collectives of the first `save` now, before a loop: a worker's replacement repeats those, but not a
  /// loop's.
  void prepare() { (void)shape(); }
  /// Keeps in `loop` which folders `remove` has to clean up.
  void keep(resumable_loop& loop) { loop.keep("folders", folders_); }

  /// Other checkpoints in the folder are removed once every worker has written this one.
  void save(const std::string& folder, std::uint64_t superstep, std::span<const std::byte> state) {
    pregel_detail::write_checkpoint(folder, superstep, shape(), state);
    folders_.insert(folder);
    comm_.synchronize();
    pregel_detail::remove_checkpoints(folder, comm_.get_rank(), superstep);
  }

  /// The state in the newest checkpoint that every worker has; empty: there is none.
  /// Throws: error, on every worker, when a checkpoint belongs to another graph, another computation or another number
  /// of workers.
  std::optional<byte_vector> restore(const std::string& folder) {
    const auto own_shape = shape();
    std::vector<std::uint64_t> mine;
    std::string wrong;
    try {
      mine = pregel_detail::find_checkpoints(folder, own_shape);
    } catch (const error& e) {
      wrong = e.what();
    }
    for (const auto& text : comm_.allgather(wrong))
      if (!text.empty()) throw error(text);
    const auto all = comm_.allgather(mine);
    std::optional<std::uint64_t> newest;
    for (const auto s : mine) {
      const bool everywhere =
          std::all_of(all.begin(), all.end(), [&](const auto& list) { return std::ranges::count(list, s) > 0; });
      if (everywhere && (!newest || s > *newest)) newest = s;
    }
    if (!newest) return std::nullopt;
    folders_.insert(folder);
    return pregel_detail::read_checkpoint(folder, *newest, own_shape);
  }

  /// Removes all checkpoints in the folders used so far.
  void remove() {
    if (folders_.empty()) return;
    comm_.synchronize();
    for (const auto& folder : folders_) pregel_detail::remove_checkpoints(folder, comm_.get_rank());
    folders_.clear();
  }

 private:
  /// The first call visits every edge.
  [[nodiscard]] pregel_detail::checkpoint_shape shape() {
    if (!graph_identity_) graph_identity_ = graph_identity(comm_, graph_);
    return {comm_.get_size(), comm_.get_rank(),   graph_.vertices_total(),
            graph_.own(),     graph_.edges_total, value_bytes_,
            message_bytes_,   aggregate_bytes_,   pregel_identity("", {computation_, *graph_identity_})};
  }

  Comm comm_;
  const distributed_graph& graph_;
  std::uint64_t computation_ = 0, value_bytes_ = 0, message_bytes_ = 0, aggregate_bytes_ = 0;
  std::optional<std::uint64_t> graph_identity_;
  std::set<std::string> folders_;
};

}  // namespace paracel
