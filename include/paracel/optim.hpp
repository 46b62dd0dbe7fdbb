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
//   const auto found = optim::minimize(job, objective, s);      // every worker; found.w is the same at all
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

/// A differentiable function that is a sum over rows, of which each worker has a part. All functions concern this
/// worker's rows only, and are called with the same w at every worker. The penalties are not a part of it.
/// Thread-safety: none.
class objective {
 public:
  objective() = default;
  objective(const objective&) = delete;
  objective& operator=(const objective&) = delete;
  virtual ~objective() = default;

  /// Number of coordinates of w. The same at every worker, unless they have coordinates of their own.
  [[nodiscard]] virtual std::size_t dimension() const = 0;
  /// So many coordinates, the first ones, are the same at every worker, and so is their number. The others are this
  /// worker's own: only its rows depend on them, as the factors of users that have all their ratings here. They are
  /// never sent. For cg and lbfgs; penalties and rows that are held out are then the objective's part.
  [[nodiscard]] virtual std::size_t shared() const { return dimension(); }
  /// Sum of the weights of the rows; without weights their number.
  [[nodiscard]] virtual double weight() const = 0;
  /// Returns: the sum of weight * loss. Adds its gradient to `gradient`. A value that is not finite is a step that is
  /// too long.
  virtual double value_and_gradient(std::span<const double> w, std::span<double> gradient) = 0;

  // ---- for newton

  [[nodiscard]] virtual bool has_hessian() const { return false; }
  /// out += H v at the w of the last call of value_and_gradient.
  virtual void hessian_vector(std::span<const double> v, std::span<double> out);
  /// Adds the diagonal of that H to `out`, a preconditioner. Returns: false, if there is none.
  virtual bool hessian_diagonal(std::span<double> out);
  /// Whether `hessian` costs less than the products that it saves; one worker's no is enough.
  [[nodiscard]] virtual bool prefers_dense_hessian() const { return false; }
  /// Adds the upper triangle of H, row after row, to `packed`. Shape: dimension (dimension + 1) / 2.
  virtual void hessian(std::span<double> packed);

  // ---- for sgd

  [[nodiscard]] virtual std::size_t rows() const { return 0; }
  /// Rows of the workers with lower ranks: batches depend on the number of a row among all.
  [[nodiscard]] virtual std::uint64_t first_row() const { return 0; }
  /// The same as value_and_gradient, for some of the rows.
  virtual double rows_value_and_gradient(std::span<const std::size_t> rows, std::span<const double> w,
                                         std::span<double> gradient);

  // ---- for settings::chunks: the same for neighbouring rows, which may be those of another worker

  [[nodiscard]] virtual bool has_chunks() const { return false; }
  /// As value_and_gradient, of rows [begin, end) of `rows`. What hessian_vector uses need not be there afterwards.
  virtual double range_value_and_gradient(std::size_t begin, std::size_t end, std::span<const double> w,
                                          std::span<double> gradient);
  /// Rows [begin, end), with their weights, for another worker.
  [[nodiscard]] virtual std::vector<std::byte> pack_rows(std::size_t begin, std::size_t end) const;
  /// What another worker's objective makes of them, and their value and gradient there: with the bits of
  /// range_value_and_gradient at their owner.
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
  /// Coordinates without a penalty, as intercepts; ascending.
  std::vector<std::size_t> free{};
};

/// The w with the least loss on rows that are held out.
struct best_step {
  std::vector<double> w{};  ///< empty: none yet
  double loss = std::numeric_limits<double>::infinity();
  int steps_since = 0;
};

/// Rows that are not trained on: after each step every worker measures w on its part of them.
struct validation {
  /// Adds of this worker's rows to `sums`: weights, weight * loss, and the weights of rows that are predicted
  /// correctly. Empty: nothing is held out.
  std::function<void(std::span<const double> w, std::span<double> sums)> measure{};
  int patience = 0;  ///< ends after so many steps without a lower loss; 0: never
  best_step best{};  ///< what an earlier run, which this one continues, has found
};

