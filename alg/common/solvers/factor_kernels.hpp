// SPDX-License-Identifier: BSD-3-Clause
//
// The inner loops of the factor models: products of rows, and the least squares of one row. (sgd_kernel.hpp: steps of
// stochastic gradient descent.)
//
// A row of factors is | bias | 1 | factor 0 | ... | factor k - 1 |. The 1 marks a trained row (an untrained one is all
// zeros, so it predicts by the other side's bias alone), and makes `row + 1` the features of a linear regression with
// an intercept.
//
// Each loop is compiled twice, for any x86-64 and for AVX2 with FMA, and selected when the program starts. On a loaded
// machine, k 32, a row of ALS with 1,000 ratings took 134 instead of 208 ns a rating (AVX-512 would take 111). The two
// versions differ in the last bits: results are bit-identical on machines of one kind only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace paracel::alg {

inline constexpr std::size_t bias_at = 0;
inline constexpr std::size_t known_at = 1;
inline constexpr std::size_t factors_at = 2;
/// Elements of a row with k factors.
constexpr std::size_t row_width(std::size_t k) noexcept { return k + factors_at; }

/// sum_j a[j] b[j], in an order that depends on n alone.
double dot(const double* a, const double* b, std::size_t n) noexcept;
/// sum_j (a[j] - b[j])^2
double squared_distance(const double* a, const double* b, std::size_t n) noexcept;

/// Least squares of one row regressed on others: min_z |X z - t|^2 + sum_j penalty[j] z[j]^2 (+ z' G z).
/// Thread-safety: none; scratch memory is kept between calls.
class row_solver {
 public:
  /// `d`: coordinates of z.
  explicit row_solver(std::size_t d);

  /// Removes all rows.
  void clear() noexcept { count_ = 0; }
  /// Adds a row of X with its target; the caller fills in the d numbers. Lifetime of the span: until the next call.
  std::span<double> add(double target);
  [[nodiscard]] std::size_t rows() const noexcept { return count_; }

  /// The solution z for the rows. The problem is definite if all penalties are positive; otherwise z is the solution of
  /// minimal length. Cost: n d^2 + d^3 / 3 multiplications or, with 2 n < d, n^2 d + n^3 / 3.
  void solve(std::span<const double> penalty, std::span<double> z);
  /// The implicit form: min sum_i c_i (x_i z)^2 - 2 sum_i t_i x_i z + z' (G + diag(penalty)) z. `extra`: c; `gram`: G,
  /// d * d numbers.
  void solve_implicit(std::span<const double> extra, std::span<const double> gram, std::span<const double> penalty,
                      std::span<double> z);
  /// The same approximately: by `steps` steps of conjugate gradients from z, each of which decreases the function.
  /// Cost: (steps + 1) (2 n d + d^2) multiplications.
  void improve_implicit(std::span<const double> extra, std::span<const double> gram, std::span<const double> penalty,
                        std::size_t steps, std::span<double> z);
  /// sum_i (t_i - x_i z)^2 over the rows. Cost: n d
  [[nodiscard]] double residual(std::span<const double> z) const;
  /// x_i z
  [[nodiscard]] double product(std::size_t i, std::span<const double> z) const;

 private:
  void solve_primal(std::span<double> z);
  void solve_dual(std::span<const double> penalty, std::span<double> z);

  std::size_t d_;
  std::size_t stride_;  // of a row of X: d, the target, zeros up to a multiple of four
  std::size_t count_ = 0;
  std::vector<double> x_;
  std::vector<double> a_;       // lower triangle of X'X, then X't as one more row
  std::vector<double> scaled_;  // scaled rows of X
};

/// lower[i * stride + j] += sum_n x[n * stride + i] y[n * stride + j] for j <= i < d.
/// Shape: stride is a multiple of four; the padding of x and y beyond d is finite.
void add_gram(std::size_t rows, std::size_t d, std::size_t stride, const double* x, const double* y,
              double* lower) noexcept;

}  // namespace paracel::alg
