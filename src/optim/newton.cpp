// SPDX-License-Identifier: BSD-3-Clause
//
// A trust-region Newton method: conjugate gradients in the norm of a preconditioner until the boundary of the region
// (Steihaug), or until Newton's equations are solved well enough. With few coordinates the Hessian itself is summed
// over the workers, and its products need no rows.
//
// If F rises again at the end of a step, the step is cut at F's minimum along it: a curvature that changes along the
// step, as the squared hinge's where rows cross to the wrong side, is no reason for a smaller region. Not with the
// Hessian itself, where a smaller region is cheaper, as it ends the conjugate gradients early. Source of the line
// search: L. Galli, C.-J. Lin, "A study on truncated Newton methods for linear classification", IEEE Transactions on
// Neural Networks and Learning Systems 33, 2022. 960 rows, 20,000 features, squared hinge, C = 1, gradient to 1e-4: 15
// steps; with a smaller region instead 939.
#include <algorithm>
#include <cmath>
#include <string>

#include <paracel/error.hpp>

#include "optim/methods.hpp"
#include "optim/vectors.hpp"

namespace paracel::optim {

namespace {

// Lin and More's: steps that lower F by more than eta0 of what the quadratic predicts are accepted.
constexpr double eta0 = 1e-4, eta1 = 0.25, eta2 = 0.75;
constexpr double sigma1 = 0.25, sigma2 = 0.5, sigma3 = 4;
// Newton's equations are solved to this fraction of the gradient, and more accurately near the minimum, where
// convergence is then superlinear. A million rows, 100,000 features, C = 1, gap 1e-6: 33 products with 0.5, 45 with
// 0.1, in the same 7 steps, since far from the minimum a step is limited by the quadratic model, not by its accuracy.
constexpr double most_residual = 0.5;
// But no more accurately than this fraction of the reduction that the gradient still needs.
constexpr double enough_residual = 0.5;
constexpr double dense_residual = 1e-12;
// A coordinate's second derivative is taken to be at least this fraction of its size anywhere.
constexpr double least_curvature = 1e-8;
// Successive rejected steps before the method gives up.
constexpr int most_rejections = 40;

/// The step s, its residual -g - H s, and whether it ends at the boundary.
struct region_step {
  std::vector<double> s;
  std::vector<double> residual;
  double length = 0;  // in the norm of the preconditioner
};

template <class Product>
region_step steihaug(std::span<const double> gradient, std::span<const double> preconditioner, double radius,
                     double accuracy, std::size_t most, Product&& product) {
  const std::size_t n = gradient.size();
  region_step r;
  r.s.assign(n, 0.0);
  r.residual.resize(n);
  std::vector<double> z(n);
  std::vector<double> d(n);
  std::vector<double> hd(n);
  const auto precondition = [&] {
    for (std::size_t j = 0; j < n; ++j) z[j] = r.residual[j] / preconditioner[j];
    return dot(z, r.residual);
  };
  for (std::size_t j = 0; j < n; ++j) r.residual[j] = -gradient[j];
  double rz = precondition();
  const double enough = accuracy * std::sqrt(rz);
  d = z;
  // In the norm of the preconditioner: the squares of s and d, and their product.
  double ss = 0;
  double sd = 0;
  double dd = rz;
  for (std::size_t i = 0; i < most && std::sqrt(rz) > enough && rz > 0; ++i) {
    product(std::span<const double>(d), std::span<double>(hd));
    const double curvature = dot(d, hd);
    double alpha = rz / curvature;
    const bool out = !(curvature > 0) || ss + 2 * alpha * sd + alpha * alpha * dd >= radius * radius;
    // To the boundary. In units of d's length: the products of squares might underflow.
    if (out) {
      const double along = sd / std::sqrt(dd);
      alpha = (-along + std::sqrt(std::max(0.0, along * along + radius * radius - ss))) / std::sqrt(dd);
    }
    add_scaled(alpha, d, r.s);
    add_scaled(-alpha, hd, r.residual);
    ss += 2 * alpha * sd + alpha * alpha * dd;
    if (out) break;
    const double before = rz;
    rz = precondition();
    const double beta = rz / before;
    for (std::size_t j = 0; j < n; ++j) d[j] = z[j] + beta * d[j];
    sd = beta * (sd + alpha * dd);
    dd = rz + beta * beta * dd;
  }
  r.length = std::sqrt(std::max(0.0, ss));
  return r;
}

// A search along a step ends at this fraction of the slope at its begin, or after this many evaluations.
constexpr double enough_slope = 0.1;
constexpr int most_evaluations = 10;

/// Finds F's minimum between s.w and s.w + step, by secants of its slope, which is `slope` < 0 at s.w and > 0 at `w`,
/// the end of the step. Returns: whether F is lower there; then w, gradient and found are those of that point.
bool minimum_along(problem& p, const method_state& s, std::span<const double> step, double slope,
                   std::vector<double>& w, std::vector<double>& gradient, double& found) {
  double low = 0;
  double high = 1;
  double at_low = slope;
  double at_high = dot(gradient, step);
  double t = 1;
  for (int i = 0; i < most_evaluations; ++i) {
    const double part = -at_low / (at_high - at_low);
    t = low + (high - low) * std::clamp(part, 0.05, 0.95);
    for (std::size_t j = 0; j < w.size(); ++j) w[j] = s.w[j] + t * step[j];
    found = p.evaluate(w, gradient);
    if (!std::isfinite(found)) return false;
    const double here = dot(gradient, step);
    if (std::abs(here) <= enough_slope * -slope) break;
    if (here < 0) {
      low = t;
      at_low = here;
    } else {
      high = t;
      at_high = here;
    }
  }
  return s.numbers[value] - found > eta0 * t * -slope;
}

}  // namespace

step_outcome newton_step(problem& p, method_state& s, int number) {
  const std::size_t n = p.size();
  const bool dense = p.is_dense();
  revisit_if_resumed(p, s, number);
  std::vector<double> packed;
  std::vector<double> preconditioner(n, 1.0);
  const auto measure = [&] {
    if (dense) {
      p.hessian(packed);
      for (std::size_t j = 0; j < n; ++j) preconditioner[j] = packed[packed_row(n, j) + j];
    } else if (!p.hessian_diagonal(preconditioner)) {
      for (std::size_t j = 0; j < n; ++j) preconditioner[j] = 1 / scaled_by(s.metric, j, 1);
    }
    // Coordinates that have no curvature at w, such as those of features that are always 0.
    if (!s.metric.empty()) {
      for (std::size_t j = 0; j < n; ++j)
        preconditioner[j] = std::max(preconditioner[j], least_curvature / s.metric[j]);
      return;
    }
    const double most = *std::max_element(preconditioner.begin(), preconditioner.end());
    for (auto& x : preconditioner) x = std::max(x, most > 0 ? least_curvature * most : 1.0);
  };
  measure();
  const auto inverse_norm = [&] {
    double sum = 0;
    for (std::size_t j = 0; j < n; ++j) sum += s.gradient[j] * s.gradient[j] / preconditioner[j];
    return std::sqrt(sum);
  };
  double& delta = s.numbers[radius];
  if (number == 1) delta = inverse_norm();
  const double reached = s.numbers[gradient_norm] / s.numbers[first_gradient_norm];
  const double needed = enough_residual * p.how().gradient_tolerance / reached;
  const double accuracy = dense ? dense_residual : std::min(most_residual, std::max(std::sqrt(reached), needed));
  std::vector<double> w(n);
  std::vector<double> gradient(n);
  const double rounding = 1e-14 * std::abs(s.numbers[value]);
  bool finite = false;
  double found = 0;
  for (int rejected = 0; rejected < most_rejections; ++rejected) {
    const auto r = steihaug(s.gradient, preconditioner, delta, accuracy, dense ? 4 * n : std::min<std::size_t>(n, 1000),
                            [&](std::span<const double> v, std::span<double> out) {
                              if (dense) packed_product(packed, v, out);
                              else p.hessian_vector(v, out);
                            });
    const double slope = dot(s.gradient, r.s);
    if (!(slope < 0)) return step_outcome::nothing_found;
    const double predicted = -0.5 * (slope - dot(r.s, r.residual));
    for (std::size_t j = 0; j < n; ++j) w[j] = s.w[j] + r.s[j];
    found = p.evaluate(w, gradient);
    finite |= std::isfinite(found);
    const double actual = s.numbers[value] - found;
    if (number == 1 && rejected == 0) delta = std::min(delta, r.length);
    if (!dense && std::isfinite(found) && predicted > rounding && actual < eta1 * predicted && dot(gradient, r.s) > 0) {
      if (minimum_along(p, s, r.s, slope, w, gradient, found)) {
        delta = std::max(delta, sigma3 * r.length);
        s.w.swap(w);
        s.gradient.swap(gradient);
        s.numbers[value] = found;
        return step_outcome::moved;
      }
      delta = std::min(sigma1 * r.length, sigma2 * delta);
      p.evaluate(s.w, s.gradient);
      continue;
    }
    double alpha = sigma3;
    if (!std::isfinite(found)) alpha = sigma1;
    else if (-actual - slope > 0) alpha = std::max(sigma1, -0.5 * (slope / (-actual - slope)));
    if (!std::isfinite(found) || actual < eta0 * predicted)
      delta = std::min(std::max(alpha, sigma1) * r.length, sigma2 * delta);
    else if (actual < eta1 * predicted) delta = std::max(sigma1 * delta, std::min(alpha * r.length, sigma2 * delta));
    else if (actual < eta2 * predicted) delta = std::max(sigma1 * delta, std::min(alpha * r.length, sigma3 * delta));
    else delta = std::max(delta, std::min(alpha * r.length, sigma3 * delta));
    // Where both are rounding errors, the gradient decides.
    const bool level = std::abs(actual) <= rounding && predicted <= rounding &&
                       length_of(p, s, gradient) < length_of(p, s, s.gradient);
    if (actual > eta0 * predicted || level) {
      s.w.swap(w);
      s.gradient.swap(gradient);
      s.numbers[value] = found;
      return step_outcome::moved;
    }
    if (predicted <= rounding) break;
    // The objective must hold the derivatives at s.w again.
    if (!dense) p.evaluate(s.w, s.gradient);
  }
  if (!finite) refuse_not_finite(p, number, found);
  return step_outcome::nothing_found;
}

std::size_t linear_cg(const std::function<void(std::span<const double>, std::span<double>)>& product,
                      std::span<const double> b, std::span<double> x, double tolerance, std::size_t most) {
  const std::size_t n = b.size();
  std::vector<double> r(n);
  std::vector<double> ad(n);
  product(x, ad);
  for (std::size_t j = 0; j < n; ++j) r[j] = b[j] - ad[j];
  std::vector<double> d = r;
  double rr = dot(r, r);
  const double enough = tolerance * norm(b);
  std::size_t done = 1;
  for (; done < most && std::sqrt(rr) > enough; ++done) {
    product(d, ad);
    const double curvature = dot(d, ad);
    if (!(curvature > 0))
      throw error("conjugate gradients: d.Ad is " + std::to_string(curvature) + " in iteration " +
                  std::to_string(done) + "; want a positive definite matrix");
    const double alpha = rr / curvature;
    add_scaled(alpha, d, x);
    add_scaled(-alpha, ad, r);
    const double before = rr;
    rr = dot(r, r);
    for (std::size_t j = 0; j < n; ++j) d[j] = r[j] + rr / before * d[j];
  }
  return done;
}

}  // namespace paracel::optim
