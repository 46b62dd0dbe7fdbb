// SPDX-License-Identifier: BSD-3-Clause
#include "margin_solver.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <utility>

#include "alg/common/output/validation.hpp"
#include "design_matrix.hpp"
#include "dual_solver.hpp"
#include "sum_over_workers.hpp"

namespace paracel::alg {

namespace {

// Each mu starts near its minimum, so a few steps find it. With larger factors most steps are shortened.
constexpr double mu_factor = 4;
// Smoothing makes up at most this fraction of the gap that is wanted: when after so many more mu the gap has not
// halved, rounding keeps it from falling. The gaps of greater mu need not fall.
constexpr double smoothing_part = 0.1;
constexpr int stalled = 3;
// The rounding of margins, divided by a mu of the order of the gap, leaves a gap of up to this fraction of F.
constexpr double rounding_part = 1e-7;
// A squared loss has converged, too, if no step lowers the objective and the gradient, in the norm of the second
// derivatives, promises no more than this fraction of it.
constexpr double least_decrease = 1e-10;
// Intermediate minima need not be accurate: a gradient g contributes |g|^2 / 2 to the duality gap, and may contribute
// this fraction of the gap expected next. Before the first gap is known, the gradient's norm is reduced by a fixed
// factor.
constexpr double gradient_part = 0.1;
constexpr double first_accuracy = 0.1;
// More than this many mu from the kink, a smoothed loss is linear to within rounding error.
constexpr double straight = 36;

/// mu log(1 + exp(t / mu)) and its derivatives.
void smoothed_positive(double t, double mu, double& value, double& slope, double& curvature) {
  const double far = std::abs(t) / mu;
  if (t > 0) value += t;
  if (far > straight) {
    slope = t > 0 ? 1 : 0;
    curvature = 0;
    return;
  }
  const double e = std::exp(-far);
  value += mu * std::log1p(e);
  slope = t > 0 ? 1 / (1 + e) : e / (1 + e);
  curvature = e / ((1 + e) * (1 + e) * mu);
}

/// `two_sided`: |m - y| - epsilon instead of 1 - y m.
class smoothed_loss final : public optim::loss {
 public:
  smoothed_loss(bool two_sided, double epsilon, double mu) : two_sided_(two_sided), epsilon_(epsilon), mu_(mu) {}
  double derivatives(std::span<const double> margin, std::span<const double> label, std::span<const double> weight,
                     std::span<double> slope, std::span<double> curvature) const override {
    double sum = 0;
    for (std::size_t i = 0; i < margin.size(); ++i) {
      const double y = label[i];
      double value = 0;
      double s = 0;
      double c = 0;
      if (two_sided_) {
        double below = 0;
        double c_below = 0;
        smoothed_positive(margin[i] - y - epsilon_, mu_, value, s, c);
        smoothed_positive(y - margin[i] - epsilon_, mu_, value, below, c_below);
        s -= below;
        c += c_below;
      } else {
        smoothed_positive(1 - y * margin[i], mu_, value, s, c);
        s *= -y;
      }
      const double times = weight.empty() ? 1 : weight[i];
      sum += times * value;
      slope[i] = times * s;
      curvature[i] = times * c;
    }
    return sum;
  }

  [[nodiscard]] double greatest_curvature() const override { return 0.25 / mu_; }

