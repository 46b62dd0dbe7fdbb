// SPDX-License-Identifier: BSD-3-Clause
//
// The seven methods: rounds that change theta in the servers (dgd, ipm, downpour, agd), and the minimisers of
// paracel/optim.hpp (lbfgs, newton, owlqn).
#include <algorithm>
#include <numbers>
#include <numeric>

#include <paracel/optim.hpp>
#include <paracel/optim_losses.hpp>
#include <paracel/random.hpp>

#include "alg/common/output/divergence.hpp"
#include "alg/common/output/warning.hpp"
#include "lr.hpp"

namespace paracel::alg {

namespace {

// Keys in the servers.
constexpr const char* theta_key = "theta";
constexpr const char* stop_key = "lr_stop";
std::string round_key(int round) { return "lr_round_" + std::to_string(round); }

/// The objective of each round, and where to stop.
///
/// Every worker adds its part of the objective and of the gradient, at its theta at the start of round r, to the key
/// lr_round_r: a sum in the server instead of a collective, so that no worker waits for another because of it. Rank 0
/// reads a key when all parts are in it. Under asp and ssp the parts may be computed at slightly different thetas.
///
///     lr_round_<r>    | rows | weights | loss | gradient 0 | gradient 1 | ...
///
/// A sum is complete when it has all rows, or when all remaining workers have finished the round: a worker that was
/// ejected sends no more, and the mean is over the rows of the others.
class round_monitor {
 public:
  explicit round_monitor(const lr_task& task)
      : task_(task),
        rule_{"the objective", "lower alpha (now " + json_number(task.settings.alpha.value_or(0)) + ")",
              std::numbers::ln2} {}

  [[nodiscard]] const divergence_rule& rule() const { return rule_; }
  [[nodiscard]] double first_objective() const { return first_; }

  /// A worker without rows sends nothing: rank 0 does not wait for it, and an update after the key's removal would leak
  /// it. The framework's function sums, whatever the user's update_func does to theta.
  void publish(int round, double loss, std::span<const double> gradient) {
    if (task_.problem.rows() == 0) return;
    std::vector<double> part{static_cast<double>(task_.problem.rows()), task_.problem.weight(), loss};
    part.insert(part.end(), gradient.begin(), gradient.end());
    task_.job.paracel_update(round_key(round), part, {"libparacel_default.so", "paracel_add"});
  }

  /// Rank 0, after `round` commits, before or after resuming: reads the sums that are complete. The keys are removed
  /// only after the next commit: if the process dies before that, its replacement reads them again. A sum may then
  /// contain a part twice, except under bsp.
  void collect(int round) {
    if (task_.job.get_worker_id() != 0 || round == 0) return;
    if (collected_ < 0) collected_ = removed_ = round;
    // A read sees all remaining workers' parts of the first c rounds, except those of the last `staleness`. Asp
    // guarantees nothing before the last barrier.
    const auto& c = task_.settings.consistency;
    collect(round, c.model == consistency_model::asp ? 0 : round - static_cast<int>(c.staleness));
  }
  /// Rank 0, after the last round and a barrier.
  void finish(int rounds) {
    collect(rounds, rounds);
    remove_collected();
  }

  /// `round`: the number of rounds before this objective.
  void record(int round, double objective, double gradient_norm) {
    if (round == 0) {
      first_ = last_ = objective;
      return;
    }
    task_.log.round(round, objective, {{"gradient_norm", gradient_norm}, {"staleness", task_.job.last_staleness()}});
    check_divergence(rule_, round, objective, first_);
    const double change = std::abs(objective - last_);
    last_ = objective;
    const double tolerance = task_.settings.tolerance;
    converged_ = tolerance > 0 && change <= tolerance * std::abs(objective);
  }

  [[nodiscard]] bool stops_at(int round) {
    if (task_.settings.tolerance == 0) return false;
    int stop = -1;
    return task_.job.paracel_read(stop_key, stop) && round >= stop;
  }

  void checkpoint_state(saved_state& to) const {
    to.put("collected", collected_);
    to.put("removed", removed_);
    to.put("first_objective", first_);
    to.put("last_objective", last_);
    to.put("converged", converged_);
    to.put("stop_round", stop_round_);
  }
  /// With a different number of workers the rows are distributed differently, and sums of incomplete rounds will never
  /// be complete: rank 0 restarts monitoring at the next round.
  void restore_state(const saved_states& from) {
    const auto& own = from.own();
    own.get("first_objective", first_);
    own.get("last_objective", last_);
    own.get("converged", converged_);
    own.get("stop_round", stop_round_);
    collected_ = removed_ = -1;
    if (!from.same_workers()) return;
    own.get("collected", collected_);
    if (!own.get("removed", removed_)) removed_ = collected_;
  }

