// SPDX-License-Identifier: BSD-3-Clause
#include "ridge.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include <Eigen/Dense>

#include <paracel/random.hpp>

#include "alg/common/output/divergence.hpp"
#include "alg/common/output/server_state.hpp"
#include "alg/common/solvers/sum_over_workers.hpp"

namespace paracel::alg {

namespace {

constexpr const char* theta_key = "ridge_theta";
// With this many features the packed Gram matrix has 16 MB, and its factorisation takes a second.
constexpr std::size_t normal_equations_limit = 2000;

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t j = 0; j < a.size(); ++j) sum += a[j] * b[j];
  return sum;
}

using matrix_map = Eigen::Map<Eigen::MatrixXd>;
using vector_map = Eigen::Map<Eigen::VectorXd>;

}  // namespace

// ---- local computations

ridge_factors::ridge_factors(std::span<const double> packed, std::size_t n, double a)
    : n_(n), matrix_(n * n), scale_(n) {
  const auto size = static_cast<Eigen::Index>(n);
  matrix_map m(matrix_.data(), size, size);
  for (std::size_t i = 0; i < n; ++i) {
    const double square = packed[packed_at(n, i, i)] + a;
    scale_[i] = square > 0 ? 1 / std::sqrt(square) : 0;
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i; j < n; ++j) {
      const double v = (packed[packed_at(n, i, j)] + (i == j ? a : 0.0)) * scale_[i] * scale_[j];
      matrix_[i * n + j] = v;
      matrix_[j * n + i] = v;
    }
  }
  {
    const Eigen::LLT<Eigen::MatrixXd> factors(m);
    // At least an eighth of the digits must be significant.
    if (factors.info() == Eigen::Success && factors.rcond() > 1e-14) {
      definite_ = true;
      m = factors.matrixL();
      return;
    }
  }
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> spectrum(m);
  const double least = 1e-13 * spectrum.eigenvalues().cwiseAbs().maxCoeff();
  for (Eigen::Index i = 0; i < size; ++i) {
    const double value = spectrum.eigenvalues()[i];
    inverse_.push_back(value > least ? 1 / value : 0.0);
  }
  m = spectrum.eigenvectors();
}

std::vector<double> ridge_factors::solve(std::span<const double> right) const {
  std::vector<double> out(right.begin(), right.end());
  const auto size = static_cast<Eigen::Index>(n_);
  const Eigen::Map<const Eigen::MatrixXd> m(matrix_.data(), size, size);
  vector_map x(out.data(), size);
  for (std::size_t i = 0; i < n_; ++i) out[i] *= scale_[i];
  if (definite_) {
    m.triangularView<Eigen::Lower>().solveInPlace(x);
    m.triangularView<Eigen::Lower>().transpose().solveInPlace(x);
  } else {
    const Eigen::Map<const Eigen::VectorXd> inverse(inverse_.data(), size);
    x = m * (inverse.asDiagonal() * (m.transpose() * x).eval()).eval();
  }
  for (std::size_t i = 0; i < n_; ++i) out[i] *= scale_[i];
  return out;
}

std::vector<double> ridge_conjugate_gradients(
    const std::function<std::vector<double>(std::span<const double>)>& product, std::span<const double> diagonal,
    std::span<const double> right, double a, double tolerance, int iterations,
    const std::function<void(int, double)>& report, std::vector<double> start) {
  const std::size_t n = right.size();
  auto w = std::move(start);
  w.resize(n);
  std::vector<double> r(right.begin(), right.end());
  std::vector<double> z(n);
  const auto precondition = [&] {
    for (std::size_t j = 0; j < n; ++j) z[j] = diagonal[j] + a > 0 ? r[j] / (diagonal[j] + a) : 0.0;
  };
  precondition();
  const double length = std::sqrt(dot(r, z));
  if (std::ranges::any_of(w, [](double v) { return v != 0; })) {
    const auto q = product(w);
    for (std::size_t j = 0; j < n; ++j) r[j] -= q[j] + a * w[j];
    precondition();
  }
  auto p = z;
  double rz = dot(r, z);
  if (std::sqrt(rz) <= tolerance * length) return w;
  for (int k = 1; k <= iterations && length > 0; ++k) {
    auto q = product(p);
    for (std::size_t j = 0; j < n; ++j) q[j] += a * p[j];
    const double bend = dot(p, q);
    if (!(bend > 0)) break;
    const double step = rz / bend;
    for (std::size_t j = 0; j < n; ++j) {
      w[j] += step * p[j];
      r[j] -= step * q[j];
    }
    precondition();
    const double next = dot(r, z);
    const double left = std::sqrt(next) / length;
    report(k, left);
    if (left <= tolerance) break;
    for (std::size_t j = 0; j < n; ++j) p[j] = z[j] + next / rz * p[j];
    rz = next;
  }
  return w;
}

