// SPDX-License-Identifier: BSD-3-Clause
//
// The graph that remains when each worker has contracted its own part: its vertices are the workers' groups of
// vertices, its edges lead from groups of this worker to groups of others.
#pragma once

#include <cstdint>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/distributed_graph.hpp>

namespace paracel::alg {

/// An edge from a group of this worker (0, 1, ...) to a group by its global number.
struct contracted_edge {
  std::uint32_t from = 0;
  std::uint64_t to = 0;
};

enum class edge_rule {
  out_only,   ///< `out` as given
  both_ways,  ///< `out` as given, `in` from the other workers' edges
  symmetric,  ///< each edge in both directions, in `out`
};

/// Numbers the groups globally: worker w has [first[w], first[w + 1]). A collective.
std::vector<std::uint64_t> number_groups(Comm comm, std::uint64_t groups);

/// The graph of these edges; parallel edges are merged. It has no ids. A collective.
/// Cost: with `both_ways` and `symmetric`, 12 bytes an edge are sent.
distributed_graph contracted_graph(Comm comm, const std::vector<std::uint64_t>& first,
                                   const std::vector<contracted_edge>& links, edge_rule rule);

}  // namespace paracel::alg
