// SPDX-License-Identifier: BSD-3-Clause
//
// Alternating least squares for a factorization machine. The margin is linear in the k + 1 numbers of a feature,
//
//     m(x) = rest + x_j (w_j + v_j . (q - x_j v_j))          q = sum_l x_l v_l
//
// so with squared loss the best w_j, v_j, all others being fixed, solve k + 1 equations. Features of one colour
// (feature_colours.hpp) have no sample in common: their equations are independent, and they are updated together. A
// round updates w_0, then colour after colour, each to the minimum over its features: the objective never rises.
//
// With log loss a step minimises instead an upper bound of the objective that has its value and slope at the current
// model: log(1 + exp(-z)) is at most a parabola through z with the second derivative tanh(z/2) / (2 z).
//
// The equations of a feature are sums over its samples on all workers: they are reduce-scattered and solved by their
// owners, and the steps are all-gathered.
//
// Source: S. Rendle, Z. Gantner, C. Freudenthaler, L. Schmidt-Thieme, "Fast context-aware recommendations with
// factorization machines", SIGIR 2011 (one number at a time; here all k + 1 of a feature); T. Jaakkola, M. Jordan, "A
// variational approach to Bayesian logistic regression models and their extensions", AISTATS 1997 (the bound).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <paracel/collectives.hpp>
#include <paracel/samples.hpp>

#include "fm_kernel.hpp"

namespace paracel::alg {

/// Shape of `model`: k + 1 numbers for the bias (w_0; the others are not used) and then for each feature, as in the
/// table of fm. Every worker has all of it. Lifetime: the samples and weights must outlive it. Thread-safety: none.
class fm_als {
 public:
  /// A collective: finds the colours. `weights`: empty for ones.
  fm_als(collectives& all, const sample_rows& rows, std::span<const double> weights, fm_loss loss, std::size_t k,
         fm_penalty penalty, bool bias);

  [[nodiscard]] std::size_t colours() const noexcept { return colours_; }
  /// The model before the first round: `bias`, and fm_start_row of each feature that a sample of any worker has.
  [[nodiscard]] std::vector<double> start(double bias, std::uint64_t seed, double sd) const;
  /// Updates every number once. Returns: the objective. A collective. Cost: for each entry (k + 1)(k + 2) / 2
  /// multiplications; for n features sums of n (k + 1)(k + 4) / 2 numbers, scattered, and n (k + 1) gathered.
  double round(collectives& all, std::span<double> model);

 private:
  struct block {  // of features of one colour
    std::size_t begin;
    std::size_t end;
  };
  void set_margins(std::span<const double> model);
  void move_bias(collectives& all, std::span<double> model);
  void move_block(collectives& all, const block& features, std::span<double> model);
  /// Equations of a feature from this worker's samples: the lower triangle row by row, then the gradient.
  void add_equations(std::size_t at, std::span<const double> row, std::span<double> to);
  /// The step that minimises: (A + penalty) step = -(g + penalty row). Coordinates without curvature do not move.
  void solve(std::span<double> equations, double samples, std::span<const double> row, std::span<double> step) const;
  [[nodiscard]] double slope(std::size_t i) const;
  [[nodiscard]] double curvature(std::size_t i) const;
  [[nodiscard]] double weight(std::size_t i) const { return weights_.empty() ? 1 : weights_[i]; }

  std::span<const double> weights_;
  fm_loss loss_;
  std::size_t k_;
  fm_penalty penalty_;
  bool bias_;
  std::uint32_t columns_;
  std::size_t colours_ = 0;
  std::vector<std::uint32_t> order_;  // features by colour
  std::vector<block> blocks_;         // of order_
  std::vector<std::size_t> begin_;    // entries of order_[f] are [begin_[f], begin_[f + 1]) of sample_ and value_
  std::vector<std::uint32_t> sample_;
  std::vector<double> value_;
  std::vector<double> weight_of_;  // by place in order_: the total weight of its samples, over all workers
  std::vector<double> label_;
  std::vector<double> margin_;
  std::vector<double> q_;  // k a sample
  std::vector<double> equations_;
  std::vector<double> steps_;
  std::vector<double> tile_;    // by sample: derivatives of the margin by the feature's numbers
  std::vector<double> scaled_;  // the same times curvature, and the slope of the loss
  std::vector<double> triangle_;
};

}  // namespace paracel::alg
