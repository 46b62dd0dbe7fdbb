// SPDX-License-Identifier: BSD-3-Clause
//
// Minimising functions that are sums over the rows of all workers. An objective is a class with the value and the
// gradient of its own worker's rows; the rest (sums over the workers, line searches, checkpoints, metrics) is here.
//
//   F(w) = scale * sum over all rows of weight * loss + l1 |w|_1 + l2 w.w          scale: 1 / (sum of weights)
//
//   optim::settings s;
//   s.how = optim::method::lbfgs;
//   s.penalty.l2 = 1e-3;
//   const auto found = optim::minimize(job, objective, s);      // every worker; found.w is the same on all
//
// optim_losses.hpp has objectives of linear models; doc/optim.md a complete one of 30 lines.
//
// method   smooth F needed   a step                                       what is sent in a step, n coordinates
// gd       no (l1)           backtracking (proximal) gradient step        n + 1 numbers an evaluation
// sgd      no                a pass in mini-batches, averaged             n + 1 numbers a batch
// lbfgs    yes               10 pairs, strong Wolfe conditions            n + 1 an evaluation, mostly one
// owlqn    no (l1)           lbfgs on the pseudo-gradient in an orthant   the same
// newton   yes, Hessian      trust region, conjugate gradients            n + 1, and n a Hessian-vector product
// cg       yes               Polak-Ribiere+, strong Wolfe conditions      n + 1 an evaluation
//
// Source: J. Nocedal, S. Wright, "Numerical Optimization", 2nd edition, 2006 (line search, lbfgs, cg); G. Andrew,
// J. Gao, "Scalable training of L1-regularized log-linear models", ICML 2007 (owlqn); C.-J. Lin, J. More, "Newton's
// method for large bound-constrained optimization problems", SIAM J. Optim. 9, 1999, and C.-J. Lin, R. Weng,
// S. Keerthi, "Trust region Newton method for logistic regression", JMLR 9, 2008 (newton).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace paracel {

class paralg;

namespace optim {

/// A differentiable function that is a sum over rows, of which each worker has a part. All functions cover this
/// worker's rows only, and are called with the same w on every worker. Penalties are not included.
/// Thread-safety: none.
class objective {
 public:
  objective() = default;
  objective(const objective&) = delete;
  objective& operator=(const objective&) = delete;
  virtual ~objective() = default;

  /// Number of coordinates of w. The same on every worker, unless they have coordinates of their own.
  [[nodiscard]] virtual std::size_t dimension() const = 0;
  /// Number of leading coordinates that all workers share; the same on every worker. The others are this worker's own:
  /// only its rows depend on them, such as the factors of users whose ratings are all here. They are never sent. For cg
  /// and lbfgs; penalties and held-out rows are then up to the objective.
  [[nodiscard]] virtual std::size_t shared() const { return dimension(); }
  /// Sum of the weights of the rows; without weights, their number.
  [[nodiscard]] virtual double weight() const = 0;
  /// Returns: the sum of weight * loss. Adds its gradient to `gradient`. A value that is not finite means that the step
  /// was too long.
  virtual double value_and_gradient(std::span<const double> w, std::span<double> gradient) = 0;
  /// The units in which steps and gradients are measured, so that a run does not depend on the scale of the
  /// coordinates. Adds for each coordinate the size that the second derivative of these rows has, whatever w is, such
  /// as an upper bound, to `sums`, and the weight of the rows that it is of to `weights`: a coordinate that few rows
  /// depend on is not a small one. Called once, after the first value_and_gradient; by default the diagonal of the
  /// Hessian there. Returns: whether it is known; otherwise all coordinates count alike.
  virtual bool curvature_scale(std::span<double> sums, std::span<double> weights);
  /// The same from a sample of the rows of all workers, where that is cheaper. Used unless a coordinate then has weight
  /// 0 on all workers together. Returns: whether there is one, by default not; the same on every worker.
  virtual bool sampled_curvature_scale(std::span<double> sums, std::span<double> weights);

  // ---- for newton

