// SPDX-License-Identifier: BSD-3-Clause
//
// Limited-memory BFGS, and its form for l1 penalties, OWL-QN. Each worker multiplies its own part of the pairs
// (settings::wide), or all of them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "optim/methods.hpp"
#include "optim/vectors.hpp"

namespace paracel::optim {

namespace {

// OWL-QN's line search: the step halves until F falls by this fraction of what the slope says, at most so often.
constexpr double owlqn_decrease = 1e-4;
constexpr int owlqn_halvings = 40;

/// The pairs (s, y) of the last steps, in the memory of a state.
class pair_memory {
 public:
  pair_memory(problem& p, method_state& s) : p_(p), s_(s), capacity_(p.how().memory) {
    const auto all = p.size();
    std::tie(begin_, end_) = p.how().wide ? p.workers().owned(all) : std::pair<std::size_t, std::size_t>{0, all};
    s.memory.resize(2 * capacity_ * length());
    s.numbers.resize(number_count + capacity_);
  }

  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(s_.numbers[pairs]); }
  void forget() { s_.numbers[pairs] = s_.numbers[next_pair] = 0; }

  /// The quasi-Newton direction -H v.
  std::vector<double> direction(std::span<const double> v) {
    std::vector<double> d(p_.size());
    const auto own = std::span(d).subspan(begin_, length());
    for (std::size_t j = 0; j < own.size(); ++j) own[j] = -v[begin_ + j];
    std::vector<double> alpha(size());
    for (std::size_t i = 0; i < size(); ++i) {
      const auto slot = slot_of(i);
      alpha[i] = sum_dot(change(slot), own) / curvature(slot);
      add_scaled(-alpha[i], gradient_change(slot), own);
    }
    if (size() > 0) {
      const auto newest = slot_of(0);
      const double scale = curvature(newest) / sum_dot(gradient_change(newest), gradient_change(newest));
      for (auto& x : own) x *= scale;
    }
    for (std::size_t i = size(); i-- > 0;) {
      const auto slot = slot_of(i);
      const double beta = sum_dot(gradient_change(slot), own) / curvature(slot);
      add_scaled(alpha[i] - beta, change(slot), own);
    }
    if (p_.how().wide) p_.workers().gather(d);
    return d;
  }

  /// Remembers a step, unless F does not curve upwards along it.
  void add(std::span<const double> w_before, std::span<const double> g_before) {
    const auto slot = static_cast<std::size_t>(s_.numbers[next_pair]);
    const auto s = change(slot);
    const auto y = gradient_change(slot);
    for (std::size_t j = 0; j < length(); ++j) {
      s[j] = s_.w[begin_ + j] - w_before[begin_ + j];
      y[j] = s_.gradient[begin_ + j] - g_before[begin_ + j];
    }
    const double sy = sum_dot(s, y);
    if (!(sy > std::numeric_limits<double>::epsilon() * sum_dot(y, y))) {
      // The slot may have held the oldest pair.
      if (size() == capacity_) s_.numbers[pairs] = static_cast<double>(capacity_ - 1);
      return;
    }
    s_.numbers[number_count + slot] = sy;
    s_.numbers[next_pair] = static_cast<double>((slot + 1) % capacity_);
    s_.numbers[pairs] = static_cast<double>(std::min(size() + 1, capacity_));
  }

 private:
  [[nodiscard]] std::size_t length() const { return end_ - begin_; }
  /// The slot of the pair that is i steps old.
  [[nodiscard]] std::size_t slot_of(std::size_t i) const {
    return (static_cast<std::size_t>(s_.numbers[next_pair]) + capacity_ - 1 - i) % capacity_;
  }
  [[nodiscard]] std::span<double> change(std::size_t slot) {
    return std::span(s_.memory).subspan(2 * slot * length(), length());
  }
  [[nodiscard]] std::span<double> gradient_change(std::size_t slot) {
    return std::span(s_.memory).subspan((2 * slot + 1) * length(), length());
  }
  /// s.y
  [[nodiscard]] double curvature(std::size_t slot) const { return s_.numbers[number_count + slot]; }
  double sum_dot(std::span<const double> a, std::span<const double> b) {
    double d = dot(a, b);
    if (p_.how().wide) p_.workers().sum(std::span(&d, 1));
    return d;
  }

  problem& p_;
  method_state& s_;
  std::size_t capacity_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace

step_outcome lbfgs_step(problem& p, method_state& s, int number) {
  pair_memory memory(p, s);
  line_trial trial;
  for (;;) {
    const bool steepest = memory.size() == 0;
    const auto d = memory.direction(s.gradient);
    const double slope = dot(d, s.gradient);
    if (slope < 0) {
      const double first = steepest ? 1 / norm(s.gradient) : 1;
      if (move_along(p, s, number, d, slope, first, {}, trial) > 0) {
        memory.add(trial.w, trial.gradient);  // those before the step
        return step_outcome::moved;
      }
    }
    if (steepest) return step_outcome::nothing_found;
    memory.forget();
  }
}

step_outcome owlqn_step(problem& p, method_state& s, int number) {
  pair_memory memory(p, s);
  const std::size_t n = p.size();
  std::vector<double> pseudo(n);
  p.pseudo_gradient(s.w, s.gradient, pseudo);
  std::vector<double> w(n);
  std::vector<double> gradient(n);
  for (;;) {
    const bool steepest = memory.size() == 0;
    auto d = memory.direction(pseudo);
    // Only where the direction agrees with the steepest one does it lead into the chosen orthant.
    for (std::size_t j = 0; j < n; ++j) {
      if (p.has_l1() && p.l1_of(j) > 0 && d[j] * pseudo[j] >= 0) d[j] = 0;
    }
    bool finite = false;
    double found = 0;
    double t = steepest ? 1 / norm(pseudo) : 1;
    if (!(dot(d, pseudo) < 0)) t = 0;
    for (int halved = 0; t > 0 && halved <= owlqn_halvings; ++halved, t /= 2) {
      double expected = 0;
      for (std::size_t j = 0; j < n; ++j) {
        w[j] = s.w[j] + t * d[j];
        // A coordinate that would leave its orthant stops at 0.
        const double side = s.w[j] != 0 ? s.w[j] : -pseudo[j];
        if (p.l1_of(j) > 0 && w[j] * side <= 0) w[j] = 0;
        expected += pseudo[j] * (w[j] - s.w[j]);
      }
      found = p.evaluate(w, gradient) + p.l1_part(w);
      finite |= std::isfinite(found);
      if (found <= s.numbers[value] + owlqn_decrease * expected && found < s.numbers[value]) {
        s.w.swap(w);
        s.gradient.swap(gradient);
        s.numbers[value] = found;
        memory.add(w, gradient);
        return step_outcome::moved;
      }
    }
    if (t > 0 && !finite) refuse_not_finite(p, number, found);
    if (steepest) return step_outcome::nothing_found;
    memory.forget();
  }
}

}  // namespace paracel::optim
