// SPDX-License-Identifier: BSD-3-Clause
//
// Checkpoints of vertex programs: the identity of a computation, and the files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/distributed_graph.hpp>

namespace paracel {

/// A number that identifies a computation, made of its name and its arguments in order.
std::uint64_t pregel_identity(std::string_view name, std::initializer_list<std::uint64_t> arguments = {});

/// A number that identifies a graph, made of its edges, their weights and the ids of its vertices; the same on every
/// worker and for any number of workers. A collective. Cost: O(own edges), 8 bytes a worker.
std::uint64_t graph_identity(Comm comm, const distributed_graph& graph);

namespace pregel_detail {

/// What a checkpoint must match to be restored.
struct checkpoint_shape {
  std::uint64_t workers = 0, rank = 0, vertices = 0, own = 0, edges = 0, value_bytes = 0, message_bytes = 0,
                aggregate_bytes = 0, identity = 0;
  bool operator==(const checkpoint_shape&) const = default;
};

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

}  // namespace paracel
