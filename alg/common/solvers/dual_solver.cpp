// SPDX-License-Identifier: BSD-3-Clause
#include "dual_solver.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include <paracel/collectives.hpp>
#include <paracel/random.hpp>
#include <paracel/resumable_loop.hpp>

#include "design_matrix.hpp"
#include "sum_over_workers.hpp"

namespace paracel::alg {

namespace {

// Passes over a worker's rows in a step. With more of them the gap is checked less often, so the last step may do
// needless work.
constexpr int passes = 10;
// Rows that all workers together process between two sums of their changes. With more rows, changes to the same
// features overshoot: with two workers and 128, 512, 2,048 and 8,192 rows, a9a took 60, 87, 177 and 326 steps, and
// 32,000 samples with 20,000 features took 37, 39, 101 and 291.
constexpr std::size_t rows_between_sums = 512;
// If the best fraction of a direction is at least this, all of it is taken: it ends exactly at the bounds.
constexpr double nearly_whole = 0.7;
constexpr double infinite = std::numeric_limits<double>::infinity();

/// State carried from one step to the next, the same on every worker.
struct dual_state {
  std::vector<double> w;
  std::vector<double> best;  // the w with the least objective
  double objective = infinite;
  double at_zero = 0;    // F of w = 0
  double magnitude = 0;  // of the numbers whose difference the gap is
  double dual = -infinite;
  double validation_loss = std::numeric_limits<double>::quiet_NaN();
  double validation_accuracy = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> held;  // with patience: the w with the least validation loss
  double held_loss = infinite;
  double held_objective = 0;
  int held_step = 0;
  int steps = 0;
  int ending = 0;  // dual_ending
  bool at_rest = false;
  MSGPACK_DEFINE(w, best, objective, at_zero, magnitude, dual, validation_loss, validation_accuracy, held, held_loss,
                 held_objective, held_step, steps, ending, at_rest)
};

enum dual_ending { still_running, within_tolerance, out_of_steps, out_of_patience, at_rest };

/// The rows of this worker, and their part of the dual problem.
class dual_rows {
 public:
  dual_rows(const sample_rows& rows, const std::vector<double>& weights, const margin_loss& loss,
            const margin_settings& settings)
      : rows_(rows), two_sided_(loss.two_sided), epsilon_(loss.epsilon), bias_(settings.bias) {
    bound_.resize(rows.rows());
    square_.resize(rows.rows());
    for (std::size_t i = 0; i < rows.rows(); ++i) {
      bound_[i] = settings.c * (weights.empty() ? 1 : weights[i]);
      double sum = bias_ ? 1 : 0;
      const auto x = rows.dense ? rows.dense_row(i) : rows.values_of(i);
      for (const double v : x) sum += v * v;
      square_[i] = sum;
    }
  }

  [[nodiscard]] double margin(std::size_t i, std::span<const double> w) const {
    return bias_ ? w[0] + row_product(rows_, i, w.subspan(1)) : row_product(rows_, i, w);
  }
  struct moved_row {
    std::uint32_t row;
    double before;  // its b
  };
  /// Sets the b of these rows, one after the other, to the best value for w, updates w accordingly, and appends the
  /// rows that changed to `moved`. Rows at a bound whose slope pushes against it by more than `limit` are left out of
  /// `kept`. Returns: the greatest violation of optimality found.
  double improve(std::span<const std::uint32_t> rows, double limit, std::span<double> w, std::span<double> b,
                 std::vector<moved_row>& moved, std::vector<std::uint32_t>& kept) const {
    double greatest = 0;
    for (const auto i : rows) {
      const double y = rows_.label[i];
      const double least = two_sided_ || y < 0 ? -bound_[i] : 0;
      const double most = two_sided_ || y > 0 ? bound_[i] : 0;
      const double old = b[i];
      const double slope = margin(i, w) - y;  // of -D, without epsilon
      const double right = slope + (old >= 0 ? epsilon_ : -epsilon_);
      const double left = slope + (old > 0 ? epsilon_ : -epsilon_);
      const double violation = std::max(old < most ? -right : 0.0, old > least ? left : 0.0);
      if (violation <= 0) {
        const double against = std::min(old < most ? right : infinite, old > least ? -left : infinite);
        if (against <= limit) kept.push_back(i);
        continue;
      }
      kept.push_back(i);
      greatest = std::max(greatest, violation);
      const double target = old * square_[i] - slope;
      double now = 0;
      if (std::abs(target) > epsilon_) {
        now = target > 0 ? most : least;
        if (square_[i] > 0)
          now = std::clamp((target > 0 ? target - epsilon_ : target + epsilon_) / square_[i], least, most);
      }
      if (now == old) continue;
      moved.push_back({i, old});
      b[i] = now;
      if (bias_) w[0] += now - old;
      add_row(rows_, i, now - old, w.subspan(bias_ ? 1 : 0));
    }
    return greatest;
  }
  /// w += sum_i b_i x_i
  void add_rows(std::span<const double> b, std::span<double> w) const {
    add_transposed(rows_, b, w.subspan(bias_ ? 1 : 0));
    if (bias_) w[0] += std::accumulate(b.begin(), b.end(), 0.0);
  }
  /// y b - epsilon |b|
  [[nodiscard]] double linear_part(std::size_t i, double b) const {
    return rows_.label[i] * b - epsilon_ * std::abs(b);
  }

