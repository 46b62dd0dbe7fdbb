// SPDX-License-Identifier: BSD-3-Clause
#include "optim/methods.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <paracel/error.hpp>

#include "optim/vectors.hpp"

namespace paracel::optim {

namespace {

constexpr std::array<std::pair<method, const char*>, 6> method_names{{{method::gd, "gd"},
                                                                      {method::sgd, "sgd"},
                                                                      {method::lbfgs, "lbfgs"},
                                                                      {method::owlqn, "owlqn"},
                                                                      {method::newton, "newton"},
                                                                      {method::cg, "cg"}}};
// Successive steps that must lower F by too little: with line searches a single one may just be unlucky.
constexpr int patience_of(method m) { return m == method::newton ? 1 : 3; }

}  // namespace

method method_of(const std::string& name) {
  for (const auto& [m, known] : method_names) {
    if (name == known) return m;
  }
  throw config_error("found \"" + name + "\", want gd, sgd, lbfgs, owlqn, newton or cg");
}

const char* name_of(method m) {
  for (const auto& [known, name] : method_names) {
    if (m == known) return name;
  }
  return "unknown";
}

void refuse_not_finite(const problem& p, int number, double found) {
  throw error(std::string(name_of(p.how().how)) + ": the objective or its gradient is " + std::to_string(found) +
              (number == 0 ? " at the start" : " at step " + std::to_string(number)) +
              "; want smaller numbers in the data, or lower weights of the losses and penalties");
}

namespace {

/// The norm of the gradient at w, or of the subgradient nearest to 0.
double slope_norm(problem& p, const method_state& s, std::span<const double> w, std::span<const double> gradient) {
  const auto measured = [&](std::span<const double> g) {
    return p.how().measure == gradient_measure::plain ? p.norm(g) : length_of(p, s, g);
  };
  if (!p.has_l1()) return measured(gradient);
  std::vector<double> pseudo(gradient.size());
  p.pseudo_gradient(w, gradient, pseudo);
  return measured(pseudo);
}

}  // namespace

std::vector<double> steepest(const method_state& s, std::span<const double> gradient) {
  std::vector<double> out(gradient.begin(), gradient.end());
  for (std::size_t j = 0; j < s.metric.size(); ++j) out[j] *= s.metric[j];
  return out;
}

double first_step(problem& p, const method_state& s, std::span<const double> gradient) {
  return (s.metric.empty() ? 1 : 0.5 * std::sqrt(p.scale() * p.total_weight())) / length_of(p, s, gradient);
}

double length_of(problem& p, const method_state& s, std::span<const double> gradient) {
  if (s.metric.empty()) return p.norm(gradient);
  return std::sqrt(p.dot(gradient, steepest(s, gradient)));
}

void begin(problem& p, method_state& s) {
  s.gradient.assign(p.size(), 0.0);
  s.memory.clear();
  s.numbers.assign(number_count, 0.0);
  const auto& reference = p.how().reference;
  std::vector<double> at_reference(reference.size());
  if (!reference.empty()) (void)p.evaluate(reference, at_reference);
  s.numbers[value] = p.evaluate(s.w, s.gradient) + p.l1_part(s.w);
  if (!std::isfinite(s.numbers[value])) refuse_not_finite(p, 0, s.numbers[value]);
  s.metric = p.inverse_curvatures(s.w);
  const double n = slope_norm(p, s, s.w, s.gradient);
  double first = reference.empty() ? n : slope_norm(p, s, reference, at_reference);
  if (first == 0) first = n;  // the reference is the minimum
  for (const double norm : {n, first})
    if (!std::isfinite(norm)) refuse_not_finite(p, 0, norm);
  s.numbers[gradient_norm] = n;
  s.numbers[first_gradient_norm] = first;
  s.numbers[evaluations] = reference.empty() ? 1 : 2;
}

step_outcome step(problem& p, method_state& s, int number) {
  const auto evaluated = p.evaluations;
  const auto multiplied = p.products;
  step_outcome outcome{};
  switch (p.how().how) {
    case method::gd:
      outcome = gd_step(p, s, number);
      break;
    case method::sgd:
      outcome = sgd_step(p, s, number);
      break;
    case method::lbfgs:
      outcome = lbfgs_step(p, s, number);
      break;
    case method::owlqn:
      outcome = owlqn_step(p, s, number);
      break;
    case method::newton:
      outcome = newton_step(p, s, number);
      break;
    case method::cg:
      outcome = cg_step(p, s, number);
      break;
  }
  s.numbers[evaluations] += static_cast<double>(p.evaluations - evaluated);
  s.numbers[products] += static_cast<double>(p.products - multiplied);
  s.numbers[gradient_norm] = slope_norm(p, s, s.w, s.gradient);
  if (!std::isfinite(s.numbers[gradient_norm])) refuse_not_finite(p, number, s.numbers[gradient_norm]);
  return outcome;
}

bool is_within_tolerance(const problem& p, const method_state& s) {
  return s.numbers[gradient_norm] <= p.how().gradient_tolerance * s.numbers[first_gradient_norm];
}

bool has_converged(const problem& p, method_state& s, double before, ending& why) {
  if (is_within_tolerance(p, s)) {
    why = ending::gradient;
    return true;
  }
  const double now = s.numbers[value];
  const bool is_small =
      std::abs(before - now) <= p.how().objective_tolerance * std::max(std::abs(before), std::abs(now));
  s.numbers[small_steps] = is_small ? s.numbers[small_steps] + 1 : 0;
  why = ending::objective;
  return s.numbers[small_steps] >= patience_of(p.how().how);
}

void revisit_if_resumed(problem& p, const method_state& s, int number) {
  if (number > 1 && p.evaluations == 0) p.revisit(s.w);
}

double move_along(problem& p, method_state& s, int number, const std::vector<double>& direction, double slope,
                  double first, const wolfe_conditions& wanted, line_trial& trial) {
  trial.w.resize(p.size());
  trial.gradient.resize(p.size());
  double last = 0;
  const auto at = [&](double t) {
    for (std::size_t j = 0; j < trial.w.size(); ++j) trial.w[j] = s.w[j] + t * direction[j];
    last = trial.value = p.evaluate(trial.w, trial.gradient);
    return line_point{t, trial.value, p.dot(trial.gradient, direction)};
  };
  const auto r = search_line(at, {0, s.numbers[value], slope}, first, wanted);
  if (!r.saw_finite) refuse_not_finite(p, number, last);
  if (!r.found) return 0;
  s.w.swap(trial.w);
  s.gradient.swap(trial.gradient);
  s.numbers[value] = trial.value;
  return r.at.step;
}

}  // namespace paracel::optim
