// SPDX-License-Identifier: BSD-3-Clause
//
// Steps of stochastic gradient descent of a factor model with biases; rows are those of factor_kernels.hpp, of float or
// double.
//
// The loop is compiled for any x86-64 and for AVX2 with FMA, and selected when the program starts; the two differ in
// the last bits. Rows of the next items are prefetched: with 100,000 items of 32 floats, too many for a second-level
// cache, a step took 40 instead of 96 ns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace paracel::alg {

struct sgd_step {
  std::size_t k = 0;
  double mean = 0;
  double alpha = 0;  ///< step size
  double beta = 0;   ///< weight of the regulariser
};

/// Ratings by user: those of user[j] are [begin[j], end[j]) of column and value; item row slot[c] is that of column c.
template <class Real>
struct sgd_runs {
  std::span<const std::uint32_t> user;
  std::span<const std::uint64_t> begin, end;
  std::span<const std::uint32_t> column;
  std::span<const Real> value;
  std::span<const std::uint32_t> slot;
};

/// Users whose ratings take turns. The next step of a user waits for the product of its last one, about 50 cycles;
/// those of others run meanwhile.
inline constexpr std::size_t sgd_lanes = 4;

/// Steps along these ratings, one after the other, in place:
///
///     e = r - mean - b_u - b_i - w.h     w += alpha (2 e h - beta w)     h += alpha (2 e w_old - beta h)     b alike
///
/// The first sgd_lanes runs take turns of one rating each; where one ends, the next run that has not begun takes its
/// turn, if there is one. No user may have two runs; none is empty. Returns the sum of e^2, each computed before its
/// step. Real: float or double.
/// Shape: row u of `users` and row i of `items` are the row_width(k) numbers from u * row_width(k) and i *
/// row_width(k).
template <class Real>
double sgd_pass(const sgd_step& step, Real* users, Real* items, const sgd_runs<Real>& runs) noexcept;

}  // namespace paracel::alg