 private:
  void remove_collected() {
    for (; removed_ < collected_; ++removed_) task_.job.paracel_remove(round_key(removed_));
  }
  /// Rounds before `settled` receive no more parts.
  void collect(int end, int settled) {
    remove_collected();
    std::vector<double> sum;
    while (collected_ < end && task_.job.paracel_read(round_key(collected_), sum) &&
           sum.size() == 3 + task_.problem.dimension() &&
           (sum[0] >= static_cast<double>(task_.total_rows) || collected_ < settled)) {
      const double n = sum[1];
      double square = 0;
      for (std::size_t j = 3; j < sum.size(); ++j) square += sum[j] * sum[j];
      record(collected_, sum[2] / n, std::sqrt(square) / n);
      if (converged_ && stop_round_ < 0) stop_after(end - 1);
      ++collected_;
    }
  }
  /// Rank 0, between committing `round` and starting the next one, announces where to stop. Under bsp and ssp no worker
  /// can start that round before rank 0 has committed the next one, so all workers see the key in time and stop at the
  /// same round. Under asp each worker stops when it sees the key.
  void stop_after(int round) {
    stop_round_ = round + 2 + static_cast<int>(task_.settings.consistency.staleness);
    task_.job.paracel_write(stop_key, stop_round_);
  }

  const lr_task task_;
  const divergence_rule rule_;
  double first_ = 0;
  double last_ = 0;
  int collected_ = 0;  // rounds whose objective is complete; -1: none of this number of workers
  int removed_ = 0;    // of those, rounds whose sums have been removed
  int stop_round_ = -1;
  bool converged_ = false;
};

/// Rounds with theta in the servers; a method is what a worker does in one.
class server_rounds : public lr_training {
 public:
  explicit server_rounds(const lr_task& task)
      : task_(task), monitor_(task), theta_(task.start.theta), delta_(theta_.size()), gradient_(theta_.size()) {
    warn_of_scales(task.job.get_comm(), task.problem.samples(), task.settings.bias,
                   "want standardised columns, or the method lbfgs or newton");
  }

  lr_fit run() override {
    auto& job = task_.job;
    const auto& problem = task_.problem;
    if (job.get_worker_id() == 0 && !job.resumed()) job.paracel_write(theta_key, theta_);
    job.paracel_sync();
    int round = job.first_iteration();
    if (round > 0) read_theta();  // checks the checkpoint's dimension before the rest of it is used
    monitor_.collect(round);
    for (; round < task_.settings.rounds && !monitor_.stops_at(round); ++round) {
      read_theta();
      std::ranges::fill(gradient_, 0.0);
      const double loss = problem.add_gradient(theta_, gradient_) + problem.weight() * problem.penalty(theta_);
      problem.add_penalty_gradient(theta_, problem.weight(), gradient_);
      monitor_.publish(round, loss, gradient_);
      const int number = task_.start.rounds + round;
      step(number, task_.settings.alpha.value() / (1 + task_.settings.decay * number));
      job.iter_commit();
      monitor_.collect(round + 1);
    }
    job.set_total_iters(round);  // from now on reads come from the servers
    job.paracel_sync();
    read_theta();
    return evaluate(round);
  }

  void checkpoint_state(saved_state& to) override { monitor_.checkpoint_state(to); }
  void restore_state(const saved_states& from) override { monitor_.restore_state(from); }

 protected:
  /// A round, with its number: theta_ is that of the servers, gradient_ that of this worker's part of J there.
  virtual void step(int round, double alpha) = 0;

  void push() { task_.job.paracel_update(theta_key, delta_); }
  /// Adds delta_ to the servers' theta at once, and takes what that has become.
  void exchange() {
    task_.job.paracel_bupdate_get(theta_key, delta_, theta_);
    check_theta();
  }
  [[nodiscard]] double mean_weight() const { return task_.total_weight / static_cast<double>(task_.total_rows); }

  const lr_task task_;
  round_monitor monitor_;
  std::vector<double> theta_;
  std::vector<double> delta_;  // what is pushed
  std::vector<double> gradient_;

