// SPDX-License-Identifier: BSD-3-Clause
#include "factor_kernels.hpp"

#include <algorithm>
#include <cmath>

#include <Eigen/Dense>

#include "cpu_dispatch.hpp"

namespace paracel::alg {

namespace {

// Eight partial sums, so that the compiler can vectorise without reordering additions.
PARACEL_INLINE double dot_body(const double* __restrict a, const double* __restrict b, std::size_t n) {
  double lane[8] = {};
  std::size_t j = 0;
  for (; j + 8 <= n; j += 8) {
    for (std::size_t l = 0; l < 8; ++l) lane[l] += a[j + l] * b[j + l];
  }
  double sum = 0;
  for (; j < n; ++j) sum += a[j] * b[j];
  return sum + (((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7])));
}

PARACEL_INLINE double distance_body(const double* __restrict a, const double* __restrict b, std::size_t n) {
  double lane[8] = {};
  std::size_t j = 0;
  for (; j + 8 <= n; j += 8) {
    for (std::size_t l = 0; l < 8; ++l) lane[l] += (a[j + l] - b[j + l]) * (a[j + l] - b[j + l]);
  }
  double sum = 0;
  for (; j < n; ++j) sum += (a[j] - b[j]) * (a[j] - b[j]);
  return sum + (((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7])));
}

// Four rows of X and two of the triangle at a time: eight multiplications for six loads and two stores.
PARACEL_INLINE void gram_body(std::size_t rows, std::size_t d, std::size_t stride, const double* __restrict x,
                              const double* __restrict y, double* __restrict lower) {
  std::size_t n = 0;
  for (; n + 4 <= rows; n += 4) {
    const double* __restrict x0 = x + n * stride;
    const double* __restrict y0 = y + n * stride;
    const double* __restrict y1 = y0 + stride;
    const double* __restrict y2 = y1 + stride;
    const double* __restrict y3 = y2 + stride;
    std::size_t i = 0;
    for (; i + 2 <= d; i += 2) {
      double* __restrict a = lower + i * stride;
      double* __restrict b = a + stride;
      const double a0 = x0[i], a1 = x0[stride + i], a2 = x0[2 * stride + i], a3 = x0[3 * stride + i];
      const double b0 = x0[i + 1], b1 = x0[stride + i + 1], b2 = x0[2 * stride + i + 1], b3 = x0[3 * stride + i + 1];
      // Rounded up to a multiple of four to avoid a remainder loop; elements beyond the diagonal are never read.
      const std::size_t end = (i / 4 + 1) * 4;
      for (std::size_t j = 0; j < end; ++j) {
        a[j] += (a0 * y0[j] + a1 * y1[j]) + (a2 * y2[j] + a3 * y3[j]);
        b[j] += (b0 * y0[j] + b1 * y1[j]) + (b2 * y2[j] + b3 * y3[j]);
      }
    }
    if (i < d) {
      double* __restrict a = lower + i * stride;
      const double a0 = x0[i], a1 = x0[stride + i], a2 = x0[2 * stride + i], a3 = x0[3 * stride + i];
      for (std::size_t j = 0; j <= i; ++j) a[j] += (a0 * y0[j] + a1 * y1[j]) + (a2 * y2[j] + a3 * y3[j]);
    }
  }
  for (; n < rows; ++n) {
    const double* __restrict x0 = x + n * stride;
    const double* __restrict y0 = y + n * stride;
    for (std::size_t i = 0; i < d; ++i) {
      double* __restrict a = lower + i * stride;
      const double a0 = x0[i];
      for (std::size_t j = 0; j <= i; ++j) a[j] += a0 * y0[j];
    }
  }
}

/// Cholesky in place: the rows of the lower triangle, and the solution z of L L' z = rhs. Returns false when a pivot,
/// which is compared with its element of the diagonal, shows that the matrix is not positive definite.
PARACEL_INLINE bool cholesky_body(std::size_t d, std::size_t stride, double* __restrict a, double* __restrict z) {
  for (std::size_t i = 0; i < d; ++i) {
    double* __restrict row = a + i * stride;
    for (std::size_t j = 0; j < i; ++j) {
      const double* __restrict other = a + j * stride;
      row[j] = (row[j] - dot_body(row, other, j)) * other[j];  // the diagonal holds 1 / L_jj
    }
    const double pivot = row[i] - dot_body(row, row, i);
    if (!(pivot > 1e-13 * row[i])) return false;
    row[i] = 1 / std::sqrt(pivot);
    z[i] = (z[i] - dot_body(row, z, i)) * row[i];
  }
  for (std::size_t i = d; i-- > 0;) {
    const double* __restrict row = a + i * stride;
    const double v = z[i] * row[i];
    z[i] = v;
    for (std::size_t j = 0; j < i; ++j) z[j] -= v * row[j];
  }
  return true;
}