void ridge_steps(const sample_rows& rows, std::span<const double> scale, std::span<const std::size_t> order,
                 double of_mean_weight, double mean_weight, double beta, std::span<double> w, double& b) {
  // The weights are factor * w, so a sparse row costs its entries and not all features.
  double factor = 1;
  const auto settle = [&] {
    for (auto& v : w) v *= factor;
    factor = 1;
  };
  for (const auto i : order) {
    const std::size_t begin = rows.dense ? i * rows.columns : rows.row_begin[i];
    const std::size_t end = rows.dense ? begin + rows.columns : rows.row_begin[i + 1];
    const auto feature = [&](std::size_t k) -> std::size_t { return rows.dense ? k - begin : rows.column[k]; };
    double product = 0;
    for (std::size_t k = begin; k < end; ++k) product += rows.value[k] * scale[feature(k)] * w[feature(k)];
    const double e = rows.label[i] - b - factor * product;
    const double step = of_mean_weight * weight_of_row(rows, i) / mean_weight;
    factor *= 1 - 2 * step * beta;
    if (std::abs(factor) < 1e-100 || std::abs(factor) > 1e100) settle();
    b += step * e;
    const double pull = step * e / factor;
    for (std::size_t k = begin; k < end; ++k) w[feature(k)] += pull * rows.value[k] * scale[feature(k)];
  }
  settle();
}

// ---- the job

void ridge_settings::keys(key_list& k) {
  linear_settings::keys(k);
  initial.key(k, model);
  k("method", exact, "exact: the minimum; sgd: Paracel's stochastic steps", {{"exact", true}, {"sgd", false}});
  k("beta", beta, "weight of the penalty: J/(2n) has beta*|w|^2, so a = 2*n*beta")
      .at_least(0)
      .required_unless({"penalty", "model"});
  k("penalty", penalty, "the penalty a itself, instead of beta").at_least(0);
  k("standardize", standardize, "divide each feature by its standard deviation in the training samples");
  k("rounds", rounds, "sgd: passes over the data; exact: maximum number of conjugate gradient steps")
      .at_least(1)
      .at_most(1000000000);
  k("alpha", alpha, "sgd: step size").above(0);
  k("decay", decay, "sgd: the step size of round k = 0, 1, ... is alpha/(1 + decay*k)").at_least(0);
  k("tolerance", tolerance,
    "sgd: stop when the objective changes by less than this fraction (0: never); conjugate gradients: relative "
    "residual to reach, default 1e-10")
      .at_least(0);
  k("seed", seed, "sgd: seed of the order of the samples").at_least(0);
  k.plugin("update_file", update_file, "sgd: plug-in that applies a delta to theta; default: the framework's");
  k("update_func", update_func, "sgd: function of update_file; default paracel_add");
}

void ridge_settings::check(const config& from) const {
  if (!model.empty()) refuse_keys(from, {"update_file", "update_func"}, "not with a model: nothing is trained");
  if (exact)
    refuse_keys(from, {"update_file", "update_func"},
                "not with method exact, which keeps nothing in the servers; want sgd");
  if (!model.empty()) return;
  if (penalty && from.given("beta"))
    throw config_error(from.place_of("penalty") + ": not together with beta, which is penalty/(2n)");
  if (update_file.empty() != update_func.empty())
    throw config_error(from.place_of(update_file.empty() ? "update_func" : "update_file") +
                       ": want update_file and update_func together");
}

ridge_regression::ridge_regression(Comm comm, const std::string& server_info, const ridge_settings& settings)
    : linear_base(std::move(comm), server_info, settings, settings.rounds), settings_(settings) {
  if (settings_.update_file.empty()) return;
  paracel_register_update(settings_.update_file, settings_.update_func);
}