 private:
  bool two_sided_;
  double epsilon_;
  double mu_;
};

double margin_of(const sample_rows& rows, std::size_t i, bool bias, std::span<const double> w) {
  return bias ? w[0] + row_product(rows, i, w.subspan(1)) : row_product(rows, i, w);
}

/// A bias that is not penalised requires slopes whose sum is 0. With the slopes of a small mu it is one up to the
/// rounding of margins, divided by mu: the rest is taken off the rows near the kink, as a change of the bias would. A
/// collective.
void balance(paralg& job, const sample_rows& rows, const std::vector<double>& weights, const margin_loss& loss,
             std::span<const double> curvature, std::span<double> slope) {
  double sums[2] = {};
  for (std::size_t i = 0; i < slope.size(); ++i) {
    sums[0] += slope[i];
    sums[1] += curvature[i];
  }
  sum_over_workers(job.get_comm(), sums);
  if (!(sums[1] > 0)) return;
  for (std::size_t i = 0; i < slope.size(); ++i) {
    const double most = weights.empty() ? 1 : weights[i];
    const double low = loss.two_sided || rows.label[i] > 0 ? -most : 0;
    const double high = loss.two_sided || rows.label[i] < 0 ? most : 0;
    slope[i] = std::clamp(slope[i] - sums[0] / sums[1] * curvature[i], low, high);
  }
}

/// The exact objective and the duality gap at w; `slopes`: the loss that was minimised, whose slopes are the dual
/// point. A collective.
void certify(paralg& job, const sample_rows& rows, const column_shift& shift, const std::vector<double>& weights,
             const margin_loss& loss, const optim::loss& slopes, const margin_settings& settings, margin_fit& fit) {
  const std::size_t first = settings.bias ? 1 : 0;
  const std::size_t n = rows.rows();
  std::vector<double> margin(n);
  std::vector<double> slope(n);
  std::vector<double> unused(n);
  for (std::size_t i = 0; i < n; ++i) margin[i] = margin_of(rows, i, settings.bias, fit.w);
  // X's, then the sums of the losses, of the conjugates, for the bias of s, and of what the rounding depends on.
  std::vector<double> sums(rows.columns + 4);
  sums[rows.columns] = loss.exact->derivatives(margin, rows.label, weights, slope, unused);
  if (loss.smoothed) {
    slopes.derivatives(margin, rows.label, weights, slope, unused);
    if (settings.bias && !settings.penalize_bias) balance(job, rows, weights, loss, unused, slope);
    add_transposed(rows, slope, std::span(sums).first(rows.columns));
    for (std::size_t i = 0; i < n; ++i) {
      sums[rows.columns + 1] += rows.label[i] * slope[i] + loss.epsilon * std::abs(slope[i]);
      sums[rows.columns + 2] += slope[i];
      sums[rows.columns + 3] += std::abs(slope[i]) * (std::abs(margin[i]) + std::abs(rows.label[i]) + loss.epsilon);
    }
  }
  sum_over_workers(job.get_comm(), sums);
  const double c = settings.c;
  const double of_bias = sums[rows.columns + 2];
  const bool free = settings.bias && !settings.penalize_bias;
  auto raw = fit.w;
  shift.to_raw(raw);
  double square = 0;
  for (std::size_t j = free ? 1 : 0; j < raw.size(); ++j) square += raw[j] * raw[j];
  fit.objective = square / 2 + c * sums[rows.columns];
  if (!loss.smoothed) return;
  // The factor first: its square, and those of the sums, may be beyond all numbers.
  double dual = 0;
  for (std::size_t j = 0; j < rows.columns; ++j) dual += (c * sums[j]) * (c * sums[j]);
  if (settings.bias && settings.penalize_bias) dual += (c * of_bias) * (c * of_bias);
  fit.gap = fit.objective + c * sums[rows.columns + 1] + dual / 2;
  if (free) fit.gap += std::abs(fit.w[first - 1] * c * of_bias);
  fit.magnitude = fit.objective + c * sums[rows.columns + 3] + dual / 2;
  if (!std::isfinite(fit.gap) || !std::isfinite(fit.magnitude))
    throw error("the duality gap is not finite; want smaller numbers in the samples, or a smaller C");
}

/// The start: of numbers to predict the bias is their mean, if there is one. What F is measured by.
struct margin_start {
  double bias = 0;
  double value = 0;   // of F, without the penalty
  double weight = 0;  // of all rows
};

/// A collective. Cost: O(rows), two sums of two numbers.
margin_start start_of(paralg& job, const sample_rows& rows, const std::vector<double>& weights, const margin_loss& loss,
                      const margin_settings& settings) {
  const std::size_t n = rows.rows();
  double sums[2] = {};
  for (std::size_t i = 0; i < n; ++i) {
    const double weight = weights.empty() ? 1 : weights[i];
    sums[0] += weight * rows.label[i];
    sums[1] += weight;
  }
  sum_over_workers(job.get_comm(), sums);
  margin_start start;
  start.weight = sums[1];
  if (loss.two_sided && settings.bias && sums[1] > 0) start.bias = sums[0] / sums[1];
  const std::vector<double> margin(n, start.bias);
  std::vector<double> slope(n);
  std::vector<double> unused(n);
  start.value = settings.c *
                sum_over_workers(job.get_comm(), loss.exact->derivatives(margin, rows.label, weights, slope, unused));
  return start;
}

/// The norm of F's gradient at w. A collective.
double gradient_norm_at(paralg& job, optim::linear_objective& objective, const margin_settings& settings,
                        std::span<const double> w) {
  std::vector<double> sums(w.size());
  (void)objective.value_and_gradient(w, sums);
  sum_over_workers(job.get_comm(), sums);
  double square = 0;
  for (std::size_t j = 0; j < w.size(); ++j) {
    const bool free = j == 0 && settings.bias && !settings.penalize_bias;
    const double g = settings.c * sums[j] + (free ? 0.0 : w[j]);
    square += g * g;
  }
  return std::sqrt(square);
}

}  // namespace

optim::loss_ptr smoothed_hinge(double mu) { return std::make_shared<smoothed_loss>(false, 0.0, mu); }
optim::loss_ptr smoothed_epsilon_insensitive(double epsilon, double mu) {
  return std::make_shared<smoothed_loss>(true, epsilon, mu);
}

void margin_settings::keys(key_list& k) {
  using how = margin_method;
  k("C", c, "weight of the losses").above(0);
  k("bias", bias, "add a bias: a feature that is always 1");
  if (k.from() != nullptr) bias_place = k.from()->place_of("bias");
  k("penalize_bias", penalize_bias, "include the bias in the penalty");
  k("method", method,
    "dual: coordinate ascent on the dual, only for a loss with a kink; newton; lbfgs, only for a squared loss; "
    "auto: dual for a loss with a kink, at least 1,000 features and no unpenalised bias, otherwise newton",
    {{"auto", how::automatic}, {"dual", how::dual}, {"newton", how::newton}, {"lbfgs", how::lbfgs}});
  k("rounds", rounds, "maximum number of steps").at_least(1).at_most(1000000000);
  k("tolerance", tolerance,
    "loss with a kink: stop when the duality gap is at most this fraction of the objective; squared loss: when the "
    "gradient's norm is at most this fraction of the first one")
      .at_least(0)
      .at_most(1);
}

void margin_settings::check(const config& from, bool kink, const std::string& kinked_name,
                            const std::string& squared_name) const {
  const auto refuse = [&](const std::string& why) { throw config_error(from.place_of("method") + ": " + why); };
  if (kink && method == margin_method::lbfgs)
    refuse("lbfgs is only for " + squared_name + ": " + kinked_name + " has a kink");
  if (method != margin_method::dual) return;
  if (!kink) refuse("dual is only for " + kinked_name);
  if (bias && !penalize_bias) refuse("dual cannot fit a bias that is not penalised; want newton");
}

bool is_dual(const margin_settings& settings, const margin_loss& loss, const sample_rows& rows) {
  if (settings.method != margin_method::automatic) return settings.method == margin_method::dual;
  return loss.smoothed && rows.columns >= optim::settings().dense_below && !(settings.bias && !settings.penalize_bias);
}

column_shift centre_margins(Comm comm, sample_rows& rows, const margin_loss& loss, const margin_settings& settings) {
  if (!settings.bias || is_dual(settings, loss, rows) || (settings.penalize_bias && loss.smoothed)) return {};
  return {std::move(comm), rows};
}

namespace {

/// By how much the smoothed losses of all rows exceed the exact ones, at most.
double smoothing_of(const margin_loss& loss, const margin_settings& settings, double mu, double weight) {
  return (loss.two_sided ? 2 : 1) * std::numbers::ln2 * mu * settings.c * weight;
}

/// The mu, of those that Newton's method goes through, whose slopes at fit.w have the least gap; ends early at one that
/// is small enough. Sets the other members of fit to that mu's. A collective.
double closest_mu(paralg& job, const sample_rows& rows, const column_shift& shift, const std::vector<double>& weights,
                  const margin_loss& loss, const margin_settings& settings, const margin_start& start,
                  margin_fit& fit) {
  double closest = 0;
  margin_fit at_closest;
  for (double mu = loss.first_mu;; mu /= mu_factor) {
    certify(job, rows, shift, weights, loss, *loss.smoothed(mu), settings, fit);
    if (closest == 0 || fit.gap < at_closest.gap) {
      closest = mu;
      at_closest = fit;
    }
    const double enough = enough_gap(settings, fit.objective, start.value, fit.magnitude);
    at_closest.converged = at_closest.gap <= enough;
    if (at_closest.converged || smoothing_of(loss, settings, mu, start.weight) <= smoothing_part * enough) break;
  }
  fit = std::move(at_closest);
  return closest;
}

/// The dual variables that the slopes of the loss at w amount to.
std::vector<double> dual_point(const sample_rows& rows, const std::vector<double>& weights, const optim::loss& slopes,
                               const margin_settings& settings, std::span<const double> w) {
  std::vector<double> margin(rows.rows());
  std::vector<double> b(rows.rows());
  std::vector<double> unused(rows.rows());
  for (std::size_t i = 0; i < margin.size(); ++i) margin[i] = margin_of(rows, i, settings.bias, w);
  slopes.derivatives(margin, rows.label, weights, b, unused);
  for (double& x : b) x *= -settings.c;
  return b;
}

}  // namespace

margin_fit fit_margins(paralg& job, const sample_rows& rows, const column_shift& shift,
                       const std::vector<double>& weights, const margin_loss& loss, const margin_settings& settings,
                       std::vector<double> initial, optim::validation held_out, const margin_watch& watch) {
  const bool dual = is_dual(settings, loss, rows);
  if (dual && initial.empty()) return fit_dual(job, rows, weights, loss, settings, nullptr, held_out, watch);
  if (held_out.measure) {
    held_out.measure = [&shift, raw = std::move(held_out.measure)](std::span<const double> w, std::span<double> sums) {
      std::vector<double> of_rows(w.begin(), w.end());
      shift.to_raw(of_rows);
      raw(of_rows, sums);
    };
  }
  margin_fit fit;
  optim::best_step best;
  fit.w.assign(rows.columns + (settings.bias ? 1 : 0), 0);
  optim::loss_ptr now = loss.exact;
  margin_fit closest;  // the one with the smallest gap
  int failures = 0;
  double enough = 0;  // the gap that is wanted
  const auto start = start_of(job, rows, weights, loss, settings);
  if (settings.bias) fit.w[0] = start.bias;
  double mu = loss.first_mu;
  std::vector<double> reference;
  if (!initial.empty()) {
    reference = fit.w;
    initial.resize(fit.w.size());
    fit.w = std::move(initial);
    shift.from_raw(fit.w);
    if (loss.smoothed) mu = closest_mu(job, rows, shift, weights, loss, settings, start, fit);
    if (fit.converged) {
      fit.text = "the duality gap of the initial model is within the tolerance";
      shift.to_raw(fit.w);
      return fit;
    }
    if (dual) {
      const auto b = dual_point(rows, weights, *loss.smoothed(mu), settings, fit.w);
      return fit_dual(job, rows, weights, loss, settings, &b, held_out, watch);
    }
    // Smoothing need not be finer than the distance from the minimum.
    if (loss.smoothed)
      for (mu = loss.first_mu; smoothing_of(loss, settings, mu, start.weight) > fit.gap;) mu /= mu_factor;
    best = measured_start(job.get_comm(), held_out, fit.w);
  }
  for (;; mu /= mu_factor) {
    if (loss.smoothed) now = loss.smoothed(mu);
    optim::linear_options options;
    options.intercept = settings.bias;
    options.row_weights = weights;
    optim::linear_objective objective(rows, now, std::move(options));
    optim::settings how;
    how.how = settings.method == margin_method::lbfgs ? optim::method::lbfgs : optim::method::newton;
    how.scale = settings.c;
    how.penalty.l2 = 0.5;
    if (settings.bias && settings.penalize_bias) how.penalty.combination = shift.intercept();
    if (settings.bias && (!settings.penalize_bias || !how.penalty.combination.empty())) how.penalty.free = {0};
    how.start = fit.w;
    how.max_steps = settings.rounds - fit.steps;
    how.gradient_tolerance = settings.tolerance;
    if (!loss.smoothed) {
      how.reference = reference;
    } else {
      how.measure = optim::gradient_measure::plain;  // that of the gap
      const double norm = gradient_norm_at(job, objective, settings, fit.w);
      const double expected = std::max(fit.gap / mu_factor, enough / 2);
      double most = fit.gap > 0 ? std::sqrt(2 * gradient_part * expected) : first_accuracy * norm;
      // An unpenalised bias adds a term of its own to the gap.
      if (settings.bias && !settings.penalize_bias && fit.gap > 0)
        most = std::min(most, gradient_part * expected / std::max(std::abs(fit.w[0]), 1e-3 * loss.first_mu));
      how.gradient_tolerance = norm > 0 ? std::min(most / norm, 1.0) : 1.0;
    }
    how.held_out = held_out;
    how.held_out.best = std::move(best);
    if (watch) {
      how.watch = [&, before = fit.steps](const optim::progress& p) {
        watch(p.step + before, p.value, figures_of(p, !loss.two_sided));
      };
    }
    auto found = optim::minimize(job, objective, how);
    fit.w = std::move(found.w);
    fit.steps += found.steps;
    fit.gradient_norm = found.gradient_norm;
    fit.text = found.text();
    best = std::move(found.best);
    certify(job, rows, shift, weights, loss, *now, settings, fit);
    if (!loss.smoothed) {
      fit.converged = found.why == optim::ending::gradient || found.why == optim::ending::objective ||
                      (found.why == optim::ending::line_search &&
                       found.gradient_norm * found.gradient_norm / 2 <= least_decrease * fit.objective);
      break;
    }
    enough = enough_gap(settings, fit.objective, start.value, fit.magnitude);
    fit.converged = fit.gap <= enough;
    if (fit.converged) fit.text = "the duality gap is within its tolerance";
    if (found.why == optim::ending::validation || fit.converged) break;
    if (fit.steps >= settings.rounds) {
      fit.text = "the maximum number of steps is reached";
      break;
    }
    const double smoothing = smoothing_of(loss, settings, mu, start.weight);
    const bool fell = closest.w.empty() || fit.gap < 0.5 * closest.gap;
    if (closest.w.empty() || fit.gap < closest.gap) closest = fit;
    if (smoothing > smoothing_part * enough) continue;
    failures = fell ? 0 : failures + 1;
    if (failures < stalled) continue;
    closest.steps = fit.steps;
    closest.text = "the duality gap no longer falls";
    fit = std::move(closest);
    fit.converged = fit.gap <= rounding_part * fit.objective;
    if (fit.converged || (settings.bias && !settings.penalize_bias)) break;
    auto rest = settings;
    rest.rounds -= fit.steps;
    auto by_dual =
        fit_dual(job, rows, weights, loss, rest, nullptr, held_out, [&](int step, double value, const auto& more) {
          if (watch) watch(step + fit.steps, value, more);
        });
    by_dual.steps += fit.steps;
    return by_dual;
  }
  if (held_out.measure && held_out.patience > 0 && !best.w.empty()) {
    fit.w = std::move(best.w);
    certify(job, rows, shift, weights, loss, *now, settings, fit);
  }
  shift.to_raw(fit.w);
  return fit;
}

std::function<void(std::span<const double>, std::span<double>)> measure_margins(
    const sample_rows& rows, bool bias, optim::loss_ptr loss, std::function<bool(double, double)> correct) {
  return [&rows, bias, loss = std::move(loss), correct = std::move(correct)](std::span<const double> w,
                                                                             std::span<double> sums) {
    const std::size_t n = rows.rows();
    std::vector<double> margin(n);
    std::vector<double> slope(n);
    std::vector<double> curvature(n);
    for (std::size_t i = 0; i < n; ++i) margin[i] = margin_of(rows, i, bias, w);
    sums[1] += loss->derivatives(margin, rows.label, rows.weight, slope, curvature);
    for (std::size_t i = 0; i < n; ++i) {
      const double weight = weight_of_row(rows, i);
      sums[0] += weight;
      sums[2] += correct(margin[i], rows.label[i]) ? weight : 0;
    }
  };
}

}  // namespace paracel::alg