 private:
  void read_theta() {
    task_.job.paracel_read(theta_key, theta_);
    check_theta();
  }
  void check_theta() const {
    const std::size_t want = task_.problem.dimension();
    if (theta_.size() == want) return;
    throw data_error(
        task_.settings.training_input.front() + ": theta of the " + (task_.job.resumed() ? "checkpoint" : "servers") +
        " has " + std::to_string(theta_.size()) + " elements, the data have " + std::to_string(want) + " (" +
        std::to_string(want - (task_.settings.bias ? 1 : 0)) + " features" +
        (task_.settings.bias ? " and the bias" : "") + "); want the data and the bias that theta was trained with");
  }

  lr_fit evaluate(int rounds) {
    auto comm = task_.job.get_comm();
    if (comm.get_rank() == 0) monitor_.finish(rounds);
    std::vector<double> sum(1 + theta_.size());
    sum[0] = task_.problem.add_gradient(theta_, std::span(sum).subspan(1));
    sum.push_back(static_cast<double>(task_.problem.rows()));
    sum.push_back(task_.problem.weight());
    comm.allreduce(sum);
    // Not the initial totals: a worker may have been ejected.
    const double n = sum.back();
    sum.pop_back();
    const auto rows = static_cast<std::size_t>(sum.back());
    sum.pop_back();
    for (auto& v : sum) v /= n;
    const double objective = sum[0] + task_.problem.penalty(theta_);
    task_.problem.add_penalty_gradient(theta_, 1.0, std::span(sum).subspan(1));
    double square = 0;
    for (std::size_t j = 1; j < sum.size(); ++j) square += sum[j] * sum[j];
    if (comm.get_rank() == 0) {
      monitor_.record(rounds, objective, std::sqrt(square));
      check_finite(monitor_.rule(), rounds, theta_);
      // Not divergence: steps of one size end near the optimum, which may be no better than the start.
      if (objective > monitor_.first_objective())
        warn(comm, "after " + std::to_string(rounds) + " rounds the objective is " + json_number(objective) +
                       " and began at " + json_number(monitor_.first_objective()) + "; want a lower alpha (now " +
                       json_number(task_.settings.alpha.value()) + ") or decay");
    }
    // No worker may write results or exit before rank 0 has checked for errors.
    task_.job.paracel_sync();
    return {theta_, objective, task_.start.rounds + rounds, rows};
  }
};

/// dgd: one step along the gradient over all rows. The updates of a round take effect together, so all workers start
/// the next one with the same theta, whatever the number of workers or servers.
class gradient_descent : public server_rounds {
  using server_rounds::server_rounds;
  void step(int /*round*/, double alpha) override {
    const double times = task_.settings.sums_gradients ? -alpha : -alpha / task_.total_weight;
    for (std::size_t j = 0; j < delta_.size(); ++j) delta_[j] = times * gradient_[j];
    push();
  }
};

/// Stochastic gradient descent over the own rows, in an order of each round, which depends on those before it.
class stochastic_descent : public server_rounds {
 public:
  explicit stochastic_descent(const lr_task& task) : server_rounds(task), order_(task.problem.rows()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    for (int before = 0; before < task.start.rounds; ++before) shuffle(before);
  }
  void checkpoint_state(saved_state& to) override {
    server_rounds::checkpoint_state(to);
    to.put("order", order_);
  }
  void restore_state(const saved_states& from) override {
    server_rounds::restore_state(from);
    std::vector<std::size_t> order;
    if (!from.same_workers() || !from.own().get("order", order)) return;
    if (order.size() != order_.size() || std::ranges::any_of(order, [&](auto i) { return i >= order_.size(); })) {
      throw data_error(task_.settings.training_input.front() + ": the checkpoint has an order of " +
                       std::to_string(order.size()) + " samples of worker " +
                       std::to_string(task_.job.get_worker_id()) + ", it now has " + std::to_string(order_.size()) +
                       "; want the samples that the job began with");
    }
    order_ = std::move(order);
  }

 protected:
  virtual void pass(double alpha) = 0;
  /// The change of theta_ by a step along each of these rows.
  void descend(std::span<const std::size_t> rows, double alpha) {
    delta_ = theta_;
    task_.problem.row_steps(rows, alpha, delta_, mean_weight());
    for (std::size_t j = 0; j < delta_.size(); ++j) delta_[j] -= theta_[j];
  }

  std::vector<std::size_t> order_;