  [[nodiscard]] virtual bool has_hessian() const { return false; }
  /// out += H v at the w of the last call of value_and_gradient.
  virtual void hessian_vector(std::span<const double> v, std::span<double> out);
  /// Adds the diagonal of that H to `out`, for a preconditioner. Returns: false if it is not available.
  virtual bool hessian_diagonal(std::span<double> out);
  /// Whether `hessian` costs less than the products that it saves; false on one worker decides for all.
  [[nodiscard]] virtual bool prefers_dense_hessian() const { return false; }
  /// Adds the upper triangle of H, row after row, to `packed`. Shape: dimension (dimension + 1) / 2.
  virtual void hessian(std::span<double> packed);

  // ---- for sgd

  [[nodiscard]] virtual std::size_t rows() const { return 0; }
  /// Rows of the workers with lower ranks: batches depend on a row's global number.
  [[nodiscard]] virtual std::uint64_t first_row() const { return 0; }
  /// The same as value_and_gradient, for some of the rows.
  virtual double rows_value_and_gradient(std::span<const std::size_t> rows, std::span<const double> w,
                                         std::span<double> gradient);

  // ---- for settings::chunks: the same for a range of rows, which may belong to another worker

  [[nodiscard]] virtual bool has_chunks() const { return false; }
  /// As value_and_gradient, for rows [begin, end). It need not prepare for hessian_vector.
  virtual double range_value_and_gradient(std::size_t begin, std::size_t end, std::span<const double> w,
                                          std::span<double> gradient);
  /// Rows [begin, end), with their weights, for another worker.
  [[nodiscard]] virtual std::vector<std::byte> pack_rows(std::size_t begin, std::size_t end) const;
  /// Unpacks them on another worker, and computes their value and gradient there: bit-identical to
  /// range_value_and_gradient on their owner.
  [[nodiscard]] virtual std::shared_ptr<const void> unpack_rows(std::span<const std::byte> packed) const;
  virtual double packed_value_and_gradient(const void* unpacked, std::span<const double> w, std::span<double> gradient);
};

enum class method { gd, sgd, lbfgs, owlqn, newton, cg };
/// Throws: config_error for another name.
[[nodiscard]] method method_of(const std::string& name);
[[nodiscard]] const char* name_of(method m);

struct penalties {
  double l1 = 0;  ///< of |w|_1: gd and owlqn only
  double l2 = 0;  ///< of w.w, not of half of it
  /// A vector a: l2 also multiplies (a.w)^2. The penalty of an intercept whose features were shifted: it is then a
  /// combination of coordinates. Empty: none.
  std::vector<double> combination{};
  /// Coordinates without a penalty, such as intercepts; ascending.
  std::vector<std::size_t> free{};
};

/// The w with the lowest loss on the held-out rows.
struct best_step {
  std::vector<double> w{};  ///< empty: none yet
  double loss = std::numeric_limits<double>::infinity();
  int steps_since = 0;
};

/// Held-out rows, which are not trained on: after each step every worker measures w on its part of them.
struct validation {
  /// Adds three sums over this worker's held-out rows to `sums`: weight, weight * loss, and the weight of the rows
  /// predicted correctly. Empty: nothing is held out.
  std::function<void(std::span<const double> w, std::span<double> sums)> measure{};
  int patience = 0;  ///< stops after this many steps without a lower loss; 0: never
  best_step best{};  ///< the best step of an earlier run that this one continues
};

/// What is measured after each step.
struct progress {
  int step = 0;
  double value = 0;          ///< F
  double gradient_norm = 0;  ///< as gradient_measure says; with l1, of the subgradient nearest to 0
  double evaluations = 0;    ///< values and gradients of all rows so far
  double products = 0;       ///< Hessian-vector products so far
  double seconds = 0;        ///< of this step
  /// Means over the held-out rows; nan without any.
  double validation_loss = std::numeric_limits<double>::quiet_NaN();
  double validation_accuracy = std::numeric_limits<double>::quiet_NaN();
};

/// The norm of a gradient g.
enum class gradient_measure {
  scaled,  ///< sqrt(sum g_j^2 / c_j), c_j of the objective's curvature_scale: independent of the coordinates' scales
  plain,   ///< Euclidean
};

struct settings {
  method how = method::lbfgs;
  penalties penalty{};
  double scale = 0;             ///< factor of the sum of losses; 0: 1 / (sum of weights)
  std::vector<double> start{};  ///< empty: zeros. Rank 0's is used.
  /// What gradient_tolerance refers to: the gradient here; empty: at the start. For a start that may be the minimum
  /// already, from where no gradient falls by much: a point that does not depend on it, the same on every worker. A
  /// start within the tolerance ends the run. Cost: one more evaluation.
  std::vector<double> reference{};
  int max_steps = 1000;              ///< sgd: passes
  double gradient_tolerance = 1e-6;  ///< ends when the gradient's norm is at most this fraction of that at `reference`
  gradient_measure measure = gradient_measure::scaled;
  double objective_tolerance = 1e-12;  ///< ends after three steps (newton: one) that lower F by less than this fraction
  std::size_t memory = 10;             ///< lbfgs, owlqn: pairs
  /// lbfgs, owlqn: each worker keeps and multiplies only a part of the pairs: 2 * memory * n / workers numbers instead
  /// of 2 * memory * n, at the cost of 2 * memory + 3 more all-reduces of up to 3 numbers and an all-gather of n
  /// numbers per step.
  bool wide = false;
  std::size_t dense_below = 1000;  ///< newton: sums the Hessian itself below this many coordinates,
                                   ///< if the objective prefers that
  // sgd: batch k, counted from 0 over all passes, moves by rate / (1 + decay * k * batch / rows)
  double rate = 1;
  double decay = 1;
  std::size_t batch = 64;  ///< expected rows per batch, over all workers
  std::uint64_t seed = 0;
  /// gd, lbfgs, owlqn: number of chunks of a worker's rows in which values and gradients are computed, folded in row
  /// order (over_rows.hpp); 0: one pass. The last digits depend on it. Cost: chunks * n additions per evaluation.
  std::size_t chunks = 0;
  /// With chunks: workers that have finished their own rows take over chunks of stragglers. The result is bit-identical
  /// either way.
  bool work_stealing = false;
  validation held_out{};
  /// Called after each step on rank 0, instead of writing metrics.jsonl.
  std::function<void(const progress&)> watch{};
};

enum class ending {
  gradient,     ///< gradient_tolerance is reached
  objective,    ///< objective_tolerance is reached
  steps,        ///< max_steps
  line_search,  ///< no step lowers F: rounding errors, or a gradient that does not match the value
  validation,   ///< the held-out loss has not fallen for `patience` steps
};

struct result {
  std::vector<double> w;
  double value = 0;
  double gradient_norm = 0;
  double first_gradient_norm = 0;  ///< at the start, or at settings::reference
  bool with_reference = false;
  int steps = 0;
  std::uint64_t evaluations = 0;
  std::uint64_t products = 0;
  ending why = ending::steps;
  best_step best{};  ///< with held-out rows; `w` is that of the last step
  /// A sentence for users: why it ended, and at which step.
  [[nodiscard]] std::string text() const;
};

/// Minimises F from `s.start` (each worker's own for its own coordinates), as a com_queue: steps are supersteps, so
/// with --checkpoint-every a job resumes after the last one saved. Every worker must call it with the same settings.
/// Runs with the same number of workers are bit-identical; with another number of workers only the rounding of sums
/// differs. With chunks, the workers' objectives may differ in their rows only: loss, options and columns must be the
/// same.
/// Returns: the best w, the same on every worker except for own coordinates. There always is one: a line search that
/// finds no step is an ending, not an error.
/// Throws: config_error for a method that cannot minimise such a function; error with the step number when F or its
/// gradient is not finite where it must be. Blocks: a collective.
result minimize(paralg& job, objective& f, const settings& s);

/// The same in one process, for all rows of `f`: no job, no checkpoints.
result minimize(objective& f, const settings& s);

/// Solves A x = b for a symmetric positive definite A by conjugate gradients, from x, in at most `most` products; it
/// ends when |b - A x| <= tolerance * |b|. `product(v, out)`: out = A v.
/// Returns: the number of products. Throws: error when A is found not to be positive definite.
std::size_t linear_cg(const std::function<void(std::span<const double>, std::span<double>)>& product,
                      std::span<const double> b, std::span<double> x, double tolerance, std::size_t most);

}  // namespace optim
}  // namespace paracel
