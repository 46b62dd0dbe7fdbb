// SPDX-License-Identifier: BSD-3-Clause
//
// Least squares of few columns (alg/common/solvers/factor_kernels.hpp) against dense solves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <Eigen/Dense>

#include <paracel/random.hpp>

#include "alg/common/solvers/factor_kernels.hpp"

namespace paracel::alg {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;

std::vector<double> normal_numbers(std::size_t n, std::uint64_t seed) {
  counter_random random(seed);
  std::vector<double> v(n);
  for (auto& x : v) x = random.normal();
  return v;
}

TEST(RowSolver, LeastSquaresAreThoseOfADenseSolve) {
  for (const std::size_t d : {1UL, 2UL, 3UL, 8UL, 33UL, 50UL}) {
    row_solver solver(d);
    for (const std::size_t n : {0UL, 1UL, 2UL, 7UL, 16UL, 17UL, 40UL, 203UL}) {
      const auto x = normal_numbers(n * d, 10 * n + d);
      const auto t = normal_numbers(n, 11 * n + d);
      auto penalty = normal_numbers(d, n + d);
      for (auto& p : penalty) p = 0.1 + std::abs(p);
      solver.clear();
      for (std::size_t i = 0; i < n; ++i) {
        const auto row = solver.add(t[i]);
        std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(i * d), d, row.begin());
      }
      std::vector<double> z(d);
      solver.solve(penalty, z);
      const auto rows = static_cast<Eigen::Index>(n);
      const auto columns = static_cast<Eigen::Index>(d);
      const Eigen::Map<const Eigen::Matrix<double, -1, -1, Eigen::RowMajor>> X(x.data(), rows, columns);
      const VectorXd T = Eigen::Map<const VectorXd>(t.data(), rows);
      const MatrixXd A = X.transpose() * X + MatrixXd(Eigen::Map<const VectorXd>(penalty.data(), columns).asDiagonal());
      const VectorXd want = A.ldlt().solve(X.transpose() * T);
      double residual = 0;
      for (Eigen::Index i = 0; i < rows; ++i) residual += std::pow(T[i] - X.row(i) * want, 2);
      for (std::size_t j = 0; j < d; ++j) EXPECT_NEAR(z[j], want[static_cast<Eigen::Index>(j)], 1e-10) << d << " " << n;
      EXPECT_NEAR(solver.residual(z), residual, 1e-9 * (1 + residual));
    }
  }
}

TEST(RowSolver, WithoutPenaltyTheShortestSolutionIsTaken) {
  row_solver solver(3);
  const auto row = solver.add(6);
  row[0] = 1;
  row[1] = 1;
  row[2] = 0;
  std::vector<double> z(3);
  solver.solve(std::vector<double>(3), z);
  EXPECT_NEAR(z[0], 3, 1e-12);
  EXPECT_NEAR(z[1], 3, 1e-12);
  EXPECT_NEAR(z[2], 0, 1e-12);
}

TEST(RowSolver, ScalesOfTheColumnsDoNotMatter) {
  const std::size_t n = 40;
  const auto x = normal_numbers(n * 3, 5);
  const auto t = normal_numbers(n, 6);
  const auto solved = [&](const std::vector<double>& scale, bool equal_columns) {
    row_solver solver(3);
    for (std::size_t i = 0; i < n; ++i) {
      const auto row = solver.add(t[i]);
      for (std::size_t j = 0; j < 3; ++j) row[j] = x[i * 3 + (equal_columns && j == 2 ? 1 : j)] * scale[j];
    }
    std::vector<double> z(3);
    solver.solve(std::vector<double>(3), z);
    for (std::size_t j = 0; j < 3; ++j) z[j] *= scale[j];
    return z;
  };
  for (const bool equal : {false, true}) {
    const auto want = solved({1, 1, 1}, equal);
    const auto found = solved({1e-9, 1, 1e9}, equal);
    for (std::size_t j = 0; j < 3; ++j) EXPECT_NEAR(found[j], want[j], 1e-10) << equal;
  }
}

}  // namespace
}  // namespace paracel::alg