 private:
  void step(int round, double alpha) final {
    shuffle(round);
    pass(alpha);
  }
  void shuffle(int round) {
    counter_random(task_.settings.seed, static_cast<std::uint64_t>(round), task_.job.get_worker_id()).shuffle(order_);
  }
};

/// ipm: theta becomes the mean of the workers' results, weighted by rows.
class parameter_mixing : public stochastic_descent {
  using stochastic_descent::stochastic_descent;
  void pass(double alpha) override {
    descend(order_, alpha);
    const double share = task_.problem.weight() / task_.total_weight;
    for (double& d : delta_) d *= share;
    push();
  }
};

/// downpour: after each batch the difference is pushed and the servers' theta is returned.
class batch_exchange : public stochastic_descent {
  using stochastic_descent::stochastic_descent;
  void pass(double alpha) override {
    const auto given = task_.settings.batch_size;
    const auto rows = given != 0 ? given : std::max<std::size_t>(order_.size() / 1000, 10);
    for (std::size_t at = 0; at < order_.size(); at += rows) {
      descend(std::span(order_).subspan(at, std::min(rows, order_.size() - at)), alpha);
      exchange();
    }
  }
};

/// agd: as downpour, with one sample a batch.
class row_exchange : public stochastic_descent {
  using stochastic_descent::stochastic_descent;
  void pass(double alpha) override {
    for (const auto i : order_) {
      task_.problem.row_step(i, alpha, theta_, delta_, mean_weight());
      exchange();
    }
  }
};

/// lbfgs, newton, owlqn: supersteps of the workers.
class minimization : public lr_training {
 public:
  explicit minimization(const lr_task& task) : task_(task) {}

  lr_fit run() override {
    const auto& s = task_.settings;
    auto& rows = task_.problem.samples();
    column_shift shift;
    // An L1 penalty of the bias cannot be written in the coordinates of centred rows.
    if (s.bias && (s.l1 == 0 || !s.penalize_bias)) shift = {task_.job.get_comm(), rows};
    if (rows.weight.empty()) optim::group_equal_rows(rows);
    optim::linear_options options;
    options.columns = task_.problem.dimension() - (s.bias ? 1 : 0);
    options.intercept = s.bias;
    options.row_weights = rows.weight;
    optim::linear_objective objective(rows, optim::log_loss(), options);
    optim::settings how;
    how.how = optim::method_of(s.method_name());
    how.penalty.l1 = s.l1;
    how.penalty.l2 = s.beta;
    if (s.bias && s.penalize_bias) how.penalty.combination = shift.intercept();
    if (s.bias && (!s.penalize_bias || !how.penalty.combination.empty())) how.penalty.free = {0};
    if (s.initial.given()) {
      how.start = task_.start.theta;
      shift.from_raw(how.start);
      how.reference.assign(how.start.size(), 0);
    }
    how.max_steps = s.rounds;
    how.objective_tolerance = s.tolerance;
    how.gradient_tolerance = s.gradient_tolerance;
    how.work_stealing = s.work_stealing;
    if (how.work_stealing) how.chunks = 64;  // of over_rows
    how.watch = [&](const optim::progress& now) {
      task_.log.round(
          now.step, now.value,
          {{"gradient_norm", now.gradient_norm}, {"evaluations", now.evaluations}, {"products", now.products}});
    };
    auto found = optim::minimize(task_.job, objective, how);
    shift.to_raw(found.w);
    task_.log.result("ended", found.text());
    const double reached = found.gradient_norm / found.first_gradient_norm;
    if (found.why == optim::ending::steps && reached > s.gradient_tolerance)
      warn_not_converged(
          task_.job.get_comm(), found.steps,
          std::string("the gradient's norm, of ") + (found.with_reference ? "that at theta 0," : "the first one,"),
          reached, s.gradient_tolerance);
    return {std::move(found.w), found.value, found.steps, task_.total_rows};
  }

 private:
  const lr_task task_;
};

}  // namespace

std::unique_ptr<lr_training> lr_training_of(const lr_task& task) {
  switch (task.settings.method) {
    case lr_method::dgd:
      return std::make_unique<gradient_descent>(task);
    case lr_method::ipm:
      return std::make_unique<parameter_mixing>(task);
    case lr_method::downpour:
      return std::make_unique<batch_exchange>(task);
    case lr_method::agd:
      return std::make_unique<row_exchange>(task);
    default:
      return std::make_unique<minimization>(task);
  }
}

}  // namespace paracel::alg
