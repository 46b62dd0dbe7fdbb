// SPDX-License-Identifier: BSD-3-Clause
#include "softmax.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "alg/common/solvers/column_shift.hpp"
#include "alg/common/solvers/sum_over_workers.hpp"

namespace paracel::alg {

void softmax_settings::keys(key_list& k) {
  class_settings::keys(k);
  initial.key(k, model);
  k("C", c, "weight of the losses").above(0);
  k("bias", bias, "add a bias, which is not penalised, for each class");
  if (k.from() != nullptr) bias_place = k.from()->place_of("bias");
  k("method", how, "newton or lbfgs", {{"newton", optim::method::newton}, {"lbfgs", optim::method::lbfgs}});
  k("rounds", rounds, "maximum number of steps").at_least(1).at_most(1000000000);
  k("tolerance", tolerance,
    "stop when the gradient's norm is at most this fraction of the first one; with initial_model of that at 0")
      .at_least(0)
      .at_most(1);
  validation_settings::keys(k);
}

softmax::softmax(Comm comm, const std::string& server_info, const softmax_settings& settings)
    : class_base(std::move(comm), server_info, settings, settings.rounds), settings_(settings), bias_(settings.bias) {}

void softmax::solve() {
  if (linear_.model.empty()) {
    train();
    return;
  }
  const model_reader model(linear_.model, "softmax");
  read_classes(model, read_weights(model));
  run_log log(*this, 1);
  use_model(log, nullptr);
}

std::uint32_t softmax::read_weights(const model_reader& model) {
  w_ = model.read_finite("softmax_weight");
  bias_ = model.field<bool>("settings.bias");
  const auto shape = model.shape("softmax_weight");
  const std::size_t first = bias_ ? 1 : 0;
  if (shape.size() != 2 || shape[0] <= first || shape[0] - first > UINT32_MAX)
    throw data_error(model.path() + ": found no weights");
  if (const auto k = model.fields<std::string>("classes").size(); shape[1] != k)
    throw data_error(model.path() + ": found " + std::to_string(shape[1]) + " weights a feature for " +
                     std::to_string(k) + " classes");
  return static_cast<std::uint32_t>(shape[0] - first);
}

/// The weights of a model of other classes for these classes and features: 0 where the model has none.
std::vector<double> softmax::initial_weights(std::vector<double> w, const std::vector<std::string>& of_classes,
                                             const std::string& path) const {
  const std::size_t k = classes().size();
  const std::size_t before = of_classes.size();
  std::vector<double> found((samples().columns + (bias_ ? 1 : 0)) * k);
  for (std::size_t c = 0; c < before; ++c) {
    const auto at = static_cast<std::size_t>(std::ranges::find(classes(), of_classes[c]) - classes().begin());
    if (at == k)
      throw data_error(linear_.training_input.front() + ": found no row of the class " + of_classes[c] + " of " + path +
                       ", want rows of all classes of the initial model: without rows a class has no best bias");
    for (std::size_t j = 0; j * before < w.size(); ++j) found[j * k + at] = w[j * before + c];
  }
  return found;
}

void softmax::log_probabilities(const sample_rows& rows, std::size_t i, std::span<double> to) const {
  const std::size_t k = to.size();
  const double* features = w_.data() + (bias_ ? k : 0);
  if (bias_) std::copy_n(w_.begin(), k, to.begin());
  else std::fill(to.begin(), to.end(), 0.0);
  visit_entries(rows, i, [&](std::size_t j, double x) {
    for (std::size_t c = 0; c < k; ++c) to[c] += x * features[j * k + c];
  });
  to_log_probabilities(to);
}

void softmax::train() {
  std::vector<std::string> initial_classes;
  if (linear_.initial.given()) {
    const model_reader model(linear_.initial.path, "softmax");
    read_fields(model, read_weights(model), linear_.table);
    want_as_in_model(settings_.bias_place, settings_.bias, bias_);
    initial_classes = model.fields<std::string>("classes");
  }
  auto rows = load_training_classes(2);
  const std::size_t k = classes().size();
  auto start = std::exchange(w_, {});
  if (!start.empty()) start = initial_weights(std::move(start), initial_classes, linear_.initial.path);
  sample_rows held;
  if (!settings_.validation_input.empty()) held = load_validation(settings_.validation_input);
  column_shift shift;
  if (bias_) shift = {get_comm(), rows};
  if (weights().empty()) optim::group_equal_rows(rows);
  const auto names = feature_names(rows, bias_);

  optim::linear_options options;
  options.intercept = bias_;
  options.row_weights = weights();
  optim::softmax_objective objective(rows, k, std::move(options));
  optim::settings how;
  how.how = settings_.how;
  how.scale = settings_.c;
  how.penalty.l2 = 0.5;
  if (bias_) how.penalty.free = objective.intercepts();
  how.max_steps = settings_.rounds;
  how.gradient_tolerance = settings_.tolerance;
  if (!start.empty()) {
    how.reference.assign(start.size(), 0);
    shift.from_raw(start, k);
    how.start = std::move(start);
  }
  run_log log(*this, settings_.rounds, "objective", linear_.debug);
  how.watch = [&](const optim::progress& now) { log.round(now.step, now.value, figures_of(now, true)); };
  if (!settings_.validation_input.empty()) {
    how.held_out.patience = settings_.patience;
    how.held_out.measure = [&](std::span<const double> w, std::span<double> sums) {
      w_.assign(w.begin(), w.end());
      shift.to_raw(w_, k);
      std::vector<double> scores(k);
      for (std::size_t i = 0; i < held.rows(); ++i) {
        log_probabilities(held, i, scores);
        const auto label = static_cast<std::size_t>(held.label[i]);
        const double weight = weight_of_row(held, i);
        sums[0] += weight;
        sums[1] -= weight * scores[label];
        sums[2] += greatest_score(scores) == label ? weight : 0;
      }
    };
  }
  if (!how.start.empty()) how.held_out.best = measured_start(get_comm(), how.held_out, how.start);
  auto found = optim::minimize(*this, objective, how);
  if (found.why == optim::ending::steps && settings_.patience == 0)
    throw error("after " + std::to_string(found.steps) + " rounds the gradient's norm is " +
                json_number(found.gradient_norm) + " of " + json_number(found.first_gradient_norm) +
                (found.with_reference ? " at 0; " : " at the start; ") + remedy_of_rounds(get_comm(), rows, bias_));
  w_ = std::move(found.w);
  if (settings_.patience > 0 && !found.best.w.empty()) {
    w_ = std::move(found.best.w);
    found.value = value_at_best(objective);
  }
  shift.to_raw(w_, k);
  if (bias_) {
    const double mean =
        std::accumulate(w_.begin(), w_.begin() + static_cast<std::ptrdiff_t>(k), 0.0) / static_cast<double>(k);
    for (std::size_t c = 0; c < k; ++c) w_[c] -= mean;
  }
  model_writer model(*this, "softmax", linear_.format);
  add_feature_rows(model, get_comm(), "softmax_weight", w_, k, names);
  describe(model, rows.rows_total);
  model.fields().add("objective", found.value).add("rounds", found.steps);
  log.result("ended", found.text());
  log.result("objective", found.value);
  log.result("rounds", static_cast<std::uint64_t>(found.steps));
  use_model(log, &model);
}

/// F at w_. A collective.
double softmax::value_at_best(optim::softmax_objective& objective) {
  std::vector<double> unused(w_.size());
  const double loss = sum_over_workers(get_comm(), objective.value_and_gradient(w_, unused));
  double square = 0;
  for (std::size_t j = bias_ ? classes().size() : 0; j < w_.size(); ++j) square += w_[j] * w_[j];
  return square / 2 + settings_.c * loss;
}

void softmax::use_model(run_log& log, model_writer* model) {
  use([&](const sample_rows& rows, std::size_t i, std::span<double> scores) { log_probabilities(rows, i, scores); },
      true, false, log, model);
}

}  // namespace paracel::alg
