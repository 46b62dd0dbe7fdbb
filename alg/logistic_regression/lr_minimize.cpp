// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/optim.hpp>
#include <paracel/optim_losses.hpp>

#include "alg/common/output/warning.hpp"
#include "lr.hpp"

namespace paracel::alg {

/// Training by lbfgs, newton or owlqn.
void logistic_regression::minimize() {
  log_.emplace(*this, settings_.rounds, "objective", settings_.debug);
  optim::linear_options options;
  options.columns = columns_;
  options.intercept = settings_.bias;
  options.row_weights = problem_.samples().weight;
  optim::linear_objective objective(problem_.samples(), optim::log_loss(), options);
  optim::settings how;
  how.how = optim::method_of(settings_.method_name());
  how.penalty.l1 = settings_.l1;
  how.penalty.l2 = settings_.beta;
  if (settings_.bias && settings_.penalize_bias) how.penalty.combination = shift_.intercept();
  if (settings_.bias && (!settings_.penalize_bias || !how.penalty.combination.empty())) how.penalty.free = {0};
  how.max_steps = settings_.rounds;
  how.objective_tolerance = settings_.tolerance;
  how.gradient_tolerance = settings_.gradient_tolerance;
  how.work_stealing = settings_.work_stealing;
  if (how.work_stealing) how.chunks = 64;  // of over_rows
  how.watch = [&](const optim::progress& now) {
    log_->round(now.step, now.value,
                {{"gradient_norm", now.gradient_norm}, {"evaluations", now.evaluations}, {"products", now.products}});
  };
  auto found = optim::minimize(*this, objective, how);
  theta_ = std::move(found.w);
  shift_.to_raw(theta_);
  objective_ = found.value;
  rounds_done_ = found.steps;
  log_->result("ended", found.text());
  const double reached = found.gradient_norm / found.first_gradient_norm;
  if (found.why == optim::ending::steps && reached > settings_.gradient_tolerance)
    warn_not_converged(get_comm(), found.steps, "the gradient's norm, of the first one,", reached,
                       settings_.gradient_tolerance);
  measure();
}

}  // namespace paracel::alg
