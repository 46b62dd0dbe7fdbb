// SPDX-License-Identifier: BSD-3-Clause
#include "lr_l1.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <paracel/optim_losses.hpp>
#include <paracel/resumable_loop.hpp>

#include "alg/common/solvers/column_shift.hpp"
#include "alg/common/solvers/coordinate_descent.hpp"
#include "alg/common/solvers/orthant_newton.hpp"
#include "alg/common/solvers/sum_over_workers.hpp"

namespace paracel::alg {

namespace {

// Armijo condition, as in Yuan, Ho and Lin.
constexpr double sufficient_decrease = 0.01;
constexpr int halvings = 50;
// Relative to F: near the minimum the decrease is below the rounding error.
constexpr double least_visible = 1e-14;
// The inner problem is solved more accurately than the outer one by this factor: just enough for Newton steps.
constexpr double inner_accuracy = 1e-2;
// Sweeps on the inner problem before Newton steps, which tend to other, sparser solutions among equal ones.
constexpr std::size_t inner_patience = 5000;
// Accuracy of the Newton equations in a step of all weights, and the limit of Hessian products. The lr_l1 run of
// tool/bench/cost.py takes 8 steps and 32 products (13809 weights).
constexpr double face_accuracy = 0.1;
constexpr std::size_t face_products = 50;
constexpr int face_halvings = 6;
// Added to the diagonal, so that the model has a minimum even where the loss is flat: this fraction of the greatest
// value that it has anywhere.
constexpr double least_curvature = 1e-15;
// An element of the gradient is a sum over the samples, accurate to this fraction of the sum of |x|.
constexpr double rounding = 8 * std::numeric_limits<double>::epsilon();

}  // namespace

void append_ones(sample_rows& rows) {
  const std::size_t n = rows.rows();
  if (rows.dense) {
    std::vector<double> wider;
    wider.reserve(n * (std::size_t{rows.columns} + 1));
    for (std::size_t i = 0; i < n; ++i) {
      const auto x = rows.dense_row(i);
      wider.insert(wider.end(), x.begin(), x.end());
      wider.push_back(1);
    }
    rows.value = std::move(wider);
  } else {
    std::vector<std::uint32_t> column;
    std::vector<double> value;
    column.reserve(rows.column.size() + n);
    value.reserve(rows.value.size() + n);
    std::vector<std::size_t> begin{0};
    for (std::size_t i = 0; i < n; ++i) {
      const auto columns = rows.columns_of(i);
      const auto values = rows.values_of(i);
      column.insert(column.end(), columns.begin(), columns.end());
      value.insert(value.end(), values.begin(), values.end());
      column.push_back(rows.columns);
      value.push_back(1);
      begin.push_back(column.size());
    }
    rows.column = std::move(column);
    rows.value = std::move(value);
    rows.row_begin = std::move(begin);
  }
  ++rows.columns;
}

double lr_l1_loss(std::span<const double> margin, std::span<const double> label, std::span<const double> weight,
                  double c, std::span<double> slope, std::span<double> curvature) {
  double sum = 0;
  for (std::size_t i = 0; i < margin.size(); ++i) {
    const double z = label[i] * margin[i];
    // One exponential for the loss and both derivatives.
    const double e = std::exp(-std::abs(z));
    const double wrong = z < 0 ? 1 / (1 + e) : e / (1 + e);  // 1 / (1 + exp(z))
    const double of_row = weight.empty() ? c : c * weight[i];
    sum += of_row * (std::log1p(e) + (z < 0 ? -z : 0.0));
    slope[i] = -of_row * label[i] * wrong;
    curvature[i] = of_row * e / ((1 + e) * (1 + e));
  }
  return sum;
}

void lr_l1_settings::keys(key_list& k) {
  linear_settings::keys(k, sample_options::label_rule::binary, {.classes = true});
  initial.key(k, model);
  std::optional<double> lambda;
  std::optional<double> given_c;
  k("lambda", lambda, "weight of Paracel's penalty lambda*|w|_1: 1/C").above(0).required_unless({"C", "model"});
  k("C", given_c, "weight of the loss, instead of lambda").above(0);
  c = given_c.value_or(1 / lambda.value_or(0));
  k("bias", bias, "add a bias: a feature that is always 1 and not penalised");
  if (k.from() != nullptr) bias_place = k.from()->place_of("bias");
  k("rounds", rounds, "maximum number of steps").at_least(1).at_most(1000000000);
  k("tolerance", tolerance, "greatest permitted violation of the optimality conditions").at_least(1e-10).at_most(1000);
  k("method", by_owlqn, "newton, or owlqn: orthant-wise L-BFGS, which sums only gradients over the workers",
    {{"newton", false}, {"owlqn", true}});
  k("block_size", block, "newton: maximum number of features in a step, whose Gram matrix is summed over the workers")
      .at_least(1)
      .at_most(16384);
}

void lr_l1_settings::check(const config& from) const {
  if (by_owlqn && from.given("block_size"))
    throw config_error(from.place_of("block_size") + ": not with owlqn, which has no blocks");
  if (model.empty() && from.given("C") && from.given("lambda"))
    throw config_error(from.place_of("C") + ": not together with lambda, which is 1/C");
}

lr_l1::lr_l1(Comm comm, const std::string& server_info, const lr_l1_settings& settings)
    : linear_base(std::move(comm), server_info, settings, settings.rounds), settings_(settings) {}

void lr_l1::solve() {
  if (linear_.model.empty()) {
    train();
    return;
  }
  const model_reader model(linear_.model, "lr_l1");
  const auto theta = read_weights(model, "lr_l1_weight", model.field<bool>("settings.bias"));
  load_others();
  run_log log(*this, 1);
  use(theta, log, nullptr);
}

double lr_l1::penalty_of(std::span<const double> w) const {
  double sum = 0;
  for (std::size_t j = 0; j < w.size(); ++j) sum += l1_of(j) * std::abs(w[j]);
  return sum;
}

double lr_l1::violation(std::size_t j) const {
  const double found = std::max(0.0, l1_violation(w_[j], -gradient_[j], l1_of(j)) - rounding_[j]);
  return l1_of(j) > 0 ? found : found / bias_unit_;
}

/// What depends on each feature's scale.
void lr_l1::measure_scales() {
  least_curvature_.assign(w_.size(), 0.0);
  std::vector<double> weight(rows_.weight);
  if (weight.empty()) weight.assign(rows_.rows(), 1.0);
  const double n = sum_over_workers(get_comm(), std::accumulate(weight.begin(), weight.end(), 0.0));
  for (auto& w : weight) w *= settings_.c / 4;
  add_weighted_squares(rows_, weight, least_curvature_);
  sum_over_workers(get_comm(), least_curvature_);
  rounding_.clear();
  bias_unit_ = std::min(1.0, settings_.c * n / 2);
  for (auto& square : least_curvature_) {
    // C sqrt(n sum of x^2) is at least C times the sum of |x|.
    rounding_.push_back(rounding * std::sqrt(4 * settings_.c * n * square));
    square *= least_curvature;
  }
}

/// Loss and gradient over all workers, and the derivatives of this worker's rows.
double lr_l1::evaluate(std::span<const double> margin) {
  std::vector<double> sums(w_.size() + 1);
  sums.back() = lr_l1_loss(margin, rows_.label, rows_.weight, settings_.c, slope_, curvature_);
  add_transposed(rows_, slope_, sums);
  sum_over_workers(get_comm(), sums);
  const double loss = sums.back();
  sums.pop_back();
  gradient_ = std::move(sums);
  return loss;
}

/// The features of the next step, ascending: those in the model and those that should be; if there are too many, those
/// that are farthest from their optimum.
std::vector<std::uint32_t> lr_l1::choose(double worst) const {
  std::vector<std::uint32_t> block;
  for (std::uint32_t j = 0; j < w_.size(); ++j) {
    // Also those just inside the bound, which a step of the others may push beyond it.
    if (w_[j] != 0 || std::abs(gradient_[j]) > l1_of(j) - std::min(worst, 0.5) * 0.1) block.push_back(j);
  }
  if (block.size() > settings_.block) {
    std::nth_element(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(settings_.block), block.end(),
                     [&](auto a, auto b) {
                       const double left = violation(a);
                       const double right = violation(b);
                       return left > right || (left == right && a < b);
                     });
    block.resize(settings_.block);
    std::sort(block.begin(), block.end());
  }
  return block;
}

/// A Newton step of all weights in their orthant. Returns false, without changing w, if it does not lower F.
bool lr_l1::face_step() {
  const std::size_t p = w_.size();
  std::vector<double> slope(p);
  std::vector<char> free(p);
  for (std::size_t j = 0; j < p; ++j) {
    slope[j] = l1_slope(w_[j], gradient_[j], l1_of(j));
    free[j] = w_[j] != 0 || slope[j] != 0 ? 1 : 0;
  }
  std::vector<double> diagonal(p);
  add_weighted_squares(rows_, curvature_, diagonal);
  sum_over_workers(get_comm(), diagonal);
  for (std::size_t j = 0; j < p; ++j) diagonal[j] += least_curvature_[j];
  const auto direction = face_direction(
      [&](std::span<const double> v, std::span<double> out) {
        add_weighted_product(rows_, curvature_, v, out);
        sum_over_workers(get_comm(), out);
        for (std::size_t j = 0; j < p; ++j) out[j] += least_curvature_[j] * v[j];
      },
      diagonal, slope, free, face_accuracy, face_products);

  double step = 1;
  for (int halved = 0; halved <= face_halvings; ++halved, step /= 2) {
    auto moved = w_;
    std::vector<double> difference(p);
    double expected = 0;
    for (std::size_t j = 0; j < p; ++j) {
      if (free[j] == 0) continue;
      moved[j] = w_[j] + step * direction[j];
      if (l1_of(j) > 0) moved[j] = stay_in_orthant(w_[j], slope[j], moved[j]);
      difference[j] = moved[j] - w_[j];
      expected += slope[j] * difference[j];
    }
    if (!(expected < 0)) continue;
    multiply(rows_, difference, change_);
    for (std::size_t i = 0; i < margin_.size(); ++i) candidate_[i] = margin_[i] + change_[i];
    const double reached = evaluate(candidate_) + penalty_of(moved);
    if (reached - value_ > sufficient_decrease * expected + least_visible * std::abs(value_)) continue;
    w_ = std::move(moved);
    margin_.swap(candidate_);
    value_ = reached;
    return true;
  }
  // Restores the derivatives after the last trial.
  value_ = evaluate(margin_) + penalty_of(w_);
  return false;
}

/// A Newton step of a block of features.
void lr_l1::block_step(double worst) {
  const auto block = choose(worst);
  std::vector<double> hessian(packed_size(block.size()));
  add_gram(rows_, block, curvature_, hessian);
  sum_over_workers(get_comm(), hessian);
  // One worker solves, so that all have bit-identical results whatever their processors.
  std::vector<double> next;
  if (get_worker_id() == 0) {
    std::vector<double> correlation;
    std::vector<double> l1;
    std::vector<double> tolerance;
    const double enough = std::max(inner_accuracy * worst, 0.1 * settings_.tolerance);
    for (std::size_t k = 0; k < block.size(); ++k) {
      hessian[packed_at(block.size(), k, k)] += least_curvature_[block[k]];
      tolerance.push_back(std::max(enough, 0.5 * rounding_[block[k]]));
      next.push_back(w_[block[k]]);
      correlation.push_back(-gradient_[block[k]]);
      l1.push_back(l1_of(block[k]));
    }
    l1_descend(hessian, l1, 0, tolerance, next, correlation, inner_patience);
  }
  get_comm().bcast(next);

  std::vector<double> direction(w_.size());
  double expected = 0;
  auto moved = w_;
  for (std::size_t k = 0; k < block.size(); ++k) {
    const auto j = block[k];
    direction[j] = next[k] - w_[j];
    moved[j] = next[k];
    expected += gradient_[j] * direction[j];
  }
  expected += penalty_of(moved) - penalty_of(w_);
  multiply(rows_, direction, change_);
  double step = 1;
  int halved = 0;
  double reached = 0;
  for (;; step /= 2, ++halved) {
    for (std::size_t i = 0; i < margin_.size(); ++i) candidate_[i] = margin_[i] + step * change_[i];
    if (step < 1) {
      for (const auto j : block) moved[j] = w_[j] + step * direction[j];
    }
    // Computes the gradient too: the next step needs it unless this one is too long.
    reached = evaluate(candidate_) + penalty_of(moved);
    const double rounding = least_visible * std::abs(value_);
    if (reached - value_ <= sufficient_decrease * step * expected + rounding || halved == halvings) break;
  }
  if (halved == halvings) {
    throw error("no step lowers the objective " + json_number(value_) + "; the optimality conditions are violated by " +
                json_number(worst) + ", want " + json_number(settings_.tolerance));
  }
  w_ = std::move(moved);
  margin_.swap(candidate_);
  value_ = reached;
}

/// Throws: `rounds` steps have not been enough.
void lr_l1::refuse_to_end(int round, double worst) const {
  throw error("after " + std::to_string(round) + " rounds the optimality conditions are violated by " +
              json_number(worst) + ", want " + json_number(settings_.tolerance) + "; raise rounds or tolerance");
}

int lr_l1::proximal_newton(run_log& log) {
  const std::size_t p = w_.size();
  value_ = evaluate(margin_) + penalty_of(w_);
  double worst = 0;
  resumable_loop loop(*this);
  loop.keep("w", w_).keep("gradient", gradient_).keep("value", value_);
  loop.keep("margin", margin_).keep("slope", slope_).keep("curvature", curvature_);
  while (loop.next()) {
    const auto round = static_cast<int>(loop.iteration());
    worst = 0;
    std::size_t nonzeros = 0;
    std::size_t wanted = 0;
    for (std::size_t j = 0; j < p; ++j) {
      worst = std::max(worst, violation(j));
      nonzeros += w_[j] != 0 ? 1 : 0;
      wanted += w_[j] != 0 || violation(j) > 0 ? 1 : 0;
    }
    if (round > 0) log.round(round, value_, {{"violation", worst}, {"nonzeros", static_cast<double>(nonzeros)}});
    if (worst <= settings_.tolerance) {
      loop.stop();
      continue;
    }
    if (round == settings_.rounds) refuse_to_end(round, worst);

    // A block step finds the minimum of its model, sign changes included, and always lowers F, but with this many
    // weights it moves only some of them.
    if (wanted <= settings_.block || !face_step()) block_step(worst);
  }
  return static_cast<int>(loop.iteration()) - 1;  // the last iteration only detected convergence
}

int lr_l1::owlqn(run_log& log) {
  (void)evaluate(margin_);
  double square = 0;
  double worst = 0;
  for (std::size_t j = 0; j < w_.size(); ++j) {
    square += violation(j) * violation(j);
    worst = std::max(worst, violation(j));
  }
  if (worst <= settings_.tolerance) return 0;
  optim::linear_options options;
  options.row_weights = rows_.weight;
  optim::linear_objective loss(rows_, optim::log_loss(), std::move(options));
  optim::settings how;
  how.how = optim::method::owlqn;
  how.start = w_;
  how.scale = settings_.c;
  how.penalty.l1 = 1;
  if (settings_.bias) how.penalty.free = {w_.size() - 1};
  how.max_steps = settings_.rounds;
  how.measure = optim::gradient_measure::plain;  // that of the optimality conditions
  how.gradient_tolerance = settings_.tolerance * (settings_.bias ? bias_unit_ : 1) / std::sqrt(square);
  how.objective_tolerance = 0;
  how.watch = [&](const optim::progress& now) {
    log.round(now.step, now.value, {{"gradient_norm", now.gradient_norm}, {"evaluations", now.evaluations}});
  };
  auto found = optim::minimize(*this, loss, how);
  w_ = std::move(found.w);
  return found.steps;
}

void lr_l1::train() {
  auto theta = read_initial_weights("lr_l1", "lr_l1_weight", settings_.bias, settings_.bias_place);
  rows_ = load_training();
  weigh_signs(get_comm(), linear_.table, rows_);
  const std::uint64_t total = rows_.rows_total;
  load_others();
  theta.resize(rows_.columns + std::size_t{1});
  column_shift shift;
  if (settings_.bias) {
    shift = {get_comm(), rows_};
    shift.from_raw(theta);
    append_ones(rows_);
  }
  const std::size_t p = rows_.columns;
  const std::size_t n = rows_.rows();
  w_.assign(theta.begin() + 1, theta.end());
  if (settings_.bias) w_.push_back(theta[0]);
  slope_.resize(n);
  curvature_.resize(n);
  margin_.assign(n, 0.0);
  if (linear_.initial.given()) multiply(rows_, w_, margin_);
  change_.resize(n);
  candidate_.resize(n);
  measure_scales();
  // No row has the feature: only the penalty counts, and steps need a curvature.
  for (std::size_t j = 0; j < p; ++j)
    if (least_curvature_[j] == 0 && l1_of(j) > 0) w_[j] = 0;
  run_log log(*this, settings_.rounds, "objective", linear_.debug);

  const int round = settings_.by_owlqn ? owlqn(log) : proximal_newton(log);

  // Incrementally updated margins have lost a digit or two.
  multiply(rows_, w_, margin_);
  value_ = evaluate(margin_) + penalty_of(w_);
  double worst = 0;
  std::uint64_t nonzeros = 0;
  for (std::size_t j = 0; j < p; ++j) {
    worst = std::max(worst, violation(j));
    nonzeros += w_[j] != 0 ? 1 : 0;
  }
  if (settings_.by_owlqn && worst > settings_.tolerance) refuse_to_end(round, worst);
  std::copy_n(w_.begin(), theta.size() - 1, theta.begin() + 1);
  theta[0] = settings_.bias ? w_.back() : 0;
  shift.to_raw(theta);
  model_writer model(*this, "lr_l1", linear_.format);
  model.add("lr_l1_weight", std::vector<double>(theta.begin() + (settings_.bias ? 0 : 1), theta.end()));
  model.fields()
      .add("objective", value_)
      .add("rows", total)
      .add("nonzeros", nonzeros)
      .add("violation", worst)
      .add("rounds", round);
  add_classes(model, samples().classes);
  describe_fields(model);
  model.settings().add("C", settings_.c).add("lambda", 1 / settings_.c);
  log.result("objective", value_);
  log.result("nonzeros", nonzeros);
  log.result("violation", worst);
  log.result("rounds", static_cast<std::uint64_t>(round));
  use(theta, log, &model);
}

void lr_l1::use(const std::vector<double>& theta, run_log& log, model_writer* model) {
  classification_quality quality;
  if (has_test()) {
    std::vector<double> margin(test_.rows());
    for (std::size_t i = 0; i < margin.size(); ++i) margin[i] = predicted(test_, i, theta);
    quality = quality_over_workers(get_comm(), margin, test_.label, test_.weight);
  }
  if (model != nullptr) {
    if (has_test()) add_quality(*model, quality);
    model->finish();
  }
  dump_predictions([&](std::size_t i) { return logistic(predicted(predict_, i, theta)); });
  if (has_test()) log_quality(log, quality);
  log.result("output", get_output());
}

}  // namespace paracel::alg
