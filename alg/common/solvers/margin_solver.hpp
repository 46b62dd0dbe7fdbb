// SPDX-License-Identifier: BSD-3-Clause
//
// Support vector machines: minimises |w|^2/2 + C sum_i weight_i loss(x_i.w + bias, y_i) for losses of a margin. A loss
// with a kink can be minimised by coordinate ascent on the dual problem (dual_solver.hpp); the alternative, for any
// loss, is Newton's method:
//
// In a loss with a kink (hinge, epsilon-insensitive) max(0, t) is replaced by mu log(1 + exp(t / mu)), which exceeds it
// by at most mu log 2, and the sum is minimised for mu = first, first / 4, first / 16, ..., each time starting near the
// previous minimum. The slopes s of the rows at w are a point of the dual problem, so the duality gap
//
//     C sum (weight loss + y s + epsilon |s|) + |w|^2/2 + |C X's|^2/2          >= F(w) - F(best w)
//
// bounds the distance from the minimum of F, which has the loss with its kink; the solver stops when the gap is small
// enough. If the bias is not penalised, |bias C sum s| is added. Where rounding keeps the gap from falling, the dual
// solver takes over.
//
// A run that continues a model tries these mu on its w before the first step: the least gap bounds the distance of w
// from the minimum. Newton's steps begin at a mu whose smoothing is about as large, the dual solver at the slopes.
//
// Source: Y.-J. Lee, O. Mangasarian, "SSVM: a smooth support vector machine for classification", Computational
// Optimization and Applications 20, 2001 (the smooth loss); O. Chapelle, "Training a support vector machine in the
// primal", Neural Computation 19, 2007.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <paracel/optim.hpp>
#include <paracel/optim_losses.hpp>
#include <paracel/paralg.hpp>
#include <paracel/samples.hpp>
#include <paracel/settings.hpp>

#include "alg/common/output/run_log.hpp"
#include "column_shift.hpp"

namespace paracel::alg {

struct margin_loss {
  optim::loss_ptr exact;
  std::function<optim::loss_ptr(double mu)> smoothed{};  ///< empty: the loss has no kink
  double first_mu = 1;
  double epsilon = 0;      ///< of the conjugate y s + epsilon |s|
  bool two_sided = false;  ///< epsilon-insensitive, not hinge
};

/// max(0, 1 - y m), and max(0, |m - y| - epsilon) as a sum of both sides, smoothed. `mu`: above 0.
optim::loss_ptr smoothed_hinge(double mu);
optim::loss_ptr smoothed_epsilon_insensitive(double epsilon, double mu);

enum class margin_method { automatic, dual, newton, lbfgs };

struct margin_settings {
  void keys(key_list& k);
  /// Throws: config_error if the method cannot minimise the loss, which has a kink or is squared.
  void check(const config& from, bool kink, const std::string& kinked_name, const std::string& squared_name) const;

  double c = 1;
  bool bias = true;
  bool penalize_bias = true;
  std::string bias_place;  ///< of the key
  margin_method method = margin_method::automatic;
  int rounds = 1000;
  double tolerance = 1e-4;
};

struct margin_fit {
  std::vector<double> w;  ///< with a bias first
  double objective = 0;   ///< with the exact loss
  double gap = 0;         ///< with a kink: the duality gap, an upper bound of the distance to the minimum
  double magnitude = 0;   ///< of the numbers whose difference the gap is
  double gradient_norm = 0;
  int steps = 0;
  bool converged = false;
  std::string text;  ///< why it ended
};

using margin_watch = std::function<void(int step, double objective, const run_log::figures& more)>;

/// Centres the rows, where F can be minimised in the coordinates of centred rows: with a bias that is not penalised, or
/// a squared loss. A collective.
column_shift centre_margins(Comm comm, sample_rows& rows, const margin_loss& loss, const margin_settings& settings);

/// A collective. `shift`: of the rows. `weights`: of the rows; empty: ones. `initial`: where to begin, in the units of
/// the rows before they were shifted; it may lack the last features; empty: no model. `held_out.best` is not used.
/// `watch`: called on rank 0 after each step, with F, by newton that of the smoothed loss. Cost: see dual_solver.hpp;
/// otherwise that of newton or lbfgs (doc/optim.md), plus a pass and two sums of p + 3 numbers for each mu; with an
/// initial model and a kink first up to about ten more of these.
margin_fit fit_margins(paralg& job, const sample_rows& rows, const column_shift& shift,
                       const std::vector<double>& weights, const margin_loss& loss, const margin_settings& settings,
                       std::vector<double> initial, optim::validation held_out, const margin_watch& watch);

/// The gap at which a fit has converged: a fraction of the objective or, where that is almost 0, of its value without a
/// model; but no less than the rounding error of the gap.
inline double enough_gap(const margin_settings& settings, double objective, double without, double magnitude) {
  return std::max(settings.tolerance * std::max(std::abs(objective), 1e-6 * without), 1e-13 * magnitude);
}

/// Whether fit_margins solves the dual problem.
bool is_dual(const margin_settings& settings, const margin_loss& loss, const sample_rows& rows);
/// The name of the objective in metrics.jsonl.
inline const char* metric_of(const margin_settings& settings, const margin_loss& loss, const sample_rows& rows) {
  return loss.smoothed && !is_dual(settings, loss, rows) ? "smooth_objective" : "objective";
}

/// optim::validation::measure for a loss of margins. `correct(margin, label)`: whether a row counts as predicted
/// correctly. Lifetime: of `rows`.
std::function<void(std::span<const double>, std::span<double>)> measure_margins(
    const sample_rows& rows, bool bias, optim::loss_ptr loss, std::function<bool(double, double)> correct);

}  // namespace paracel::alg
