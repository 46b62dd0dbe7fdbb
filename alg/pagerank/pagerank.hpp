// SPDX-License-Identifier: BSD-3-Clause
//
// PageRank:
//
//     x <- (1 - d) t + d (sum over edges u -> v of x_u w_uv / W_u  +  D t_v)        starts at t
//
// W_u is the weight of all edges out of u, D the sum of x over the vertices without edges out, t the personalisation
// vector or 1/N; the scores sum to 1. Stops when the L1 norm of a step is at most `tolerance`, or after `rounds`.
// "paracel": true selects Paracel's formula instead: x <- (1 - d) + d sum, starting at 1/N; then the scores do not sum
// to 1, and the score of vertices without edges out is lost.
//
// A worker has the edges into its vertices. In a round it sends x_u / W_u once to each worker with a vertex that has an
// edge from u, then sums along its edges. With `handle_file` links and scores are in the servers, as in Paracel 0.3.
//
// Source: L. Page, S. Brin, R. Motwani, T. Winograd, "The PageRank citation ranking", 1998.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <paracel/distributed_graph.hpp>

#include "alg/common/graph/graph_base.hpp"
#include "alg/common/output/server_state.hpp"

namespace paracel::alg {

struct pagerank_options {
  double damping = 0.85;
  std::uint64_t rounds = 100;
  double tolerance = 0;  ///< 0: run all rounds
  bool paracel = false;
  /// t of the own vertices, summing to 1 over all workers; empty: 1/N.
  std::vector<double> personalization{};
  /// Called on every worker after each round with the L1 norm of its step.
  std::function<void(std::uint64_t round, double step)> watch{};
  paralg* job = nullptr;  ///< rounds are iterations of it (resumable_loop.hpp)
};

struct pagerank_result {
  std::vector<double> scores;  ///< of the own vertices
  std::uint64_t rounds = 0;
  double step = 0;                       ///< L1 norm of the last step
  double sum = 0;                        ///< of all scores
  std::vector<std::uint8_t> selected{};  ///< own vertices that the plug-in's filter accepts; empty: all
};

/// out[v] = sum over the edges of v of weight times the value of the other end (a local index). Without weights: 1.
void sum_along_edges(const adjacency& edges, std::span<const double> values, std::span<double> out);

/// `incoming`: a graph loaded with `transpose`, so that the edges of a vertex are its incoming ones. Each parallel edge
/// counts. A collective. Cost: in a round 8 bytes a ghost, and a sum of three numbers.
pagerank_result page_ranks(Comm comm, const distributed_graph& incoming, const pagerank_options& options);

/// The same with its state in the servers, where `handle`'s first function joins the lists of links and its second, a
/// filter, selects the scores that are results. `outgoing`: a graph loaded without `transpose`. A collective. Cost: in
/// a round a read of a score for each distinct source of a link, a write for each own vertex, and two barriers.
pagerank_result page_ranks_in_servers(paralg& job, const distributed_graph& outgoing, const pagerank_options& options,
                                      const state_plugin& handle);

struct pagerank_settings : graph_settings {
  static constexpr auto program = "pagerank";
  static constexpr auto summary = "importance of vertices by the edges that lead to them";
  void keys(key_list& k);
  void check(const config& from) const;

  pagerank_options options{.rounds = 200, .tolerance = 1e-10};
  std::optional<bool> weights;  ///< absent: if the first line has a third field
  std::vector<std::string> personalization;
  duplicate_rule duplicates = duplicate_rule::sum;
  state_plugin handle;  ///< its functions: the update, the filter
};

/// Reads the graph, computes, writes pagerank_<rank>.
class pagerank : public graph_program<pagerank_settings> {
 public:
  using graph_program::graph_program;
  void solve() override;
};

/// t of the own vertices from lines `id` or `id weight` (separated like edges), normalised to sum 1, without comments
/// if there may be some. A collective.
/// Throws: data_error file:line:column, on every worker: not a number, below 0, an unknown id, a sum of 0.
std::vector<double> read_personalization(Comm comm, const distributed_graph& graph,
                                         const std::vector<std::string>& files, bool comments = true);

}  // namespace paracel::alg
