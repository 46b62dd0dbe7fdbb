// SPDX-License-Identifier: BSD-3-Clause
//
// A graph partitioned over the workers by vertex, and the exchange of values of shared vertices.
//
// Vertices are numbered 0, 1, ... in ascending order of their ids, over all workers; worker w owns the numbers
// [first[w], first[w + 1]), cut so that the edges are balanced. A number therefore does not depend on the number of
// workers. On a worker, vertices have local indices: its own ones 0 ... own() - 1 in number order, then its ghosts (the
// vertices of other workers that local edges lead to), in number order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/detail/adjacency.hpp>
#include <paracel/id_list.hpp>
#include <paracel/sparse.hpp>

namespace paracel {

/// This worker's part of a graph.
struct distributed_graph {
  std::vector<std::uint64_t> first{0, 0};  ///< one more element than workers
  std::size_t rank = 0;
  id_list ids;                        ///< of the own vertices, ascending
  std::vector<std::uint64_t> ghosts;  ///< numbers, ascending
  /// Edges that leave own vertices; for an undirected graph all their edges, or, with `once`, about half of them.
  /// Targets are local indices, ascending by number.
  adjacency out;
  adjacency in;                   ///< edges that enter own vertices, if requested
  std::uint64_t edges_total = 0;  ///< edges of all workers; in an undirected graph each pair counts once
  bool directed = true;
  bool once = false;  ///< undirected, with each edge stored at one of its ends only

  [[nodiscard]] std::size_t own() const noexcept { return first[rank + 1] - first[rank]; }
  [[nodiscard]] std::uint64_t vertices_total() const noexcept { return first.back(); }
  /// The number of a local index.
  [[nodiscard]] std::uint64_t number(std::size_t local) const {
    return local < own() ? first[rank] + local : ghosts[local - own()];
  }
  /// The worker that owns a number. Cost: O(log workers)
  [[nodiscard]] std::size_t owner(std::uint64_t number) const;

  /// As sparse_rows::visit_parts.
  template <class Parts, class Self>
  static void visit_parts(Parts&& parts, Self& self) {
    parts(self.first);
    parts(self.rank);
    id_list::visit_parts(parts, self.ids);
    parts(self.ghosts);
    for (auto* side : {&self.out, &self.in}) {
      parts(side->begin);
      parts(side->target);
      parts(side->weight);
    }
    parts(self.edges_total);
    parts(self.directed);
    parts(self.once);
  }
};

struct graph_options {
  entry_options entries;    ///< `rows_also`: the vertices; duplicates are summed, `transpose` reverses every edge
  bool weighted = false;    ///< false: weights are not kept
  bool undirected = false;  ///< each edge in both directions; a-b and b-a are one edge
  bool self_loops = true;   ///< false: they are dropped
  bool incoming = false;    ///< fill `in`; ghosts are then those of both directions
  /// For an undirected graph: stores each edge at one of its ends only (either), in half the memory. Not with
  /// `incoming`.
  bool once = false;
  /// With `once`: a graph with more entries than this, counted before duplicates are combined, or with 2^32 vertices,
  /// is stored in both directions all the same.
  std::uint64_t once_limit = std::numeric_limits<std::uint64_t>::max();
};

/// Loads a graph. Every worker must call it with the same arguments.
/// Throws: data_error file:line:column, the same on every worker; with a cache as load_sparse.
/// Blocks: a collective. Cost: each edge is sent once per stored direction, in rounds of at most 64 MB a worker.
distributed_graph load_graph(Comm comm, const std::vector<std::string>& files, const graph_options& options = {});

/// The halo: which own vertices are ghosts on which workers. Built once, used every round.
/// Thread-safety: none. Every call is a collective.
class halo {
 public:
  /// Cost: one all-to-all with 8 bytes a ghost.
  halo(Comm comm, const distributed_graph& graph);

  /// Sets ghost[g] to the owner's value of graph.ghosts[g]. T: trivially copyable.
  /// Cost: one all-to-all with sizeof(T) bytes a ghost.
  template <class T>
  void pull(std::span<const T> own, std::span<T> ghost) {
    for (std::size_t w = 0; w < shared_.size(); ++w) {
      blocks_[w].resize(shared_[w].size() * sizeof(T));
      auto* to = blocks_[w].data();
      for (const auto v : shared_[w]) {
        std::memcpy(to, &own[v], sizeof(T));
        to += sizeof(T);
      }
    }
    const auto got = comm_.alltoall_bytes(blocks_);
    for (std::size_t w = 0; w < got.size(); ++w) {
      if (!got[w].empty()) std::memcpy(ghost.data() + ghost_first_[w], got[w].data(), got[w].size());
    }
  }

  /// The same for rows of `width` values, those of a vertex contiguous. Every worker must pass the same width.
  /// Cost: one all-to-all with width * sizeof(T) bytes a ghost.
  template <class T>
  void pull_rows(std::span<const T> own, std::span<T> ghost, std::size_t width) {
    if (width == 0) return;
    const std::size_t bytes = width * sizeof(T);
    for (std::size_t w = 0; w < shared_.size(); ++w) {
      blocks_[w].resize(shared_[w].size() * bytes);
      auto* to = blocks_[w].data();
      for (const auto v : shared_[w]) {
        std::memcpy(to, &own[v * width], bytes);
        to += bytes;
      }
    }
    const auto got = comm_.alltoall_bytes(blocks_);
    for (std::size_t w = 0; w < got.size(); ++w) {
      if (!got[w].empty()) std::memcpy(&ghost[ghost_first_[w] * width], got[w].data(), got[w].size());
    }
  }

  /// The reverse direction: `combine(own value, ghost value)` for each own vertex with the value of each worker that
  /// has it as a ghost, in rank order, so that the result is the same from run to run.
  template <class T, class F>
  void push(std::span<const T> ghost, std::span<T> own, F&& combine) {
    for (std::size_t w = 0; w < shared_.size(); ++w) {
      const auto bytes = std::as_bytes(ghost.subspan(ghost_first_[w], ghost_first_[w + 1] - ghost_first_[w]));
      blocks_[w].assign(bytes.begin(), bytes.end());
    }
    const auto got = comm_.alltoall_bytes(blocks_);
    for (std::size_t w = 0; w < got.size(); ++w) {
      for (std::size_t k = 0; k < shared_[w].size(); ++k) {
        T value;
        std::memcpy(&value, got[w].data() + k * sizeof(T), sizeof(T));
        combine(own[shared_[w][k]], value);
      }
    }
  }

  /// Own vertices that are ghosts of worker w, as local indices in ascending order.
  [[nodiscard]] std::span<const std::uint32_t> shared_with(std::size_t w) const { return shared_[w]; }
  /// Ghosts of worker w are [ghost_first(w), ghost_first(w + 1)) of graph.ghosts.
  [[nodiscard]] std::size_t ghost_first(std::size_t w) const { return ghost_first_[w]; }

 private:
  Comm comm_;
  std::vector<std::vector<std::uint32_t>> shared_;  // by worker
  std::vector<std::size_t> ghost_first_;
  std::vector<byte_vector> blocks_;  // by worker: buffers reused from the last call
};

}  // namespace paracel