void ridge_regression::solve() {
  if (linear_.model.empty()) {
    train();
    return;
  }
  const model_reader model(linear_.model, "ridge");
  const auto theta = read_weights(model, "ridge_theta");
  load_others();
  run_log log(*this, 1);
  use(theta, has_test() ? root_mean_squared_error(get_comm(), test_, theta) : 0, log);
}

void ridge_regression::read_initial() {
  const model_reader model(linear_.initial.path, "ridge");
  initial_ = read_weights(model, "ridge_theta");
  if (settings_.exact || model.field<std::string>("settings.method") != settings_.method_name()) return;
  rounds_before_ = rounds_of(model);
  intercept_offset_ = model.field<double>("intercept_offset", 0.0);
}

void ridge_regression::train() {
  if (linear_.initial.given()) read_initial();
  auto rows = load_training();
  const std::uint64_t count = rows.rows_total;
  load_others();
  centred_samples samples(get_comm(), std::move(rows), settings_.standardize);
  if (!initial_.empty()) initial_.resize(samples.columns() + 1);
  penalty_ = settings_.penalty.value_or(2 * samples.total() * settings_.beta);
  run_log log(*this, settings_.rounds, settings_.exact ? "residual" : "objective", linear_.debug);
  const auto w = settings_.exact ? solve_exactly(samples, log) : descend(samples, log);

  double squares = 0;
  const double value = objective(samples, w, &squares);
  if (settings_.exact)
    check_divergence({"the objective", "want smaller numbers in columns and targets"}, rounds_done_, value, 0);
  const auto theta = samples.theta(w);
  const double test_error = has_test() ? root_mean_squared_error(get_comm(), test_, theta) : 0;
  model_writer model(*this, "ridge", linear_.format);
  model.add("ridge_theta", theta);
  model.fields()
      .add("objective", value)
      .add("train_rmse", std::sqrt(squares / samples.total()))
      .add("rows", count)
      .add("rounds", rounds_before_ + rounds_done_);
  if (!settings_.exact) model.fields().add("intercept_offset", intercept_offset_);
  if (has_test()) model.fields().add("test_rmse", test_error);
  describe_fields(model);
  model.settings().add("penalty", penalty_);
  model.finish();
  log.result("objective", value);
  log.result("train_rmse", std::sqrt(squares / samples.total()));
  use(theta, test_error, log);
}

double ridge_regression::objective(const centred_samples& samples, std::span<const double> w, double* squares) const {
  std::vector<double> r;
  samples.residual(w, r);
  double own = 0;
  for (std::size_t i = 0; i < r.size(); ++i) own += weight_of_row(samples.rows(), i) * r[i] * r[i];
  const double sum = sum_over_workers(get_comm(), own);
  if (squares != nullptr) *squares = sum;
  return sum + penalty_ * dot(w, w);
}

std::vector<double> ridge_regression::solve_exactly(const centred_samples& samples, run_log& log) {
  const std::size_t p = samples.columns();
  std::vector<double> w(p);
  std::vector<double> r;
  samples.residual(w, r);
  auto right = samples.correlate(r);
  right.pop_back();
  if (p > normal_equations_limit) {
    const double given = settings_.tolerance.value_or(0);
    const double tolerance = given > 0 ? given : 1e-10;
    double residual = 0;
    w = ridge_conjugate_gradients([&](std::span<const double> v) { return samples.normal_product(v); },
                                  samples.squared_lengths(), right, penalty_, tolerance, settings_.rounds,
                                  [&](int k, double left) {
                                    rounds_done_ = k;
                                    residual = left;
                                    log.round(k, left);
                                  },
                                  initial_.empty() ? initial_ : samples.from_theta(initial_).first);
    if (!(residual <= tolerance)) {
      throw error("after " + std::to_string(rounds_done_) + " rounds the residual is " + json_number(residual) +
                  " of the right-hand side, want " + json_number(tolerance) + "; raise rounds or tolerance");
    }
    return w;
  }
  std::vector<std::uint32_t> all(p);
  std::iota(all.begin(), all.end(), std::uint32_t{0});
  const auto packed = samples.gram(all);
  // Rank 0 solves for all, so that all have bit-identical results whatever their processors.
  std::optional<ridge_factors> factors;
  if (get_worker_id() == 0) factors.emplace(packed, p, penalty_);
  for (int step = 0; step < 2; ++step) {
    // Iterative refinement: the second step uses the gradient computed from the samples, which recovers the accuracy
    // lost in X'X.
    if (step > 0) {
      samples.residual(w, r);
      right = samples.correlate(r);
      right.pop_back();
      for (std::size_t j = 0; j < p; ++j) right[j] -= penalty_ * w[j];
    }
    std::vector<double> change;
    if (factors) change = factors->solve(right);
    get_comm().bcast(change);
    for (std::size_t j = 0; j < p; ++j) w[j] += change[j];
  }
  rounds_done_ = 1;
  return w;
}

