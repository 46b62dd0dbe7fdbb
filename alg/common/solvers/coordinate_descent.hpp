// SPDX-License-Identifier: BSD-3-Clause
//
// Coordinate descent on a quadratic with an L1 penalty, the inner problem of lasso and of lr_l1:
//
//     Q(w) = 1/2 w'Gw - q'w + sum_j l1_j |w_j| + l2/2 |w|^2
//
// Where the coordinates are so strongly correlated that sweeps hardly make progress, Newton steps on the nonzero ones
// are added.
#pragma once

#include <cstddef>
#include <span>

namespace paracel::alg {

/// Optimality violation of coordinate j: the distance from 0 to the subdifferential. `correlation` is (q - Gw)_j.
double l1_violation(double w, double correlation, double l1, double l2 = 0);

/// `gram` is G, packed (design_matrix.hpp); `correlation` is q - Gw. w and correlation are updated in place until no
/// coordinate's violation exceeds its `tolerance`. Coordinates with 0 on the diagonal of G keep their value. Zeros are
/// exact. After `patience` sweeps over the same coordinates Newton steps are used too; among equal solutions they tend
/// to a sparse one. Returns: the number of sweeps. Cost: O(n) for each coordinate that changes.
std::size_t l1_descend(std::span<const double> gram, std::span<const double> l1, double l2,
                       std::span<const double> tolerance, std::span<double> w, std::span<double> correlation,
                       std::size_t patience = 12);

}  // namespace paracel::alg
