// SPDX-License-Identifier: BSD-3-Clause
//
// Clusters of the vertices of an undirected graph with weights W, by the eigenvectors of the k smallest eigenvalues of
//
//     L = I - N,    N = D^-1/2 W D^-1/2,    D = diagonal of the weighted degrees
//
// A vertex becomes the point of its k entries, scaled to length 1; k-means finds the clusters. The eigenvectors are
// those of I + N, which is symmetric with eigenvalues 2 - lambda in [0, 2]: its greatest singular values and their
// vectors, computed by alg/svd/block_krylov.hpp. Isolated vertices belong to no cluster.
//
// Source: A. Ng, M. Jordan, Y. Weiss, "On spectral clustering: analysis and an algorithm", NIPS 2001.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <paracel/distributed_graph.hpp>
#include <paracel/paralg.hpp>
#include <paracel/settings.hpp>

#include "alg/common/graph/graph_base.hpp"
#include "alg/kmeans/kmeans_solver.hpp"
#include "alg/svd/block_krylov.hpp"

namespace paracel::alg {

/// Sums of the edge weights of the own vertices.
std::vector<double> weighted_degrees(const adjacency& links);

/// N's entry for each element of links.target. `degrees`: of all local vertices, the own ones first.
std::vector<double> scaled_weights(const adjacency& links, std::span<const double> degrees);

/// u := (I + N) v for the own vertices of positive degree, 0 for the others. `v`: rows of all local vertices, the own
/// ones first.
void add_neighbours(const adjacency& links, std::span<const double> scaled, std::span<const double> degrees,
                    const tall_block& v, tall_block& u);

/// Scales rows to length 1; rows shorter than `least` become 0, since their direction is only rounding error.
void unit_rows(tall_block& points, double least);

/// Renumbers clusters by ascending first[c], the number of the cluster's first vertex; those with `none` come last.
std::vector<std::int64_t> numbers_by_first(std::span<const std::int64_t> first, std::int64_t none);

/// I + N over the workers. A worker's rows and columns are its own vertices.
/// Lifetime: the graph must outlive it. Cost of a product with b columns: one all-to-all with 8 b bytes a ghost; none
/// with one worker.
class laplacian_operator : public product_operator {
 public:
  /// The graph is undirected, weighted and without self-loops; no weight is negative.
  /// A collective: it builds the halo, and sends 8 bytes a ghost in one all-to-all.
  laplacian_operator(Comm comm, const distributed_graph& graph);

  [[nodiscard]] std::size_t rows() const override { return graph_.own(); }
  [[nodiscard]] std::size_t columns() const override { return graph_.own(); }
  [[nodiscard]] std::uint64_t first_row() const override { return graph_.first[graph_.rank]; }
  [[nodiscard]] std::uint64_t first_column() const override { return first_row(); }
  void times(const tall_block& v, tall_block& u) override;
  void transposed_times(const tall_block& u, tall_block& v) override { times(u, v); }
  void sum(std::span<double> values) override;
  void largest(std::span<double> values) override;

  /// The degrees of the own vertices.
  [[nodiscard]] std::span<const double> degrees() const { return std::span(degrees_).first(graph_.own()); }

 private:
  Comm comm_;
  const distributed_graph& graph_;
  halo borders_;
  std::vector<double> degrees_;  // of all local vertices
  std::vector<double> scaled_;
  tall_block local_;
};

struct spectral_clustering_settings : graph_settings {
  static constexpr auto program = "spectral_clustering";
  static constexpr auto summary = "clusters of an undirected graph by eigenvectors of its normalised Laplacian";
  void keys(key_list& k);
  void check(const config& from);

  krylov_options krylov{.steps = 10000};
  kmeans_options kmeans{.n_init = 10};
  std::string kclusters_place;
  duplicate_rule duplicates = duplicate_rule::sum;
  bool debug = false;
};

/// Reads the graph, computes the clusters, writes label_<rank> and eigenvalues_0.
class spectral_clustering : public graph_program<spectral_clustering_settings> {
 public:
  using graph_program::graph_program;
  /// Throws: data_error; config_error when there are fewer vertices with a positive degree than clusters.
  void solve() override;
};

}  // namespace paracel::alg
