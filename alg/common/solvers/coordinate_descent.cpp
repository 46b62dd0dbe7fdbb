// SPDX-License-Identifier: BSD-3-Clause
#include "coordinate_descent.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include <Eigen/Dense>

#include "design_matrix.hpp"

namespace paracel::alg {

namespace {

// Because of rounding a badly conditioned problem may never reach its tolerance.
constexpr std::size_t sweep_limit = 20000;
// Consecutive Newton steps: limited to about 10^9 operations, because with more features than samples each step may
// zero only one coordinate.
constexpr double newton_operations = 1e9;

}  // namespace

double l1_violation(double w, double correlation, double l1, double l2) {
  const double slope = correlation - l2 * w;
  if (w == 0) return std::max(0.0, std::abs(slope) - l1);
  return std::abs(slope - std::copysign(l1, w));
}

std::size_t l1_descend(std::span<const double> gram, std::span<const double> l1, double l2,
                       std::span<const double> tolerance, std::span<double> w, std::span<double> correlation,
                       std::size_t patience) {
  const std::size_t n = w.size();
  // The full square matrix, so that a coordinate's change updates one contiguous row.
  std::vector<double> square(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i; j < n; ++j) square[i * n + j] = square[j * n + i] = gram[packed_at(n, i, j)];
  }
  // Returns whether a violation was too great.
  const auto sweep = [&](const std::vector<std::uint32_t>& over) {
    bool violated = false;
    for (const auto j : over) {
      const double* row = square.data() + j * n;
      const double curve = row[j];
      if (!(curve > 0)) continue;
      violated = violated || l1_violation(w[j], correlation[j], l1[j], l2) > tolerance[j];
      const double pull = correlation[j] + curve * w[j];
      const double size = std::abs(pull) - l1[j];
      const double next = size > 0 ? std::copysign(size, pull) / (curve + l2) : 0.0;
      const double change = next - w[j];
      if (change == 0) continue;
      w[j] = next;
      for (std::size_t i = 0; i < n; ++i) correlation[i] -= change * row[i];
    }
    return violated;
  };
  // To recompute the correlation from w: long steps accumulate rounding errors in the running sums.
  std::vector<double> q(correlation.begin(), correlation.end());
  const auto add_products = [&](double times, std::span<double> to) {
    for (std::size_t j = 0; j < n; ++j) {
      if (w[j] == 0) continue;
      for (std::size_t i = 0; i < n; ++i) to[i] += times * w[j] * square[j * n + i];
    }
  };
  add_products(1, q);
  // A Newton step on the nonzero coordinates, shortened so that none changes its sign; a coordinate that reaches 0 is
  // removed. Returns whether none was removed.
  const auto newton = [&](std::vector<std::uint32_t>& over) {
    const auto size = static_cast<Eigen::Index>(over.size());
    Eigen::MatrixXd matrix(size, size);
    Eigen::VectorXd slope(size);
    for (Eigen::Index a = 0; a < size; ++a) {
      const auto i = over[static_cast<std::size_t>(a)];
      for (Eigen::Index b = 0; b < size; ++b) matrix(a, b) = square[i * n + over[static_cast<std::size_t>(b)]];
      matrix(a, a) += l2;
      slope[a] = correlation[i] - l2 * w[i] - std::copysign(l1[i], w[i]);
    }
    // Each element of the diagonal by a fraction of itself: coordinates may have any scale.
    const Eigen::MatrixXd shift = (1e-14 * matrix.diagonal()).asDiagonal();
    const Eigen::VectorXd step = (matrix + shift).ldlt().solve(slope);
    const double down = step.dot(slope);
    const double bend = step.dot(matrix * step);
    if (!step.allFinite() || !(down > 0) || !(bend > 0)) return true;  // no descent direction
    double length = std::min(1.0, down / bend);
    for (Eigen::Index a = 0; a < size; ++a) {
      const auto i = over[static_cast<std::size_t>(a)];
      if (l1[i] > 0 && step[a] * w[i] < 0) length = std::min(length, -w[i] / step[a]);
    }
    std::vector<std::uint32_t> left;
    for (Eigen::Index a = 0; a < size; ++a) {
      const auto i = over[static_cast<std::size_t>(a)];
      const double before = w[i];
      w[i] += length * step[a];
      if (l1[i] > 0 && (w[i] * before <= 0 || std::abs(w[i]) < 1e-15 * std::abs(before))) w[i] = 0;
      const double change = w[i] - before;
      const double* row = square.data() + i * n;
      for (std::size_t j = 0; j < n; ++j) correlation[j] -= change * row[j];
      if (w[i] != 0) left.push_back(i);
    }
    const bool whole = left.size() == over.size();
    over = std::move(left);
    return whole;
  };
  std::vector<std::uint32_t> all(n);
  std::iota(all.begin(), all.end(), std::uint32_t{0});
  std::vector<std::uint32_t> active;
  std::size_t sweeps = 0;
  while (sweeps < sweep_limit) {
    ++sweeps;
    if (!sweep(all)) break;
    active.clear();
    for (const auto j : all) {
      if (w[j] != 0) active.push_back(j);
    }
    for (std::size_t count = 1; !active.empty() && sweeps < sweep_limit; ++count) {
      ++sweeps;
      if (!sweep(active)) break;
      if (count < patience) continue;
      std::erase_if(active, [&](auto j) { return w[j] == 0; });
      const auto size = static_cast<double>(active.size());
      const auto steps =
          static_cast<std::size_t>(std::clamp(newton_operations / (size * size * size + 1), 6.0, 2 * size + 6));
      for (std::size_t k = 0; k < steps && !active.empty() && !newton(active); ++k) continue;
      std::copy(q.begin(), q.end(), correlation.begin());
      add_products(-1, correlation);
      break;
    }
  }
  return sweeps;
}

}  // namespace paracel::alg
