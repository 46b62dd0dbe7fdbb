// SPDX-License-Identifier: BSD-3-Clause
//
// A step on f(w) + sum_j l1_j |w_j| that moves all weights at once. In the orthant of w (for zeros, the one that they
// should move into) |w| is linear, so a Newton step for f needs only products with its Hessian; a weight that would
// change its sign stops at 0.
//
// Source: G. Andrew, J. Gao, "Scalable training of L1-regularized log-linear models", ICML 2007 (the orthant, the
// projection); R. Byrd, G. Chin, J. Nocedal, F. Oztoprak, "A family of second-order methods for convex l1-regularized
// optimization", Math. Programming 159, 2016 (Newton with conjugate gradients on it).
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace paracel::alg {

/// The subgradient of f + l1 |w| that is nearest to 0, `gradient` being that of f.
double l1_slope(double w, double gradient, double l1);

/// out = H v. `out` is initially zero.
using hessian_product = std::function<void(std::span<const double> v, std::span<double> out)>;

/// Solves H d = -slope on the coordinates where `free` is not 0 (d = 0 on the others) by conjugate gradients from d = 0
/// with the diagonal of H as preconditioner. Stops when the residual, in the norm of the inverse diagonal, is at most
/// `accuracy` times the initial one, or after `most` products: every iterate is a descent direction. Cost: one product
/// and O(n) an iteration.
std::vector<double> face_direction(const hessian_product& product, std::span<const double> diagonal,
                                   std::span<const double> slope, std::span<const char> free, double accuracy,
                                   std::size_t most);

/// `target`, which is w + step * direction, clamped at the boundary of the orthant.
double stay_in_orthant(double w, double slope, double target);

}  // namespace paracel::alg