 private:
  const sample_rows& rows_;
  bool two_sided_;
  double epsilon_;
  bool bias_;
  std::vector<double> bound_;
  std::vector<double> square_;
};

/// Sums the changes of w made by all workers' rows; with sparse rows only the changed coordinates are sent.
class workers_change {
 public:
  workers_change(collectives& all, const sample_rows& rows, bool bias)
      : all_(all),
        rows_(rows),
        first_(bias ? 1 : 0),
        width_(rows.columns + first_),
        total_(width_ + 1),
        stamp_(width_ + 1) {}

  /// `own`: `w` with the changes of this worker's rows. `linear`: how much they raise the linear part of D. Both
  /// vectors become w plus a fraction of all workers' changes. Returns: that fraction. A collective.
  double apply(const std::vector<dual_rows::moved_row>& moved, double linear, std::span<double> w,
               std::span<double> own) {
    list_own(moved);
    values_.clear();
    for (const auto j : columns_) values_.push_back(own[j] - w[j]);
    if (all_.size() > 1) {
      columns_.push_back(static_cast<std::int32_t>(width_));
      values_.push_back(linear);
      columns_ = all_.all_gather(std::span<const std::int32_t>(columns_), "columns");
      values_ = all_.all_gather(std::span<const double>(values_), "changes");
    }
    ++now_;
    std::size_t kept = 0;
    for (std::size_t e = 0; e < columns_.size(); ++e) {
      const auto j = static_cast<std::size_t>(columns_[e]);
      if (std::exchange(stamp_[j], now_) != now_) {
        total_[j] = 0;
        if (j < width_) columns_[kept++] = columns_[e];
      }
      total_[j] += values_[e];
    }
    columns_.resize(kept);
    double share = 1;
    if (all_.size() > 1) {
      double rises = total_[width_];
      double length = 0;
      for (const auto j : columns_) {
        rises -= w[j] * total_[j];
        length += total_[j] * total_[j];
      }
      if (rises < nearly_whole * length) share = std::max(0.0, rises / length);
    }
    for (const auto j : columns_) own[j] = w[j] += share * total_[j];
    return share;
  }
  /// The coordinates changed by the last `apply`.
  [[nodiscard]] const std::vector<std::int32_t>& columns() const noexcept { return columns_; }

 private:
  void list_own(const std::vector<dual_rows::moved_row>& moved) {
    columns_.clear();
    if (moved.empty()) return;
    if (first_ == 1) columns_.push_back(0);
    if (rows_.dense) {
      for (std::size_t j = first_; j < width_; ++j) columns_.push_back(static_cast<std::int32_t>(j));
      return;
    }
    ++now_;
    for (const auto& m : moved) {
      for (const auto j : rows_.columns_of(m.row)) {
        if (std::exchange(stamp_[j + first_], now_) != now_) columns_.push_back(static_cast<std::int32_t>(j + first_));
      }
    }
  }