/// out = (G + diag(penalty)) z + sum_i extra_i x_i (x_i z); `gram` is symmetric.
PARACEL_INLINE void implicit_body(std::size_t rows, std::size_t d, std::size_t stride, const double* __restrict x,
                                  const double* __restrict extra, const double* __restrict gram,
                                  const double* __restrict penalty, const double* __restrict z,
                                  double* __restrict out) {
  for (std::size_t j = 0; j < d; ++j) out[j] = penalty[j] * z[j];
  for (std::size_t i = 0; i < d; ++i) {
    const double* __restrict g = gram + i * d;
    for (std::size_t j = 0; j < d; ++j) out[j] += z[i] * g[j];
  }
  for (std::size_t i = 0; i < rows; ++i) {
    const double* __restrict row = x + i * stride;
    const double y = extra[i] * dot_body(row, z, d);
    for (std::size_t j = 0; j < d; ++j) out[j] += y * row[j];
  }
}

auto* const dot_here = compiled_for<dot_body>::this_cpu();
auto* const distance_here = compiled_for<distance_body>::this_cpu();
auto* const gram_here = compiled_for<gram_body>::this_cpu();
auto* const implicit_here = compiled_for<implicit_body>::this_cpu();
auto* const cholesky_here = compiled_for<cholesky_body>::this_cpu();

}  // namespace

double dot(const double* a, const double* b, std::size_t n) noexcept { return dot_here(a, b, n); }

double squared_distance(const double* a, const double* b, std::size_t n) noexcept { return distance_here(a, b, n); }

void add_gram(std::size_t rows, std::size_t d, std::size_t stride, const double* x, const double* y,
              double* lower) noexcept {
  gram_here(rows, d, stride, x, y, lower);
}

row_solver::row_solver(std::size_t d) : d_(d), stride_((d + 1 + 3) / 4 * 4), a_(stride_ * stride_) {}

std::span<double> row_solver::add(double target) {
  if (x_.size() < (count_ + 1) * stride_) x_.resize(std::max(2 * x_.size(), 16 * stride_));
  double* row = x_.data() + count_++ * stride_;
  row[d_] = target;
  return {row, d_};
}

void row_solver::solve(std::span<const double> penalty, std::span<double> z) {
  const bool definite = std::all_of(penalty.begin(), penalty.end(), [](double p) { return p > 0; });
  if (definite && 2 * count_ < d_) {
    solve_dual(penalty, z);
    return;
  }
  std::fill(a_.begin(), a_.end(), 0.0);
  add_gram(count_, d_ + 1, stride_, x_.data(), x_.data(), a_.data());
  for (std::size_t j = 0; j < d_; ++j) a_[j * stride_ + j] += penalty[j];
  solve_primal(z);
}

void row_solver::solve_implicit(std::span<const double> extra, std::span<const double> gram,
                                std::span<const double> penalty, std::span<double> z) {
  scaled_.resize(count_ * stride_);
  for (std::size_t i = 0; i < count_; ++i) {
    const double* row = x_.data() + i * stride_;
    double* to = scaled_.data() + i * stride_;
    for (std::size_t j = 0; j < d_; ++j) to[j] = extra[i] * row[j];
    std::fill(to + d_, to + stride_, 0.0);
    to[d_] = row[d_];
  }
  std::fill(a_.begin(), a_.end(), 0.0);
  add_gram(count_, d_ + 1, stride_, scaled_.data(), x_.data(), a_.data());
  for (std::size_t i = 0; i < d_; ++i) {
    for (std::size_t j = 0; j <= i; ++j) a_[i * stride_ + j] += gram[i * d_ + j];
    a_[i * stride_ + i] += penalty[i];
  }
  solve_primal(z);
}

