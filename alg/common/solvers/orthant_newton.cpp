// SPDX-License-Identifier: BSD-3-Clause
#include "orthant_newton.hpp"

#include <algorithm>
#include <cmath>

namespace paracel::alg {

double l1_slope(double w, double gradient, double l1) {
  if (w != 0) return gradient + std::copysign(l1, w);
  return std::abs(gradient) > l1 ? gradient - std::copysign(l1, gradient) : 0.0;
}

double stay_in_orthant(double w, double slope, double target) {
  // The sign of the orthant: of the weight or, if it is 0, of the descent direction.
  const double side = w != 0 ? w : -slope;
  return side * target > 0 ? target : 0.0;
}

std::vector<double> face_direction(const hessian_product& product, std::span<const double> diagonal,
                                   std::span<const double> slope, std::span<const char> free, double accuracy,
                                   std::size_t most) {
  const std::size_t n = slope.size();
  std::vector<double> direction(n);
  std::vector<double> residual(n);
  std::vector<double> towards(n);
  std::vector<double> image(n);
  // The squared norm of the residual, weighted by the inverse diagonal.
  const auto conditioned = [&] {
    double sum = 0;
    for (std::size_t j = 0; j < n; ++j) {
      if (free[j] != 0) sum += residual[j] * residual[j] / diagonal[j];
    }
    return sum;
  };
  for (std::size_t j = 0; j < n; ++j) {
    if (free[j] == 0) continue;
    residual[j] = -slope[j];
    towards[j] = residual[j] / diagonal[j];
  }
  double square = conditioned();
  const double enough = accuracy * accuracy * square;
  for (std::size_t k = 0; k < most && square > enough; ++k) {
    std::fill(image.begin(), image.end(), 0.0);
    product(towards, image);
    double bend = 0;
    for (std::size_t j = 0; j < n; ++j) bend += towards[j] * image[j];
    if (!(bend > 0)) break;  // no curvature within rounding error
    const double length = square / bend;
    for (std::size_t j = 0; j < n; ++j) {
      if (free[j] == 0) continue;
      direction[j] += length * towards[j];
      residual[j] -= length * image[j];
    }
    const double before = square;
    square = conditioned();
    for (std::size_t j = 0; j < n; ++j) {
      if (free[j] != 0) towards[j] = residual[j] / diagonal[j] + square / before * towards[j];
    }
  }
  return direction;
}

}  // namespace paracel::alg