  collectives& all_;
  const sample_rows& rows_;
  std::size_t first_;
  std::size_t width_;
  std::vector<double> total_;
  std::vector<std::uint64_t> stamp_;  // by coordinate: when it was last listed
  std::uint64_t now_ = 0;
  std::vector<std::int32_t> columns_;
  std::vector<double> values_;
};

double product(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// The passes of a step: raises D by changes of w and of `b`, this worker's dual variables. A collective.
void ascend(collectives& all, const sample_rows& rows, const dual_rows& dual, bool bias, dual_state& s,
            std::vector<double>& b) {
  std::vector<std::uint32_t> active(b.size());
  std::iota(active.begin(), active.end(), 0U);
  std::vector<std::uint32_t> kept;
  std::vector<dual_rows::moved_row> moved;
  auto w = s.w;  // with the changes of own rows
  workers_change change(all, rows, bias);
  counter_random random(static_cast<std::uint64_t>(s.steps), all.rank());
  double limit = infinite;
  for (int pass = 0; pass < passes; ++pass) {
    random.shuffle(active);
    double greatest = 0;
    bool moves = false;
    auto most = static_cast<std::int64_t>(active.size());  // on any worker
    all.all_reduce(std::span(&most, 1), reduce_op::max, "rows");
    const auto between = std::max<std::size_t>(1, rows_between_sums / all.size());
    const std::size_t parts = all.size() == 1 ? 1 : (static_cast<std::size_t>(most) + between - 1) / between;
    for (std::size_t part = 0; part < parts; ++part) {
      const auto own = owned_range_of(active.size(), parts, part);
      moved.clear();
      greatest =
          std::max(greatest, dual.improve(std::span(active).subspan(own.begin, own.size()), limit, w, b, moved, kept));
      double linear = 0;
      for (const auto& m : moved) linear += dual.linear_part(m.row, b[m.row]) - dual.linear_part(m.row, m.before);
      const double share = change.apply(moved, linear, s.w, w);
      if (share < 1)
        for (const auto& m : moved) b[m.row] = m.before + share * (b[m.row] - m.before);
      moves = moves || !change.columns().empty();
    }
    std::swap(active, kept);
    kept.clear();
    limit = greatest;
    s.at_rest = pass == 0 && !moves;
    if (!moves) break;
  }
}

}  // namespace

margin_fit fit_dual(paralg& job, const sample_rows& rows, const std::vector<double>& weights, const margin_loss& loss,
                    const margin_settings& settings, const std::vector<double>* start,
                    const optim::validation& held_out, const margin_watch& watch) {
  const std::size_t n = rows.rows();
  const dual_rows dual(rows, weights, loss, settings);
  std::vector<double> margin(n);
  std::vector<double> slope(n);
  std::vector<double> curvature(n);
  collectives all(job.get_comm());
  dual_state s;
  s.w.assign(rows.columns + (settings.bias ? 1 : 0), 0.0);
  std::vector<double> b(n);
  if (start != nullptr) {
    b = *start;
    dual.add_rows(b, s.w);
    sum_over_workers(job.get_comm(), s.w);
  }
  const auto objective_at_zero = [&] {
    const std::vector<double> zeros(n);
    return settings.c *
           sum_over_workers(job.get_comm(), loss.exact->derivatives(zeros, rows.label, weights, slope, curvature));
  };
  resumable_loop loop(job);
  loop.keep("state", s).keep("b", b);
  while (loop.next()) {
    s.steps = static_cast<int>(loop.iteration()) + 1;
    // F and D at the end of the previous step: losses, the linear part of D and its magnitude; of held-out rows:
    // weights, losses, hits.
    double sums[6] = {};
    for (std::size_t i = 0; i < n; ++i) {
      margin[i] = dual.margin(i, s.w);
      sums[1] += dual.linear_part(i, b[i]);
      sums[2] += std::abs(b[i]) * (std::abs(margin[i]) + std::abs(rows.label[i]) + loss.epsilon);
    }
    sums[0] = loss.exact->derivatives(margin, rows.label, weights, slope, curvature);
    if (held_out.measure) held_out.measure(s.w, std::span(sums).subspan(3));
    all.all_reduce(std::span<double>(sums), reduce_op::sum, "objective");
    const double square = product(s.w, s.w);
    const double objective = square / 2 + settings.c * sums[0];
    if (!std::isfinite(objective))
      throw error("the objective is not finite; want smaller numbers in the samples, or a smaller C");
    if (s.steps == 1) s.at_zero = start == nullptr ? objective : objective_at_zero();
    s.magnitude = objective + sums[2] + square / 2;
    s.dual = std::max(s.dual, sums[1] - square / 2);
    if (objective < s.objective) {
      s.objective = objective;
      s.best = s.w;
      s.validation_loss = sums[4] / sums[3];
      s.validation_accuracy = sums[5] / sums[3];
    }
    if (s.objective - s.dual <= enough_gap(settings, s.objective, s.at_zero, s.magnitude)) s.ending = within_tolerance;
    else if (s.at_rest) s.ending = at_rest;
    else if (s.steps >= settings.rounds) s.ending = out_of_steps;
    if (held_out.measure && held_out.patience > 0) {
      if (s.steps == 1 || s.validation_loss < s.held_loss) {
        s.held_loss = s.validation_loss;
        s.held = s.best;
        s.held_objective = s.objective;
        s.held_step = s.steps;
      }
      if (s.steps - s.held_step >= held_out.patience) s.ending = out_of_patience;
    }
    if (s.ending == still_running) ascend(all, rows, dual, settings.bias, s, b);
    else loop.stop();
    run_log::figures more{{"dual_objective", s.dual}, {"gap", s.objective - s.dual}};
    if (held_out.measure) more.emplace_back("validate_loss", s.validation_loss);
    if (held_out.measure && !loss.two_sided) more.emplace_back("validate_accuracy", s.validation_accuracy);
    if (all.rank() == 0) watch(s.steps, s.objective, more);
  }

  margin_fit fit;
  const bool early = !s.held.empty();
  fit.w = early ? s.held : s.best;
  fit.objective = early ? s.held_objective : s.objective;
  fit.gap = fit.objective - s.dual;
  fit.steps = s.steps;
  fit.magnitude = s.magnitude;
  // At rest only rounding is left, which is amplified where the rows nearly depend on each other.
  fit.converged = s.ending == within_tolerance || (s.ending == at_rest && fit.gap <= 1e-9 * fit.magnitude);
  switch (s.ending) {
    case within_tolerance:
      fit.text = "the duality gap is within its tolerance";
      break;
    case out_of_patience:
      fit.text = "the validation loss no longer falls";
      break;
    case at_rest:
      fit.text = "the dual objective no longer rises";
      break;
    default:
      fit.text = "the maximum number of steps is reached";
  }
  return fit;
}

}  // namespace paracel::alg
