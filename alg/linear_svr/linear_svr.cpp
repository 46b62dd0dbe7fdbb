// SPDX-License-Identifier: BSD-3-Clause
#include "linear_svr.hpp"

#include <cmath>
#include <utility>

#include "alg/common/output/warning.hpp"
#include "alg/common/solvers/sum_over_workers.hpp"

namespace paracel::alg {

void linear_svr_settings::keys(key_list& k) {
  linear_settings::keys(k);
  initial.key(k, model);
  k("loss", squared, "epsilon_insensitive, or its square",
    {{"epsilon_insensitive", false}, {"squared_epsilon_insensitive", true}});
  k("epsilon", epsilon, "errors up to this size cost nothing").at_least(0);
  margin.keys(k);
  validation_settings::keys(k);
}

linear_svr::linear_svr(Comm comm, const std::string& server_info, const linear_svr_settings& settings)
    : linear_base(std::move(comm), server_info, settings, settings.margin.rounds), settings_(settings) {}

void linear_svr::solve() {
  if (linear_.model.empty()) {
    train();
    return;
  }
  const model_reader model(linear_.model, "linear_svr");
  auto weights = read_weights(model, "linear_svr_weight", model.field<bool>("settings.bias"));
  load_others();
  run_log log(*this, 1);
  use(std::move(weights), log, nullptr);
}

void linear_svr::train() {
  const bool bias = settings_.margin.bias;
  auto initial = read_initial_weights("linear_svr", "linear_svr_weight", bias, settings_.margin.bias_place);
  if (!initial.empty() && !bias) initial.erase(initial.begin());
  auto rows = load_training();
  const auto weights = std::move(rows.weight);
  rows.weight.clear();
  load_others();
  sample_rows held;
  if (!settings_.validation_input.empty()) held = load_validation(settings_.validation_input);

  // The size of the first errors, where the solver starts: at the mean of the targets, or without a bias at 0.
  double sums[2] = {};
  for (const double y : rows.label) sums[0] += y;
  const auto n = static_cast<double>(rows.rows_total);
  const double start = bias ? sum_over_workers(get_comm(), sums[0]) / n : 0;
  for (const double y : rows.label) sums[1] += (y - start) * (y - start);
  const double deviation = std::sqrt(sum_over_workers(get_comm(), sums[1]) / n);
  margin_loss loss;
  loss.two_sided = true;
  if (settings_.squared) {
    loss.exact = optim::squared_epsilon_insensitive_loss(settings_.epsilon);
  } else {
    loss.exact = optim::epsilon_insensitive_loss(settings_.epsilon);
    loss.smoothed = [e = settings_.epsilon](double mu) { return smoothed_epsilon_insensitive(e, mu); };
    loss.epsilon = settings_.epsilon;
    loss.first_mu = deviation > 0 ? deviation : 1;
  }
  const auto shift = centre_margins(get_comm(), rows, loss, settings_.margin);
  if (weights.empty()) optim::group_equal_rows(rows);
  optim::validation validation;
  if (!settings_.validation_input.empty()) {
    validation.measure = measure_margins(held, bias, loss.exact, [](double, double) { return false; });
    validation.patience = settings_.patience;
  }
  run_log log(*this, settings_.margin.rounds, metric_of(settings_.margin, loss, rows), linear_.debug);
  const auto fit = fit_margins(*this, rows, shift, weights, loss, settings_.margin, std::move(initial), validation,
                               [&](int step, double value, const auto& more) { log.round(step, value, more); });
  if (!fit.converged && settings_.patience == 0) {
    warn_of_spread(get_comm(), "the targets", deviation, "C and epsilon");
    throw error("after " + std::to_string(fit.steps) + " rounds" +
                (settings_.squared ? " the gradient's norm is " + json_number(fit.gradient_norm)
                                   : " the duality gap is " + json_number(fit.gap)) +
                " at the objective " + json_number(fit.objective) + "; " + remedy_of_rounds(get_comm(), rows, bias));
  }
  if (fit.objective == 0 && deviation > 0)
    warn(get_comm(), "every target is within epsilon of a constant, which is the model; lower epsilon (now " +
                         json_number(settings_.epsilon) + ")");
  model_writer model(*this, "linear_svr", linear_.format);
  model.add("linear_svr_weight", fit.w);
  describe_fields(model);
  model.fields().add("rows", rows.rows_total).add("objective", fit.objective).add("rounds", fit.steps);
  if (!settings_.squared) model.fields().add("gap", fit.gap);
  log.result("ended", fit.text);
  log.result("objective", fit.objective);
  if (!settings_.squared) log.result("gap", fit.gap);
  log.result("rounds", static_cast<std::uint64_t>(fit.steps));
  auto theta = fit.w;
  if (!bias) theta.insert(theta.begin(), 0.0);
  use(std::move(theta), log, &model);
}

void linear_svr::use(std::vector<double> theta, run_log& log, model_writer* model) {
  const double error = has_test() ? root_mean_squared_error(get_comm(), test_, theta) : 0;
  if (model != nullptr) {
    if (has_test()) model->fields().add("test_rmse", error);
    model->finish();
  }
  dump_predictions([&](std::size_t i) { return predicted(predict_, i, theta); });
  if (has_test()) log.result("rmse", error);
  log.result("output", get_output());
}

}  // namespace paracel::alg
