// SPDX-License-Identifier: BSD-3-Clause
#include "alg/spectral_clustering/spectral_clustering.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <paracel/random.hpp>

namespace paracel::alg {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using testing::ElementsAre;

/// Both directions of each pair, with weights.
adjacency links_of(const MatrixXd& w) {
  edge_buffer edges;
  for (Index i = 0; i < w.rows(); ++i) {
    for (Index j = 0; j < w.cols(); ++j) {
      if (w(i, j) != 0) edges.add(static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(j), w(i, j));
    }
  }
  return make_adjacency(std::move(edges), static_cast<std::size_t>(w.rows()), duplicate_edge_rule::sum);
}

MatrixXd random_weights(Index n, std::uint64_t seed) {
  counter_random random(seed);
  MatrixXd w = MatrixXd::Zero(n, n);
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < i; ++j) {
      if (random.below(4) == 0) w(i, j) = w(j, i) = random.uniform_above_zero();
    }
  }
  return w;
}

/// I + N on one worker.
class local_operator : public product_operator {
 public:
  explicit local_operator(adjacency links)
      : links_(std::move(links)), degrees_(weighted_degrees(links_)), scaled_(scaled_weights(links_, degrees_)) {}
  [[nodiscard]] std::size_t rows() const override { return links_.rows(); }
  [[nodiscard]] std::size_t columns() const override { return links_.rows(); }
  [[nodiscard]] std::uint64_t first_row() const override { return 0; }
  [[nodiscard]] std::uint64_t first_column() const override { return 0; }
  void times(const tall_block& v, tall_block& u) override { add_neighbours(links_, scaled_, degrees_, v, u); }
  void transposed_times(const tall_block& u, tall_block& v) override { times(u, v); }
  void sum(std::span<double> /*values*/) override {}
  void largest(std::span<double> /*values*/) override {}

 private:
  adjacency links_;
  std::vector<double> degrees_;
  std::vector<double> scaled_;
};

singular_triplets smallest(const MatrixXd& w, std::size_t k) {
  local_operator op(links_of(w));
  krylov_options options;
  options.k = k;
  return block_krylov(op, options);
}

TEST(SpectralOperator, IsTheDenseFormulaAndZeroWhereThereIsNoEdge) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto w = random_weights(30, seed);
    w.row(7).setZero();
    w.col(7).setZero();
    const auto links = links_of(w);
    const auto degrees = weighted_degrees(links);
    MatrixXd want = MatrixXd::Zero(30, 30);
    for (Index i = 0; i < 30; ++i) {
      EXPECT_NEAR(degrees[static_cast<std::size_t>(i)], w.row(i).sum(), 1e-13);
      if (w.row(i).sum() > 0) want(i, i) = 1;
      for (Index j = 0; j < 30; ++j)
        if (w(i, j) > 0) want(i, j) = w(i, j) / std::sqrt(w.row(i).sum() * w.row(j).sum());
    }
    const tall_block v = MatrixXd::Identity(30, 30);
    tall_block got;
    add_neighbours(links, scaled_weights(links, degrees), degrees, v, got);
    EXPECT_LE((MatrixXd(got) - want).cwiseAbs().maxCoeff(), 1e-14) << seed;
  }
}

TEST(SpectralOperator, DegreesWhoseProductIsNoDoubleAreScaledAlike) {
  MatrixXd w = MatrixXd::Zero(2, 2);
  for (const double size : {1e300, 1e-300}) {
    w(0, 1) = w(1, 0) = size;
    const auto links = links_of(w);
    for (const double x : scaled_weights(links, weighted_degrees(links))) EXPECT_NEAR(x, 1, 1e-15);
  }
}

TEST(SpectralEigenvalues, OfCompleteGraphsRingsAndPiecesAreTheClosedForms) {
  // K_n: 0 and n / (n - 1).
  const auto complete = smallest(MatrixXd::Ones(6, 6) - MatrixXd::Identity(6, 6), 4);
  ASSERT_EQ(complete.sigma.size(), 4U);
  EXPECT_NEAR(2 - complete.sigma[0], 0, 1e-13);
  for (std::size_t j = 1; j < 4; ++j) EXPECT_NEAR(2 - complete.sigma[j], 6.0 / 5, 1e-13);
  // A ring of n: 1 - cos(2 pi j / n), each but the first twice.
  MatrixXd ring = MatrixXd::Zero(40, 40);
  for (Index i = 0; i < 40; ++i) ring(i, (i + 1) % 40) = ring((i + 1) % 40, i) = 3;
  const auto around = smallest(ring, 7);
  for (std::size_t j = 0; j < 7; ++j)
    EXPECT_NEAR(2 - around.sigma[j], 1 - std::cos(2 * std::acos(-1) * static_cast<double>((j + 1) / 2) / 40), 1e-12);
  // Three components and a vertex without edges: the eigenvalue 0 three times.
  MatrixXd pieces = MatrixXd::Zero(13, 13);
  for (Index p = 0; p < 3; ++p) pieces.block(4 * p, 4 * p, 4, 4) = MatrixXd::Ones(4, 4) - MatrixXd::Identity(4, 4);
  const auto apart = smallest(pieces, 4);
  for (std::size_t j = 0; j < 3; ++j) EXPECT_NEAR(2 - apart.sigma[j], 0, 1e-13);
  EXPECT_NEAR(2 - apart.sigma[3], 4.0 / 3, 1e-13);
  EXPECT_EQ(apart.u.row(12).cwiseAbs().maxCoeff(), 0);
  // The rows of a component are the same point, and those of different components are orthogonal.
  tall_block points = apart.u.leftCols(3);
  unit_rows(points, 1e-9);
  for (Index i = 0; i < 12; ++i)
    for (Index j = 0; j < 12; ++j) EXPECT_NEAR(points.row(i).dot(points.row(j)), i / 4 == j / 4 ? 1 : 0, 1e-12);
}

TEST(SpectralRows, HaveLengthOneAndNoiseHasNone) {
  tall_block points(3, 2);
  points << 3, 4, 1e-12, -1e-12, 0, -1e-7;
  unit_rows(points, 1e-8);
  EXPECT_DOUBLE_EQ(points(0, 0), 0.6);
  EXPECT_DOUBLE_EQ(points(0, 1), 0.8);
  EXPECT_EQ(points.row(1).cwiseAbs().maxCoeff(), 0);
  EXPECT_EQ(points(2, 1), -1);
}

TEST(SpectralLabels, AreNumberedByTheFirstVertexAndEmptyClustersComeLast) {
  EXPECT_THAT(numbers_by_first(std::vector<std::int64_t>{7, 99, 0, 3, 99}, 99), ElementsAre(2, 3, 0, 1, 4));
  EXPECT_THAT(numbers_by_first(std::vector<std::int64_t>{5}, 99), ElementsAre(0));
}

}  // namespace
}  // namespace paracel::alg