void row_solver::improve_implicit(std::span<const double> extra, std::span<const double> gram,
                                  std::span<const double> penalty, std::size_t steps, std::span<double> z) {
  scaled_.resize(3 * d_);
  double* residual = scaled_.data();
  double* direction = residual + d_;
  double* product = direction + d_;
  const auto apply = [&](const double* to) {
    implicit_here(count_, d_, stride_, x_.data(), extra.data(), gram.data(), penalty.data(), to, product);
  };
  apply(z.data());
  for (std::size_t j = 0; j < d_; ++j) residual[j] = -product[j];
  for (std::size_t i = 0; i < count_; ++i) {
    const double* row = x_.data() + i * stride_;
    for (std::size_t j = 0; j < d_; ++j) residual[j] += row[d_] * row[j];
  }
  std::copy_n(residual, d_, direction);
  double square = dot_here(residual, residual, d_);
  for (std::size_t step = 0; step < steps; ++step) {
    apply(direction);
    const double curvature = dot_here(direction, product, d_);
    if (!(square > 0 && curvature > 0)) return;  // solved
    const double length = square / curvature;
    for (std::size_t j = 0; j < d_; ++j) {
      z[j] += length * direction[j];
      residual[j] -= length * product[j];
    }
    const double next = dot_here(residual, residual, d_);
    for (std::size_t j = 0; j < d_; ++j) direction[j] = residual[j] + next / square * direction[j];
    square = next;
  }
}

/// Solves the normal equations in a_, whose row d is the right-hand side.
void row_solver::solve_primal(std::span<double> z) {
  const double* rhs = a_.data() + d_ * stride_;
  std::copy(rhs, rhs + d_, z.begin());
  std::vector<double>& kept = scaled_;  // the triangle, in case Cholesky fails
  kept.assign(a_.begin(), a_.end());
  if (cholesky_here(d_, stride_, a_.data(), z.data())) return;
  const auto n = static_cast<Eigen::Index>(d_);
  Eigen::MatrixXd full(n, n);
  Eigen::VectorXd b(n);
  // Scaled to a diagonal of ones, so that coordinates of any scale count.
  Eigen::VectorXd scale(n);
  for (std::size_t i = 0; i < d_; ++i) {
    const double square = kept[i * stride_ + i];
    scale[static_cast<Eigen::Index>(i)] = square > 0 ? 1 / std::sqrt(square) : 0;
  }
  for (std::size_t i = 0; i < d_; ++i) {
    const auto r = static_cast<Eigen::Index>(i);
    b[r] = kept[d_ * stride_ + i] * scale[r];
    for (std::size_t j = 0; j <= i; ++j) {
      const auto c = static_cast<Eigen::Index>(j);
      full(r, c) = full(c, r) = kept[i * stride_ + j] * scale[r] * scale[c];
    }
  }
  // By eigenvalues: those within rounding error of 0, relative to the largest, count as 0.
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(full);
  const Eigen::VectorXd& values = eigen.eigenvalues();
  Eigen::VectorXd weights = eigen.eigenvectors().transpose() * b;
  const double least = std::max(values.cwiseAbs().maxCoeff(), 0.0) * static_cast<double>(d_) * 1e-14;
  for (Eigen::Index i = 0; i < n; ++i) weights[i] = values[i] > least ? weights[i] / values[i] : 0.0;
  const Eigen::VectorXd solution = scale.asDiagonal() * (eigen.eigenvectors() * weights).eval();
  std::copy(solution.data(), solution.data() + n, z.begin());
}

/// z = D^-1 X' y with (X D^-1 X' + I) y = t: a system with as many unknowns as rows.
void row_solver::solve_dual(std::span<const double> penalty, std::span<double> z) {
  const std::size_t n = count_;
  scaled_.resize(n * d_ + n * n + n + d_);
  double* scaled = scaled_.data();
  double* system = scaled + n * d_;
  double* y = system + n * n;
  double* inverse = y + n;
  for (std::size_t j = 0; j < d_; ++j) inverse[j] = 1 / penalty[j];
  for (std::size_t i = 0; i < n; ++i) {
    const double* row = x_.data() + i * stride_;
    double* to = scaled + i * d_;
    for (std::size_t j = 0; j < d_; ++j) to[j] = row[j] * inverse[j];
    for (std::size_t l = 0; l <= i; ++l) system[i * n + l] = dot_here(to, x_.data() + l * stride_, d_);
    system[i * n + i] += 1;
    y[i] = row[d_];
  }
  // Positive definite because of the 1 on the diagonal, unless numbers overflow.
  std::fill(z.begin(), z.end(), 0.0);
  if (!cholesky_here(n, n, system, y)) return;
  for (std::size_t i = 0; i < n; ++i) {
    const double* from = scaled + i * d_;
    for (std::size_t j = 0; j < d_; ++j) z[j] += y[i] * from[j];
  }
}

double row_solver::product(std::size_t i, std::span<const double> z) const {
  return dot_here(x_.data() + i * stride_, z.data(), d_);
}

double row_solver::residual(std::span<const double> z) const {
  double sum = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    const double e = x_[i * stride_ + d_] - product(i, z);
    sum += e * e;
  }
  return sum;
}

}  // namespace paracel::alg
