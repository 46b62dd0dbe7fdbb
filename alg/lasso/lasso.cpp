// SPDX-License-Identifier: BSD-3-Clause
#include "lasso.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include <paracel/resumable_loop.hpp>

#include "alg/common/solvers/coordinate_descent.hpp"

namespace paracel::alg {

namespace {

// Size of the first working set.
constexpr std::size_t first_working_set = 256;
// Inside the working set the solution is more accurate than required by this factor, so that it remains accurate enough
// when the correlations are recomputed from the samples.
constexpr double inner_accuracy = 1e-2;
// The rounding of a correlation, relative to the product of both standard deviations.
constexpr double rounding = 32 * std::numeric_limits<double>::epsilon();

}  // namespace

void lasso_settings::keys(key_list& k) {
  linear_settings::keys(k);
  initial.key(k, model);
  k("lambda", lambdas, "Paracel's penalty n*a; each one of a list, from the greatest down")
      .above(0)
      .required_unless({"penalty", "path", "model"});
  k("penalty", penalties, "the penalty a itself, instead of lambda").above(0);
  k("path", path, "instead of both: number of penalties, descending from the least one that makes all weights 0")
      .at_least(0)
      .at_most(100000);
  k("path_ratio", path_ratio, "path: the last penalty as a fraction of the first").above(0).at_most(1);
  k("l1_ratio", l1_ratio, "1: lasso; below: elastic net, with this fraction of the penalty on |w|_1")
      .above(0)
      .at_most(1);
  k("standardize", standardize, "divide each feature by its standard deviation in the training samples");
  k("rounds", rounds, "maximum number of passes over the data for each penalty").at_least(1).at_most(1000000000);
  k("tolerance", tolerance, "greatest permitted violation of the optimality conditions, as a fraction of a")
      .at_least(1e-12)
      .at_most(0.1);
}

void lasso_settings::check(const config& from) const {
  if (!model.empty()) return;
  const int given = (lambdas.empty() ? 0 : 1) + (penalties.empty() ? 0 : 1) + (path > 0 ? 1 : 0);
  if (given == 0) throw config_error(from.place_of("lambda") + ": want one of lambda, penalty, path");
  if (given > 1) {
    throw config_error(from.place_of(path > 0 ? "path" : "penalty") + ": want only one of lambda, penalty, path");
  }
}

lasso::lasso(Comm comm, const std::string& server_info, const lasso_settings& settings)
    : linear_base(std::move(comm), server_info, settings, settings.rounds), settings_(settings) {}

void lasso::solve() {
  if (linear_.model.empty()) {
    train();
    return;
  }
  const model_reader model(linear_.model, "lasso");
  const auto theta = read_weights(model, "lasso_weight");
  load_others();
  run_log log(*this, 1);
  use(theta, has_test() ? root_mean_squared_error(get_comm(), test_, theta) : 0, log);
}

void lasso::train() {
  auto initial = read_initial_weights("lasso", "lasso_weight");
  auto rows = load_training();
  const std::uint64_t count = rows.rows_total;
  load_others();
  const centred_samples samples(get_comm(), std::move(rows), settings_.standardize);
  const std::size_t p = samples.columns();
  const double n = samples.total();
  const auto correlate = [&] {
    std::vector<double> r;
    samples.residual(w_, r);
    correlation_ = samples.correlate(r);
    correlation_.pop_back();
    for (auto& c : correlation_) c /= n;
  };
  w_.assign(p, 0.0);
  if (initial.empty() || settings_.path > 0) correlate();

  auto penalties = settings_.penalties;
  for (const double lambda : settings_.lambdas) penalties.push_back(lambda / n);
  if (settings_.path > 0) {
    double greatest = 0;
    for (const double c : correlation_) greatest = std::max(greatest, std::abs(c));
    greatest /= settings_.l1_ratio;
    if (!(greatest > 0))
      throw data_error(linear_.training_input.front() +
                       ": found a target that no feature explains, so there is no path");
    for (int k = 0; k < settings_.path; ++k) {
      const double part = settings_.path == 1 ? 0 : static_cast<double>(k) / (settings_.path - 1);
      penalties.push_back(greatest * std::pow(settings_.path_ratio, part));
    }
  }
  std::sort(penalties.begin(), penalties.end(), std::greater<>());
  if (!initial.empty()) {
    initial.resize(p + 1);
    w_ = samples.from_theta(initial).first;
    correlate();
  }

  run_log log(*this, static_cast<int>(penalties.size()), "objective", linear_.debug);
  std::vector<point> path;
  resumable_loop along(*this);
  along.keep("path", path).keep("w", w_).keep("correlation", correlation_).keep("working", working_);
  along.keep("gram", gram_).same_on_every_worker();
  while (along.next(static_cast<std::int64_t>(penalties.size()))) {
    const double a = penalties[static_cast<std::size_t>(along.iteration())];
    auto found = solve_one(samples, a);
    found.rounds = rounds_done_;
    if (has_test()) found.test_error = root_mean_squared_error(get_comm(), test_, found.theta);
    log.round(static_cast<int>(path.size() + 1), found.objective,
              {{"a", a},
               {"violation", found.violation},
               {"nonzeros", static_cast<double>(found.nonzeros)},
               {"rounds", static_cast<double>(rounds_done_)}});
    path.push_back(std::move(found));
  }
  // The point with the best test error if there is test_input, otherwise the last one.
  auto chosen = path.end() - 1;
  if (has_test()) {
    chosen = std::min_element(path.begin(), path.end(),
                              [](const auto& x, const auto& y) { return x.test_error < y.test_error; });
  }
  std::vector<double> as;
  std::vector<double> thetas;
  std::vector<double> objectives;
  for (const auto& x : path) {
    as.push_back(x.a);
    objectives.push_back(x.objective);
    thetas.insert(thetas.end(), x.theta.begin(), x.theta.end());
  }
  model_writer model(*this, "lasso", linear_.format);
  model.add("lasso_weight", chosen->theta);
  if (path.size() > 1) {
    model.add("lasso_path_penalty", as);
    model.add("lasso_path_objective", objectives);
    model.add("lasso_path_weight", std::span<const double>(thetas), {path.size(), p + 1});
  }
  model.fields()
      .add("objective", chosen->objective)
      .add("train_rmse", chosen->train_error)
      .add("rows", count)
      .add("nonzeros", std::uint64_t{chosen->nonzeros})
      .add("violation", chosen->violation)
      .add("rounds", chosen->rounds);
  if (has_test()) model.fields().add("test_rmse", chosen->test_error);
  describe_fields(model);
  model.settings().add("penalty", chosen->a).add("lambda", chosen->a * n);
  model.finish();
  if (path.size() > 1) {
    for (const auto& x : path) {
      std::string line =
          json_number(x.a) + " objective " + json_number(x.objective) + " nonzeros " + std::to_string(x.nonzeros);
      if (has_test()) line += " rmse " + json_number(x.test_error);
      log.result("path", line);
    }
  }
  log.result("penalty", chosen->a);
  log.result("objective", chosen->objective);
  log.result("nonzeros", std::uint64_t{chosen->nonzeros});
  log.result("violation", chosen->violation);
  log.result("train_rmse", chosen->train_error);
  use(chosen->theta, chosen->test_error, log);
}

/// Adds the features with the largest violations to the working set, doubling it, and computes its Gram matrix. All
/// features that are not 0 are in it: those of an initial model are added at the beginning.
void lasso::grow(const centred_samples& samples, const std::vector<double>& violation) {
  std::vector<bool> inside(samples.columns());
  for (const auto j : working_) inside[j] = true;
  std::vector<std::uint32_t> outside;
  for (std::uint32_t j = 0; j < samples.columns(); ++j) {
    if (inside[j]) continue;
    if (w_[j] != 0) working_.push_back(j);
    else if (violation[j] > 0) outside.push_back(j);
  }
  const std::size_t room = std::max(first_working_set, 2 * working_.size()) - working_.size();
  if (outside.size() > room) {
    std::nth_element(
        outside.begin(), outside.begin() + static_cast<std::ptrdiff_t>(room), outside.end(),
        [&](auto a, auto b) { return violation[a] > violation[b] || (violation[a] == violation[b] && a < b); });
    outside.resize(room);
  }
  working_.insert(working_.end(), outside.begin(), outside.end());
  // Along a path the set only grows, so with few features all are added at once.
  if (samples.columns() <= 2 * first_working_set) {
    working_.resize(samples.columns());
    std::iota(working_.begin(), working_.end(), std::uint32_t{0});
  }
  std::sort(working_.begin(), working_.end());
  gram_ = samples.gram(working_);
  for (auto& g : gram_) g /= samples.total();
}

lasso::point lasso::solve_one(const centred_samples& samples, double a) {
  const std::size_t p = samples.columns();
  const double n = samples.total();
  const double l1 = a * settings_.l1_ratio;
  const double l2 = a * (1 - settings_.l1_ratio);
  const double enough = settings_.tolerance * a;
  // A correlation is a sum over the samples: it is not more accurate than this rounding error, which exceeds the
  // tolerance where a feature's values are large.
  std::vector<double> allowed(p);
  for (std::size_t j = 0; j < p; ++j)
    allowed[j] = std::max(enough, rounding * samples.feature_sd()[j] * samples.target_sd());
  std::vector<double> violation(p);
  std::vector<double> r;
  double squares = -1;
  point out;
  out.a = a;
  // The weights and the working set are kept by the loop along the path.
  resumable_loop loop(*this);
  loop.keep("rounds", rounds_done_).keep("violation", out.violation).keep("squares", squares).same_on_every_worker();
  while (loop.next()) {
    const auto round = static_cast<int>(loop.iteration());
    rounds_done_ = round;
    double worst = 0;
    bool violated = false;
    bool outside = false;
    std::vector<bool> inside(p);
    for (const auto j : working_) inside[j] = true;
    for (std::size_t j = 0; j < p; ++j) {
      violation[j] = l1_violation(w_[j], correlation_[j], l1, l2);
      worst = std::max(worst, violation[j]);
      violated = violated || violation[j] > allowed[j];
      if (violation[j] > allowed[j] && !inside[j]) outside = true;
    }
    out.violation = worst / a;
    if (!violated) {
      loop.stop();
      continue;
    }
    if (round == settings_.rounds) {
      throw error("after " + std::to_string(round) + " rounds the optimality conditions are violated by " +
                  json_number(out.violation) + " of the penalty, want " + json_number(settings_.tolerance) +
                  "; raise rounds or tolerance");
    }
    if (outside) grow(samples, violation);
    // One worker solves, so that all have bit-identical results whatever their processors.
    std::vector<double> solved;
    if (get_worker_id() == 0) {
      std::vector<double> correlation;
      std::vector<double> tolerance;
      for (const auto j : working_) {
        tolerance.push_back(std::max(inner_accuracy * enough, 0.5 * (allowed[j] > enough ? allowed[j] : 0)));
        solved.push_back(w_[j]);
        correlation.push_back(correlation_[j]);
      }
      l1_descend(gram_, std::vector<double>(working_.size(), l1), l2, tolerance, solved, correlation);
    }
    get_comm().bcast(solved);
    for (std::size_t k = 0; k < working_.size(); ++k) w_[working_[k]] = solved[k];
    samples.residual(w_, r);
    correlation_ = samples.correlate(r);
    squares = correlation_.back();
    correlation_.pop_back();
    for (auto& c : correlation_) c /= n;
  }
  if (squares < 0) {
    samples.residual(w_, r);
    squares = samples.correlate(r).back();
  }
  double sum = 0;
  double norm = 0;
  for (const double v : w_) {
    sum += std::abs(v);
    norm += v * v;
    out.nonzeros += v != 0 ? 1 : 0;
  }
  out.objective = squares / (2 * n) + l1 * sum + l2 / 2 * norm;
  out.train_error = std::sqrt(squares / n);
  out.theta = samples.theta(w_);
  return out;
}

void lasso::use(const std::vector<double>& theta, double test_error, run_log& log) {
  dump_predictions([&](std::size_t i) { return predicted(predict_, i, theta); });
  if (has_test()) log.result("rmse", test_error);
  log.result("output", get_output());
}

}  // namespace paracel::alg