/// Paracel's method: w is kept in the servers, every worker passes over its samples with a copy of it, and w becomes
/// the mean of the copies, weighted by samples.
std::vector<double> ridge_regression::descend(const centred_samples& samples, run_log& log) {
  const std::size_t p = samples.columns();
  const auto& rows = samples.rows();
  const double beta = penalty_ / (2 * samples.total());
  double own = 0;
  for (std::size_t i = 0; i < rows.rows(); ++i) own += weight_of_row(rows, i);
  const double share = own / samples.total();
  const double mean_weight = samples.total() / static_cast<double>(rows.rows_total);
  const auto scale = samples.row_scale();
  if (!settings_.standardize)
    warn_of_scales(get_comm(), rows, false, "want \"standardize\": true, or the method exact");
  std::vector<double> theta(p + 1);  // b, then w; for centred or (sparse rows) scaled samples
  if (!initial_.empty()) {
    const auto [w, above] = samples.from_theta(initial_);
    std::ranges::copy(w, theta.begin() + 1);
    theta[0] = samples.row_intercept(w) + above + intercept_offset_;
  }
  // A checkpoint may belong to other data.
  const auto read_theta = [&] {
    paracel_read(theta_key, theta);
    if (theta.size() == p + 1) return;
    throw data_error(linear_.training_input.front() + ": theta of the " + (resumed() ? "checkpoint" : "servers") +
                     " has " + std::to_string(theta.size()) + " elements, the data have " + std::to_string(p + 1) +
                     " (" + std::to_string(p) +
                     " features and the intercept); want the data that theta was trained with");
  };
  if (get_worker_id() == 0 && !resumed()) paracel_write(theta_key, theta);
  paracel_sync();
  rounds_done_ = first_iteration();
  const divergence_rule rule{"the objective", "lower alpha (now " + json_number(settings_.alpha) + ")"};
  const double tolerance = settings_.tolerance.value_or(0);
  std::vector<std::size_t> order(rows.rows());
  for (int round = rounds_done_; round < settings_.rounds; ++round) {
    read_theta();
    const double value = objective(samples, std::span(theta).subspan(1));
    if (round == 0) first_ = value;
    else log.round(round, value);
    check_divergence(rule, round, value, first_);
    if (round > 0 && tolerance > 0 && std::abs(last_ - value) <= tolerance * value) break;
    last_ = value;
    std::iota(order.begin(), order.end(), std::size_t{0});
    const int number = rounds_before_ + round;
    counter_random(settings_.seed, static_cast<std::uint64_t>(number), rows.first_row).shuffle(order);
    auto delta = theta;
    ridge_steps(rows, scale, order, settings_.alpha / (1 + settings_.decay * number), mean_weight, beta,
                std::span(delta).subspan(1), delta[0]);
    for (std::size_t j = 0; j <= p; ++j) delta[j] = share * (delta[j] - theta[j]);
    paracel_update(theta_key, delta);
    iter_commit();
    rounds_done_ = round + 1;
  }
  set_total_iters(rounds_done_);
  paracel_sync();
  read_theta();
  std::vector<double> w(theta.begin() + 1, theta.end());
  intercept_offset_ = theta[0] - samples.row_intercept(w);
  const double value = objective(samples, w);
  check_divergence(rule, rounds_done_, value, first_);
  log.round(rounds_done_, value);
  return w;
}

void ridge_regression::checkpoint_state(saved_state& to) {
  to.put("first", first_);
  to.put("last", last_);
}

void ridge_regression::restore_state(const saved_states& from) {
  from.own().get("first", first_);
  from.own().get("last", last_);
}

void ridge_regression::use(const std::vector<double>& theta, double test_error, run_log& log) {
  dump_predictions([&](std::size_t i) { return predicted(predict_, i, theta); });
  if (has_test()) log.result("rmse", test_error);
  log.result("output", get_output());
}

}  // namespace paracel::alg
