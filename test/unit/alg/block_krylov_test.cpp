// SPDX-License-Identifier: BSD-3-Clause
#include "alg/svd/block_krylov.hpp"
#include "alg/svd/gram_kernel.hpp"

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
using Eigen::VectorXd;

class dense_operator : public product_operator {
 public:
  explicit dense_operator(MatrixXd a) : a_(std::move(a)) {}
  [[nodiscard]] std::size_t rows() const override { return static_cast<std::size_t>(a_.rows()); }
  [[nodiscard]] std::size_t columns() const override { return static_cast<std::size_t>(a_.cols()); }
  [[nodiscard]] std::uint64_t first_row() const override { return 0; }
  [[nodiscard]] std::uint64_t first_column() const override { return 0; }
  void times(const tall_block& v, tall_block& u) override {
    u = a_ * v;
    ++products;
  }
  void transposed_times(const tall_block& u, tall_block& v) override {
    v = a_.transpose() * u;
    ++products;
  }
  void sum(std::span<double> values) override {
    ++sums;
    most = std::max(most, values.size());
  }
  void largest(std::span<double> /*values*/) override {}

  int products = 0;
  int sums = 0;
  std::size_t most = 0;  // length of the longest sum

 private:
  MatrixXd a_;
};

MatrixXd random_matrix(Index rows, Index columns, std::uint64_t seed) {
  counter_random random(seed);
  MatrixXd m(rows, columns);
  for (Index i = 0; i < m.size(); ++i) m.data()[i] = random.normal();
  return m;
}
MatrixXd orthonormal(Index rows, Index columns, std::uint64_t seed) {
  return Eigen::HouseholderQR<MatrixXd>(random_matrix(rows, columns, seed)).householderQ() *
         MatrixXd::Identity(rows, columns);
}
/// A matrix with these singular values.
MatrixXd with_values(Index rows, Index columns, const std::vector<double>& s, std::uint64_t seed) {
  const auto r = static_cast<Index>(s.size());
  return orthonormal(rows, r, seed) * Eigen::Map<const VectorXd>(s.data(), r).asDiagonal() *
         orthonormal(columns, r, seed + 1).transpose();
}

void check(const MatrixXd& a, std::size_t k, std::size_t rank, const krylov_options& given = {}) {
  dense_operator op(a);
  auto options = given;
  options.k = k;
  const auto t = block_krylov(op, options);
  const VectorXd want = a.bdcSvd().singularValues();
  EXPECT_TRUE(t.converged);
  ASSERT_EQ(t.sigma.size(), std::min(k, rank));
  const auto n = static_cast<Index>(t.sigma.size());
  for (Index j = 0; j < n; ++j) {
    EXPECT_NEAR(t.sigma[static_cast<std::size_t>(j)], want[j], 1e-10 * want[0]);
    EXPECT_LE(t.residual[static_cast<std::size_t>(j)], 1e-9 * want[0]);
    Index at = 0;
    t.u.col(j).cwiseAbs().maxCoeff(&at);
    EXPECT_GT(t.u(at, j), 0);
  }
  if (n == 0) return;
  const MatrixXd one = MatrixXd::Identity(n, n);
  EXPECT_LE((t.u.transpose() * t.u - one).cwiseAbs().maxCoeff(), 1e-10);
  EXPECT_LE((t.v.transpose() * t.v - one).cwiseAbs().maxCoeff(), 1e-10);
}

TEST(BlockKrylov, FindsTheTripletsOfTallAndWideMatrices) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    check(random_matrix(200, 60, seed), 6, 60);
    check(random_matrix(60, 200, seed), 6, 60);
    check(random_matrix(90, 90, seed), 1, 90);
    check(random_matrix(5, 4, seed), 4, 4);
    check(random_matrix(5, 4, seed), 10, 4);
    check(random_matrix(1, 1, seed), 1, 1);
    check(random_matrix(1, 40, seed), 3, 1);
  }
}

TEST(BlockKrylov, FindsValuesThatAreThereSeveralTimes) {
  std::vector<double> s{7, 7, 7, 7, 5, 5, 3, 3, 3};
  for (int i = 0; i < 40; ++i) s.push_back(1);
  for (const std::uint64_t seed : {1U, 2U, 3U}) check(with_values(120, 80, s, seed), 8, s.size());
  check(MatrixXd::Identity(50, 50), 6, 50);
}

