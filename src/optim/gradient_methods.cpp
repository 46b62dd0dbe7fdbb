// SPDX-License-Identifier: BSD-3-Clause
//
// Methods that need gradients only: (proximal) gradient descent, non-linear conjugate gradients, stochastic gradients.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <paracel/random.hpp>

#include "optim/methods.hpp"
#include "optim/vectors.hpp"

namespace paracel::optim {

namespace {

constexpr double gd_decrease = 1e-4;
constexpr int gd_halvings = 60;
// A more exact line search pays along conjugate directions: the next ones rely on it.
constexpr wolfe_conditions cg_conditions{.decrease = 1e-4, .curvature = 0.1, .most = 25};
// sgd: iterate k has weight (k + 1) (k + 2) (k + 3) ... in the average, this many factors: the last ones count most,
// but the noise of single batches averages out.
constexpr double averaging_order = 3;
// A stream of counter_random: the seed may be used elsewhere, too.
constexpr std::uint64_t batch_stream = 0x6261746368;

double shrunk(double x, double by) { return x > by ? x - by : x < -by ? x + by : 0; }

}  // namespace

step_outcome gd_step(problem& p, method_state& s, int number) {
  const std::size_t n = p.size();
  std::vector<double> w(n);
  std::vector<double> gradient(n);
  // The step that would have been best for the last change of the gradient (Barzilai and Borwein); the line search
  // makes it safe.
  double t = s.numbers[step_length] > 0 ? s.numbers[step_length] : first_step(p, s, s.gradient);
  if (!std::isfinite(t)) return step_outcome::nothing_found;
  const double l1_before = p.l1_part(s.w);
  bool finite = false;
  double found = 0;
  for (int halved = 0; halved <= gd_halvings; ++halved, t /= 2) {
    double expected = -l1_before;
    for (std::size_t j = 0; j < n; ++j) {
      const double length = scaled_by(s.metric, j, t);
      w[j] = shrunk(s.w[j] - length * s.gradient[j], length * p.l1_of(j));
      expected += s.gradient[j] * (w[j] - s.w[j]);
    }
    const double l1_after = p.l1_part(w);
    expected += l1_after;
    found = p.evaluate(w, gradient) + l1_after;
    finite |= std::isfinite(found);
    if (!(found <= s.numbers[value] + gd_decrease * expected && found < s.numbers[value])) continue;
    double ss = 0;
    double sy = 0;
    for (std::size_t j = 0; j < n; ++j) {
      const double change = w[j] - s.w[j];
      ss += change * change / scaled_by(s.metric, j, 1);
      sy += change * (gradient[j] - s.gradient[j]);
    }
    s.numbers[step_length] = sy > 0 ? ss / sy : 2 * t;
    s.w.swap(w);
    s.gradient.swap(gradient);
    s.numbers[value] = found;
    return step_outcome::moved;
  }
  if (!finite) refuse_not_finite(p, number, found);
  return step_outcome::nothing_found;
}

step_outcome cg_step(problem& p, method_state& s, int number) {
  const std::size_t n = p.size();
  auto& d = s.memory;
  bool first_direction = d.empty();
  d.resize(n);
  double slope = first_direction ? 0 : p.dot(d, s.gradient);
  if (p.rows().has_hessian()) revisit_if_resumed(p, s, number);
  line_trial trial;
  for (;;) {
    if (!(slope < 0)) {
      first_direction = true;
      for (std::size_t j = 0; j < n; ++j) d[j] = -scaled_by(s.metric, j, s.gradient[j]);
      slope = p.dot(d, s.gradient);
      if (!(slope < 0)) return step_outcome::nothing_found;
    }
    double first = number == 1 || s.numbers[step_length] == 0 ? first_step(p, s, s.gradient)
                                                              : s.numbers[step_length] * s.numbers[last_slope] / slope;
    if (p.rows().has_hessian()) {
      std::vector<double> hd(n);
      p.hessian_vector(d, hd);
      if (const double curvature = p.dot(d, hd); curvature > 0) first = -slope / curvature;
    }
    const double t = move_along(p, s, number, d, slope, first, cg_conditions, trial);
    if (t > 0) {
      s.numbers[step_length] = t;
      s.numbers[last_slope] = slope;
      break;
    }
    if (first_direction) return step_outcome::nothing_found;
    slope = 0;
    // The last trial evaluated another point.
    if (p.rows().has_hessian()) p.evaluate(s.w, s.gradient);
  }
  // Polak and Ribiere's beta, but at least 0.
  using pair = problem::vector_pair;
  const auto down = steepest(s, s.gradient);
  const auto [before, now, both] = p.dots(std::array{pair{trial.gradient, steepest(s, trial.gradient)},
                                                     pair{s.gradient, down}, pair{down, trial.gradient}});
  const double beta = std::max(0.0, (now - both) / before);
  for (std::size_t j = 0; j < n; ++j) d[j] = beta * d[j] - down[j];
  return step_outcome::moved;
}

// Which rows form a batch is a function of the seed, the pass and their numbers among all rows, so batches do not
// depend on the number of workers.
step_outcome sgd_step(problem& p, method_state& s, int number) {
  const std::size_t n = p.size();
  const auto& how = p.how();
  const auto all_rows = p.all_rows();
  const auto count =
      std::max<std::size_t>(1, static_cast<std::size_t>(std::llround(all_rows / static_cast<double>(how.batch))));
  auto& rows = p.rows();
  std::vector<std::size_t> batch_of(rows.rows());
  std::vector<std::size_t> begin_of(count + 1);
  for (std::size_t i = 0; i < batch_of.size(); ++i) {
    counter_random draw(how.seed, batch_stream + static_cast<std::uint64_t>(number), rows.first_row() + i);
    batch_of[i] = draw.below(count);
    ++begin_of[batch_of[i] + 1];
  }
  for (std::size_t b = 0; b < count; ++b) begin_of[b + 1] += begin_of[b];
  std::vector<std::size_t> order(batch_of.size());
  auto next = begin_of;
  for (std::size_t i = 0; i < order.size(); ++i) order[next[batch_of[i]]++] = i;

  if (s.memory.empty()) {
    s.memory = s.w;
    s.memory.insert(s.memory.end(), s.w.begin(), s.w.end());
  }
  const auto w = std::span(s.memory).first(n);
  const auto average = std::span(s.memory).subspan(n);
  std::vector<double> sums(n + 1);
  const auto gradient = std::span(sums).first(n);
  for (std::size_t b = 0; b < count; ++b) {
    std::fill(sums.begin(), sums.end(), 0.0);
    const auto mine = std::span<const std::size_t>(order).subspan(begin_of[b], begin_of[b + 1] - begin_of[b]);
    rows.rows_value_and_gradient(mine, w, gradient);
    sums.back() = static_cast<double>(mine.size());
    p.workers().sum(sums);
    double& k = s.numbers[batches];
    if (sums.back() > 0) {
      const double times = p.scale() * all_rows / sums.back();
      for (auto& g : gradient) g *= times;
      p.add_l2(w, gradient);
      add_scaled(-how.rate / (1 + how.decay * k / static_cast<double>(count)), gradient, w);
    }
    const double part = (averaging_order + 1) / (k + averaging_order + 1);
    for (std::size_t j = 0; j < n; ++j) average[j] += part * (w[j] - average[j]);
    k += 1;
  }
  std::vector<double> gradient_there(n);
  const double found = p.evaluate(average, gradient_there);
  if (!std::isfinite(found)) refuse_not_finite(p, number, found);
  if (found < s.numbers[value]) {
    std::copy(average.begin(), average.end(), s.w.begin());
    s.gradient.swap(gradient_there);
    s.numbers[value] = found;
  }
  return step_outcome::moved;
}

}  // namespace paracel::optim
