// SPDX-License-Identifier: BSD-3-Clause
#include "linear_svm.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace paracel::alg {

void linear_svm_settings::keys(key_list& k) {
  class_settings::keys(k);
  initial.key(k, model);
  k("loss", squared, "hinge, or its square", {{"hinge", false}, {"squared_hinge", true}});
  margin.keys(k);
  validation_settings::keys(k);
}

linear_svm::linear_svm(Comm comm, const std::string& server_info, const linear_svm_settings& settings)
    : class_base(std::move(comm), server_info, settings, settings.margin.rounds),
      settings_(settings),
      bias_(settings.margin.bias) {}

void linear_svm::solve() {
  if (linear_.model.empty()) {
    train();
    return;
  }
  const model_reader model(linear_.model, "linear_svm");
  read_classes(model, read_weights(model));
  check_classes(model);
  run_log log(*this, 1);
  use_model(log, nullptr);
}

std::uint32_t linear_svm::read_weights(const model_reader& model) {
  w_ = model.read_finite("linear_svm_weight");
  bias_ = model.field<bool>("settings.bias");
  const auto shape = model.shape("linear_svm_weight");
  const std::size_t first = bias_ ? 1 : 0;
  if (shape.size() != 2 || shape[1] <= first || shape[1] - first > UINT32_MAX)
    throw data_error(model.path() + ": found no weights");
  return static_cast<std::uint32_t>(shape[1] - first);
}

void linear_svm::check_classes(const model_reader& model) const {
  const auto found = model.shape("linear_svm_weight")[0];
  const std::size_t want = classes().size() == 2 ? 1 : classes().size();
  if (found != want || classes().size() < 2)
    throw data_error(model.path() + ": found " + std::to_string(found) + " rows of weights for " +
                     std::to_string(classes().size()) + " classes");
}

void linear_svm::train() {
  if (linear_.initial.given()) {
    const model_reader model(linear_.initial.path, "linear_svm");
    const auto columns = read_weights(model);
    want_as_in_model(settings_.margin.bias_place, settings_.margin.bias, bias_);
    continue_classes(model, columns);
    check_classes(model);
  }
  const auto initial = std::exchange(w_, {});
  auto rows = load_training_classes(2);
  const std::size_t k = classes().size();
  const bool two = k == 2;
  sample_rows held;
  if (!settings_.validation_input.empty()) held = load_validation(settings_.validation_input);
  margin_loss loss;
  loss.exact = settings_.squared ? optim::squared_hinge_loss() : optim::hinge_loss();
  if (!settings_.squared) loss.smoothed = smoothed_hinge;
  const auto shift = centre_margins(get_comm(), rows, loss, settings_.margin);
  if (weights().empty()) optim::group_equal_rows(rows);
  const auto class_of = rows.label;
  const auto held_class = held.label;

  run_log log(*this, settings_.margin.rounds, metric_of(settings_.margin, loss, rows), linear_.debug);
  model_writer model(*this, "linear_svm", linear_.format);
  double objective = 0;
  double gap = 0;
  std::vector<double> objectives;
  std::uint64_t steps = 0;
  for (std::size_t c = two ? 1 : 0; c < k; ++c) {
    const auto sign_of = [&](const std::vector<double>& labels, std::vector<double>& signs) {
      for (std::size_t i = 0; i < labels.size(); ++i) signs[i] = labels[i] == static_cast<double>(c) ? 1 : -1;
    };
    sign_of(class_of, rows.label);
    sign_of(held_class, held.label);
    optim::validation validation;
    if (!settings_.validation_input.empty()) {
      validation.measure = measure_margins(held, settings_.margin.bias, loss.exact,
                                           [](double m, double y) { return (m > 0) == (y > 0); });
      validation.patience = settings_.patience;
    }
    const auto width = initial.size() / (two ? 1 : k);
    const auto from = initial.begin() + static_cast<std::ptrdiff_t>(two ? 0 : c * width);
    const auto fit = fit_margins(*this, rows, shift, weights(), loss, settings_.margin,
                                 {from, from + static_cast<std::ptrdiff_t>(width)}, validation,
                                 [&](int step, double value, auto figures) {
                                   if (!two) figures.emplace_back("class", static_cast<double>(c));
                                   log.round(step, value, figures);
                                 });
    if (!fit.converged && settings_.patience == 0)
      throw error("after " + std::to_string(fit.steps) + " rounds" + (two ? "" : " for class " + classes()[c]) +
                  (settings_.squared ? " the gradient's norm is " + json_number(fit.gradient_norm)
                                     : " the duality gap is " + json_number(fit.gap)) +
                  " at the objective " + json_number(fit.objective) + "; " +
                  remedy_of_rounds(get_comm(), rows, settings_.margin.bias));
    w_.insert(w_.end(), fit.w.begin(), fit.w.end());
    objective += fit.objective;
    gap += fit.gap;
    steps += static_cast<std::uint64_t>(fit.steps);
    objectives.push_back(fit.objective);
    log.result("ended", two ? fit.text : classes()[c] + ": " + fit.text);
  }
  const std::uint64_t classifiers = two ? 1 : k;
  model.add<double>("linear_svm_weight", w_, {classifiers, w_.size() / classifiers});
  describe(model, rows.rows_total);
  model.fields().add("objective", objective).raw("objectives", json_list(objectives)).add("rounds", steps);
  if (!settings_.squared) model.fields().add("gap", gap);
  log.result("objective", objective);
  if (!settings_.squared) log.result("gap", gap);
  log.result("rounds", steps);
  use_model(log, &model);
}

void linear_svm::use_model(run_log& log, model_writer* model) {
  const std::size_t k = classes().size();
  const std::size_t width = w_.size() / (k == 2 ? 1 : k);
  const auto margin = [&](const sample_rows& rows, std::size_t i, std::size_t at) {
    const auto w = std::span<const double>(w_).subspan(at * width, width);
    return bias_ ? w[0] + row_product(rows, i, w.subspan(1)) : row_product(rows, i, w);
  };
  use(
      [&](const sample_rows& rows, std::size_t i, std::span<double> scores) {
        if (k == 2) {
          scores[1] = margin(rows, i, 0);
          scores[0] = -scores[1];
        } else {
          for (std::size_t c = 0; c < k; ++c) scores[c] = margin(rows, i, c);
        }
      },
      false, true, log, model);
}

}  // namespace paracel::alg
