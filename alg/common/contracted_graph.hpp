// SPDX-License-Identifier: BSD-3-Clause
//
// A graph of what is left when each worker has contracted what it could alone: its vertices are the workers' groups of
// vertices, its edges lead from groups here to groups elsewhere.
#pragma once

#include <cstdint>
#include <vector>

#include <paracel/comm.hpp>
#include <paracel/distributed_graph.hpp>

namespace paracel::alg {

/// An edge from a group of this worker (0, 1, ...) to a group with that number among those of all workers.
struct contracted_edge {
  std::uint32_t from = 0;
  std::uint64_t to = 0;
};

enum class link_rule {
  out_only,   ///< `out` as given
  both_ways,  ///< `out` as given, `in` what the other workers say
  symmetric,  ///< each link in both directions, in `out`
};

/// Numbers for `groups` groups here: worker w has [first[w], first[w + 1]). A collective.
std::vector<std::uint64_t> number_groups(Comm comm, std::uint64_t groups);

/// The graph of these links; links that are there twice become one. No ids. A collective.
/// Cost: with `both_ways` and `symmetric` 12 bytes a link travel.
distributed_graph graph_of_links(Comm comm, const std::vector<std::uint64_t>& first,
                                 const std::vector<contracted_edge>& links, link_rule rule);

}  // namespace paracel::alg