TEST(BlockKrylov, FewerTripletsThanWantedAreGivenWhenTheRankIsLess) {
  for (const std::uint64_t seed : {1U, 2U}) check(with_values(120, 80, {4, 2, 1}, seed), 8, 3);
  check(MatrixXd::Zero(20, 10), 3, 0);
}

TEST(BlockKrylov, ValuesOfManyMagnitudesAreRight) {
  std::vector<double> s;
  for (int i = 0; i < 40; ++i) s.push_back(std::pow(10, -i / 4.0));
  for (const std::uint64_t seed : {1U, 2U}) check(with_values(150, 100, s, seed), 12, s.size());
}

// The squares of the smaller ones have too few digits in A'A.
TEST(BlockKrylov, SmallValuesAmongTheWantedAreRight) {
  for (const double small : {1e-4, 1e-6}) {
    std::vector<double> s(60, small);
    for (int i = 0; i < 8; ++i) s[static_cast<std::size_t>(i)] = std::pow(10, -i / 4.0);
    for (const std::uint64_t seed : {1U, 2U}) check(with_values(150, 100, s, seed), 10, s.size());
  }
}

TEST(BlockKrylov, ProductsWithTheGramMatrixAreThoseOfTwoProducts) {
  counter_random random(3);
  constexpr Index rows = 37;
  constexpr Index columns = 23;
  std::vector<std::uint64_t> begin{0};
  std::vector<std::uint32_t> column;
  std::vector<double> value;
  MatrixXd a = MatrixXd::Zero(rows, columns);
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < columns; ++j) {
      if (i % 5 == 4 || random.uniform() > 0.3) continue;  // some rows are empty
      a(i, j) = random.normal();
      column.push_back(static_cast<std::uint32_t>(j));
      value.push_back(a(i, j));
    }
    begin.push_back(column.size());
  }
  for (std::size_t width = 1; width <= 53; ++width) {
    const auto stride = gram_stride(width);
    const auto half = static_cast<Index>(stride);
    tall_block both = tall_block::Zero(columns, 2 * half);
    both.leftCols(static_cast<Index>(width)) = random_matrix(columns, static_cast<Index>(width), width);
    both.rightCols(half).setOnes();
    const MatrixXd v = both.leftCols(half);
    const MatrixXd want = a.transpose() * (a * v) + MatrixXd::Ones(columns, half);
    add_gram_product(begin, column, value, both.data(), stride);
    EXPECT_EQ(both.leftCols(half), v);
    EXPECT_LE((both.rightCols(half) - want).cwiseAbs().maxCoeff(), 1e-12) << width;
  }
}

TEST(BlockKrylov, RestartsWithASmallBasisReachTheSame) {
  krylov_options o;
  o.basis = 1;  // three blocks, the minimum
  for (const std::uint64_t seed : {1U, 2U}) check(random_matrix(300, 150, seed), 5, 150, o);
}

TEST(BlockKrylov, AStepIsTwoProductsAndSixSums) {
  const auto cost = [](int steps) {
    dense_operator op(random_matrix(300, 150, 1));
    krylov_options o;
    o.k = 5;
    o.steps = steps;
    o.tolerance = 1e-14;
    block_krylov(op, o);
    EXPECT_LE(op.most, 7U * 10 * 7);
    return std::pair(op.products, op.sums);
  };
  const auto few = cost(3);
  const auto many = cost(9);
  EXPECT_EQ(many.first - few.first, 6 * 2);
  EXPECT_EQ(many.second - few.second, 6 * 6);
}

TEST(BlockKrylov, StepsThatAreUsedUpAreSaid) {
  for (int steps = 1; steps < 8; ++steps) {
    dense_operator op(random_matrix(300, 150, 1));
    krylov_options o;
    o.k = 5;
    o.steps = steps;
    o.tolerance = 1e-14;
    const auto t = block_krylov(op, o);
    EXPECT_FALSE(t.converged);
    EXPECT_EQ(t.steps, steps);
    EXPECT_EQ(t.sigma.size(), 5U);
    EXPECT_LE((t.u.transpose() * t.u - MatrixXd::Identity(5, 5)).cwiseAbs().maxCoeff(), 1e-10);
  }
}

}  // namespace
}  // namespace paracel::alg
