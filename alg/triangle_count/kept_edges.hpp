// SPDX-License-Identifier: BSD-3-Clause
//
// Which worker keeps an edge while triangles are counted: the owner of its end of lower degree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <paracel/distributed_graph.hpp>

namespace paracel::alg {

/// Moves each edge of an undirected graph, stored once, to its end of lower degree (ties: of the greater number), as an
/// edge to the other end; ghosts are then the other ends. Returns: degrees of the own vertices. A collective.
/// Cost: twice 4 bytes a ghost, and 8 for each edge that moves to another worker, in all-to-alls of about `round_bytes`
/// a worker; 4 bytes of memory for each edge that is kept.
std::vector<std::uint32_t> keep_at_lower_ends(Comm comm, distributed_graph& graph, std::size_t round_bytes);

}  // namespace paracel::alg
