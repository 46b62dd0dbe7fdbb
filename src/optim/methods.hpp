// SPDX-License-Identifier: BSD-3-Clause
//
// The methods, one step at a time. The state of a method between two steps is one struct of numbers, so that it can be
// checkpointed. It is bit-identical at every worker, because sums over workers are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <paracel/optim.hpp>

#include "optim/line_search.hpp"
#include "optim/problem.hpp"

namespace paracel::optim {

/// Indices into method_state::numbers.
enum number : std::size_t {
  value,                ///< F(w)
  gradient_norm,        ///< of the (pseudo-)gradient at w
  first_gradient_norm,  ///< at the start, or at settings::reference
  evaluations,          ///< those of earlier processes included
  products,
  small_steps,  ///< successive ones that lowered F by less than the tolerance
  step_length,  ///< gd, cg: of the last step
  last_slope,   ///< cg: of the last step
  radius,       ///< newton: of the trust region
  pairs,        ///< lbfgs: in memory
  next_pair,    ///< lbfgs: slot of the next one
  batches,      ///< sgd: so far
  number_count,
};

struct method_state {
  std::vector<double> w;
  std::vector<double> gradient;  ///< of the smooth part at w
  /// problem::inverse_curvatures, a diagonal M. Methods work as if the coordinates were w_j / sqrt(M_j), in which F
  /// curves alike along each; so scaling a coordinate changes nothing but rounding.
  std::vector<double> metric;
  /// lbfgs, owlqn: the pairs (this worker's part, if wide): s of slot 0, y of slot 0, s of slot 1, ...
  /// cg: the next direction. sgd: the iterate, then the average of the iterates.
  std::vector<double> memory;
  std::vector<double> numbers;  ///< lbfgs, owlqn: after the named ones s.y of each slot
};

/// x_j M_j
inline double scaled_by(const std::vector<double>& metric, std::size_t j, double x) {
  return metric.empty() ? x : metric[j] * x;
}
/// sqrt(g' M g)
double length_of(problem& p, const method_state& s, std::span<const double> gradient);
/// The first step along -M g, or of length 1 along -g without a metric. It moves coordinates of columns of size 1 by
/// about 1, whatever the scale of F: with log losses, whose second derivatives are at most 1/4, by just that.
double first_step(problem& p, const method_state& s, std::span<const double> gradient);
/// M g
std::vector<double> steepest(const method_state& s, std::span<const double> gradient);

/// Whether a step moved w.
enum class step_outcome { moved, nothing_found };

/// Evaluates F at the reference, if there is one, and at the start. Throws: error when it is not finite.
void begin(problem& p, method_state& s);

/// One step of the method of p.how(). `number`: of the step, from 1.
step_outcome step(problem& p, method_state& s, int number);

/// Whether gradient_tolerance is reached.
[[nodiscard]] bool is_within_tolerance(const problem& p, const method_state& s);

/// After a step that moved w: whether a tolerance is reached. `before`: F before the step.
[[nodiscard]] bool has_converged(const problem& p, method_state& s, double before, ending& why);

// ---- the steps; `step` calls them

step_outcome gd_step(problem& p, method_state& s, int number);
step_outcome sgd_step(problem& p, method_state& s, int number);
step_outcome lbfgs_step(problem& p, method_state& s, int number);
step_outcome owlqn_step(problem& p, method_state& s, int number);
step_outcome newton_step(problem& p, method_state& s, int number);
step_outcome cg_step(problem& p, method_state& s, int number);

/// Throws error: `what` is not finite at the step.
[[noreturn]] void refuse_not_finite(const problem& p, int number, double found);

/// For steps with Hessian products: in a process that has resumed, the objective has not evaluated w yet.
void revisit_if_resumed(problem& p, const method_state& s, int number);

/// A point on a line from w, evaluated.
struct line_trial {
  std::vector<double> w;
  std::vector<double> gradient;
  double value = 0;
};
/// Moves w and its gradient along `direction` to a point that satisfies the conditions. `slope`: gradient.direction.
/// Returns: the step length; 0: there is none, and nothing has changed. Throws: error when no value is finite.
double move_along(problem& p, method_state& s, int number, const std::vector<double>& direction, double slope,
                  double first, const wolfe_conditions& wanted, line_trial& trial);

}  // namespace paracel::optim
