// SPDX-License-Identifier: BSD-3-Clause
//
// Moves the edges of a graph that is stored with `once` (graph_options) to the end, or both ends, where an algorithm
// needs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <paracel/distributed_graph.hpp>
#include <paracel/exchange.hpp>

namespace paracel::alg {

namespace move_edges_detail {

/// An edge received from the owner of its other end.
struct arrived_edge {
  std::uint32_t at;     // the own vertex that gets it
  std::uint32_t other;  // its other end, as an index among the vertices of the sender; later as a local index
};

/// Sends the edges of own vertices v to ghosts t for which `gives(v, t)`. Returns: the edges received, by sender.
template <class Gives>
std::vector<std::vector<arrived_edge>> send_edges(Comm& comm, const distributed_graph& graph, std::size_t round_bytes,
                                                  Gives& gives) {
  const auto size = comm.get_size();
  const auto own = graph.own();
  std::vector<std::vector<arrived_edge>> arrived(size);
  std::size_t v = 0;
  for (bool more = size > 1; more;) {
    // Block: room | whether more follow (8 bytes) | edge | ...
    std::vector<byte_vector> blocks(size, byte_vector(exchange_room + sizeof(std::uint64_t)));
    for (std::size_t bytes = 0; v < own && bytes < round_bytes; ++v) {
      for (const auto t : graph.out.of(v)) {
        if (t < own || !gives(static_cast<std::uint32_t>(v), t)) continue;
        const auto number = graph.number(t);
        const auto w = graph.owner(number);
        put_bytes(blocks[w],
                  arrived_edge{static_cast<std::uint32_t>(number - graph.first[w]), static_cast<std::uint32_t>(v)});
        bytes += sizeof(arrived_edge);
      }
    }
    const std::uint64_t mine = v < own ? 1 : 0;
    for (auto& b : blocks) std::memcpy(b.data() + exchange_room, &mine, sizeof mine);
    const auto got = exchange_blocks(comm, blocks);
    more = false;
    for (std::size_t w = 0; w < size; ++w) {
      byte_reader in(got[w], exchange_room);
      more = in.get<std::uint64_t>() != 0 || more;
      while (!in.empty()) arrived[w].push_back(in.get<arrived_edge>());
    }
  }
  return arrived;
}

}  // namespace move_edges_detail

/// The stored edge v - t, v an own vertex and t a local index, stays as an edge from v to t if `keeps(v, t)`, and
/// becomes one from t to v, at the owner of t, if `gives(v, t)`. The ghosts become the remote ends of these edges.
/// Targets are in no order; weights are dropped. A collective. Cost: 8 bytes for each edge sent to another worker, in
/// all-to-alls of about `round_bytes` a worker; memory for the edges before and after.
template <class Keeps, class Gives>
void move_edges(Comm comm, distributed_graph& graph, std::size_t round_bytes, Keeps&& keeps, Gives&& gives) {
  const auto own = graph.own();
  auto arrived = move_edges_detail::send_edges(comm, graph, round_bytes, gives);

  // begin[v + 2] counts, then begin[v + 1] is where the next edge of v goes.
  std::vector<std::uint64_t> begin(own + 2);
  std::vector<std::uint32_t> place(graph.ghosts.size());  // of a ghost: 1 if it is needed, then its new local index
  for (std::uint32_t v = 0; v < own; ++v) {
    for (const auto t : graph.out.of(v)) {
      if (keeps(v, t)) {
        ++begin[v + 2];
        if (t >= own) place[t - own] = 1;
      }
      if (t < own && gives(v, t)) ++begin[t + 2];
    }
  }
  std::vector<std::uint64_t> ghosts;
  std::size_t g = 0;  // the old ghosts are sorted by worker
  for (std::size_t w = 0; w < arrived.size(); ++w) {
    const auto first = graph.first[w];
    std::vector<std::uint32_t> there(w == graph.rank ? 0 : graph.first[w + 1] - first);  // as `place`
    const auto from = g;
    for (; g < graph.ghosts.size() && graph.ghosts[g] < graph.first[w + 1]; ++g)
      there[graph.ghosts[g] - first] = place[g];
    for (const auto& e : arrived[w]) {
      ++begin[e.at + 2];
      there[e.other] = 1;
    }
    for (std::size_t i = 0; i < there.size(); ++i) {
      if (there[i] == 0) continue;
      there[i] = static_cast<std::uint32_t>(own + ghosts.size());
      ghosts.push_back(first + i);
    }
    for (auto i = from; i < g; ++i) place[i] = there[graph.ghosts[i] - first];
    for (auto& e : arrived[w]) e.other = there[e.other];
  }

  for (std::size_t v = 0; v + 2 < begin.size(); ++v) begin[v + 2] += begin[v + 1];
  std::vector<std::uint32_t> target(begin.back());
  for (std::uint32_t v = 0; v < own; ++v) {
    for (const auto t : graph.out.of(v)) {
      if (keeps(v, t)) target[begin[v + 1]++] = t < own ? t : place[t - own];
      if (t < own && gives(v, t)) target[begin[t + 1]++] = v;
    }
  }
  for (const auto& edges : arrived)
    for (const auto& e : edges) target[begin[e.at + 1]++] = e.other;
  begin.pop_back();
  graph.out = {};
  graph.out.begin = std::move(begin);
  graph.out.target = std::move(target);
  graph.ghosts = std::move(ghosts);
}

}  // namespace paracel::alg