/// What is measured after each step.
struct progress {
  int step = 0;
  double value = 0;          ///< F
  double gradient_norm = 0;  ///< Euclidean; with l1 of the subgradient that is nearest to 0; sgd: of batches, 0
  double evaluations = 0;    ///< values and gradients of all rows until now
  double products = 0;       ///< Hessian-vector products until now
  double seconds = 0;        ///< of this step
  /// Means over the rows that are held out; nan without such.
  double validation_loss = std::numeric_limits<double>::quiet_NaN();
  double validation_accuracy = std::numeric_limits<double>::quiet_NaN();
};

struct settings {
  method how = method::lbfgs;
  penalties penalty{};
  double scale = 0;                    ///< factor of the sum of losses; 0: 1 / (sum of weights)
  std::vector<double> start{};         ///< empty: zeros. Rank 0's counts.
  int max_steps = 1000;                ///< sgd: passes
  double gradient_tolerance = 1e-6;    ///< ends when the gradient's norm is at most this fraction of the first one
  double objective_tolerance = 1e-12;  ///< ends after three steps (newton: one) that lower F by less than this fraction
  std::size_t memory = 10;             ///< lbfgs, owlqn: pairs
  /// lbfgs, owlqn: each worker keeps and multiplies a part of the pairs: 2 memory n / workers numbers instead of
  /// 2 memory n, for 2 memory + 3 more sums of one number, and one all-gather of n numbers, a step.
  bool wide = false;
  std::size_t dense_below = 1000;  ///< newton: sums the Hessian itself if it has fewer coordinates, and
                                   ///< the objective prefers that
  // sgd: batch k = 0, 1, ... of all moves by rate / (1 + decay * k * batch / rows)
  double rate = 1;
  double decay = 1;
  std::size_t batch = 64;  ///< expected rows of all workers in a batch
  std::uint64_t seed = 0;
  /// gd, lbfgs, owlqn: values and gradients are computed in so many chunks of a worker's rows, folded in the order of
  /// the rows (over_rows.hpp); 0: in one pass. The last digits depend on it. It costs chunks * n additions an
  /// evaluation.
  std::size_t chunks = 0;
  /// With chunks: workers that have finished their rows take over chunks of workers that are late. The result has the
  /// same bits as without it.
  bool work_stealing = false;
  validation held_out{};
  /// After each step, on rank 0, instead of the lines of metrics.jsonl.
  std::function<void(const progress&)> watch{};
};

enum class ending {
  gradient,     ///< gradient_tolerance is reached
  objective,    ///< objective_tolerance is reached
  steps,        ///< max_steps
  line_search,  ///< no step lowers F: rounding errors, or a gradient that is not that of the value
  validation,   ///< the loss of the rows that are held out has not fallen for `patience` steps
};

struct result {
  std::vector<double> w;
  double value = 0;
  double gradient_norm = 0;
  double first_gradient_norm = 0;
  int steps = 0;
  std::uint64_t evaluations = 0;
  std::uint64_t products = 0;
  ending why = ending::steps;
  best_step best{};  ///< with rows that are held out; `w` is the last one
  /// A sentence for users: why it ended, and at which step.
  [[nodiscard]] std::string text() const;
};

/// Minimises F from `s.start` (of own coordinates each worker's counts), as a com_queue: steps are supersteps, so with
/// --checkpoint-every a job resumes after its last one. Every worker must call it with the same settings. Runs with the
/// same number of workers are bit-identical; between numbers of workers only the rounding of sums differs. With chunks,
/// workers' objectives must be the same but for their rows: the same loss, options and columns. Returns: the best w,
/// the same at every worker but for own coordinates. It always has w: a line search that finds nothing is an ending.
/// Throws: config_error for a method that cannot minimise such a function; error with the number of the step when F or
/// its gradient is not finite where it must be. Blocks: a collective.
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
