// SPDX-License-Identifier: BSD-3-Clause
#include "optim/problem.hpp"

#include <algorithm>
#include <cmath>

#include <paracel/collectives.hpp>
#include <paracel/error.hpp>

#include "optim/vectors.hpp"

namespace paracel::optim {

void team::sum(std::span<double>) {}
void team::gather(std::span<double>) {}

void team::sum_chunks(objective& f, std::size_t chunks, std::span<const double> w, std::span<double> sums) {
  std::vector<double> part(sums.size());
  const auto count = std::min(chunks, f.rows());
  for (std::size_t c = 0; c < count; ++c) {
    const auto rows = owned_range_of(f.rows(), count, c);
    std::fill(part.begin(), part.end(), 0.0);
    part.back() = f.range_value_and_gradient(rows.begin, rows.end, w, std::span(part).first(part.size() - 1));
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += part[j];
  }
}

void objective::hessian_vector(std::span<const double>, std::span<double>) {
  throw config_error("the objective has no Hessian-vector products");
}
bool objective::hessian_diagonal(std::span<double>) { return false; }
bool objective::sampled_curvature_scale(std::span<double>, std::span<double>) { return false; }
bool objective::curvature_scale(std::span<double> sums, std::span<double> weights) {
  for (auto& w : weights) w += weight();
  return hessian_diagonal(sums);
}
void objective::hessian(std::span<double>) { throw config_error("the objective has no Hessian"); }
double objective::rows_value_and_gradient(std::span<const std::size_t>, std::span<const double>, std::span<double>) {
  throw config_error("the objective has no gradients of single rows");
}

namespace {
[[noreturn]] void no_chunks() { throw config_error("the objective cannot be computed in chunks of its rows"); }
}  // namespace

double objective::range_value_and_gradient(std::size_t, std::size_t, std::span<const double>, std::span<double>) {
  no_chunks();
}
std::vector<std::byte> objective::pack_rows(std::size_t, std::size_t) const { no_chunks(); }
std::shared_ptr<const void> objective::unpack_rows(std::span<const std::byte>) const { no_chunks(); }
double objective::packed_value_and_gradient(const void*, std::span<const double>, std::span<double>) { no_chunks(); }

problem::problem(objective& f, const settings& s, team& with)
    : f_(f), settings_(s), team_(with), size_(f.dimension()), shared_(f.shared()), sums_(size_ + 1) {
  const auto& p = s.penalty;
  const auto refuse = [&](const std::string& why) { throw config_error(std::string(name_of(s.how)) + ": " + why); };
  if (shared_ > size_)
    refuse("found " + std::to_string(shared_) + " shared coordinates, want at most " + std::to_string(size_));
  if (!(p.l1 >= 0) || !(p.l2 >= 0) || !std::isfinite(p.l1) || !std::isfinite(p.l2))
    refuse("the weights of the penalties are " + std::to_string(p.l1) + " and " + std::to_string(p.l2) +
           ", want finite numbers from 0");
  if (!p.combination.empty() && p.combination.size() != size_)
    refuse("the penalised combination has " + std::to_string(p.combination.size()) + " coordinates, want " +
           std::to_string(size_));
  if (p.l1 > 0 && s.how != method::gd && s.how != method::owlqn)
    refuse("cannot minimise a function with an l1 penalty; want owlqn or gd");
  if (s.how == method::newton && !f.has_hessian())
    refuse("the objective has no Hessian-vector products; want another method");
  if (!s.start.empty() && s.start.size() != size_)
    refuse("the start has " + std::to_string(s.start.size()) + " coordinates, want " + std::to_string(size_));
  if (!s.reference.empty() && s.reference.size() != size_)
    refuse("the reference has " + std::to_string(s.reference.size()) + " coordinates, want " + std::to_string(size_));
  if (s.max_steps < 1) refuse("max_steps is " + std::to_string(s.max_steps) + ", want 1 or more");
  if (s.memory < 1) refuse("memory is 0, want 1 or more");
  if (s.how == method::sgd && (!(s.rate > 0) || !(s.decay >= 0) || s.batch < 1))
    refuse("want a rate above 0, a decay of 0 or more, and a batch of 1 or more");
  if (s.work_stealing && s.chunks == 0) refuse("work_stealing needs chunks");
  if (s.chunks > 0) {
    if (s.how != method::gd && s.how != method::lbfgs && s.how != method::owlqn)
      refuse("does not compute in chunks of rows; want gd, lbfgs or owlqn");
    if (!f.has_chunks()) no_chunks();
  }
  if (!p.free.empty()) {
    free_.assign(size_, 0);
    for (const auto j : p.free) {
      if (j >= size_)
        refuse("coordinate " + std::to_string(j) + " is exempt from the penalty, but there are only " +
               std::to_string(size_));
      free_[j] = 1;
    }
  }
  double totals[4] = {f.weight(), static_cast<double>(f.rows()), f.prefers_dense_hessian() ? 0.0 : 1.0,
                      static_cast<double>(size_ - shared_)};
  team_.sum(totals);
  has_own_ = totals[3] > 0;
  if (shared_ == 0 && !has_own_) refuse("the objective has no coordinates");
  if (has_own_ && s.how != method::cg && s.how != method::lbfgs)
    refuse("cannot minimise a function with coordinates of single workers; want cg or lbfgs");
  if (has_own_ && (p.l2 > 0 || s.held_out.measure || s.wide || s.chunks > 0 || !s.reference.empty()))
    refuse(
        "penalties, held-out rows, a reference, wide and chunks cannot be combined with coordinates of single workers");
  if (!(totals[0] > 0) || !std::isfinite(totals[0]))
    refuse("the weights of all rows sum to " + std::to_string(totals[0]) + ", want a finite number above 0");
  if (s.how == method::sgd && totals[1] == 0) refuse("the objective has no gradients of single rows");
  scale_ = s.scale > 0 ? s.scale : 1 / totals[0];
  all_rows_ = totals[1];
  total_weight_ = totals[0];
  dense_ = size_ < s.dense_below && totals[2] == 0;
}

double problem::evaluate(std::span<const double> w, std::span<double> gradient) {
  ++evaluations;
  std::fill(sums_.begin(), sums_.end(), 0.0);
  if (settings_.chunks > 0) team_.sum_chunks(f_, settings_.chunks, w, sums_);
  else sums_.back() = f_.value_and_gradient(w, std::span(sums_).first(size_));
  // The value travels with the shared coordinates: in place of the first own one.
  std::swap(sums_[shared_], sums_.back());
  team_.sum(std::span(sums_).first(shared_ + 1));
  std::swap(sums_[shared_], sums_.back());
  for (std::size_t j = 0; j < size_; ++j) gradient[j] = scale_ * sums_[j];
  return scale_ * sums_.back() + add_l2(w, gradient);
}

void problem::dots(std::span<const vector_pair> of, std::span<double> out) {
  for (std::size_t i = 0; i < of.size(); ++i) {
    const auto& [a, b] = of[i];
    out[i] = optim::dot(a.subspan(shared_), b.subspan(shared_));
  }
  if (has_own_) team_.sum(out);
  for (std::size_t i = 0; i < of.size(); ++i) {
    const auto& [a, b] = of[i];
    out[i] += optim::dot(a.first(shared_), b.first(shared_));
  }
}

double problem::dot(std::span<const double> a, std::span<const double> b) {
  return dots(std::array{vector_pair{a, b}})[0];
}

void problem::revisit(std::span<const double> w) { (void)f_.value_and_gradient(w, std::span(sums_).first(size_)); }

double problem::add_l2(std::span<const double> w, std::span<double> gradient) const {
  const double l2 = settings_.penalty.l2;
  if (l2 == 0) return 0;
  // Free coordinates are left out: subtracted afterwards, they would cancel the digits of small ones.
  double square = 0;
  std::size_t begin = 0;
  const auto add_until = [&](std::size_t end) {
    add_scaled(2 * l2, w.subspan(begin, end - begin), gradient.subspan(begin, end - begin));
    square += optim::dot(w.subspan(begin, end - begin), w.subspan(begin, end - begin));
    begin = end;
  };
  for (const auto j : settings_.penalty.free) {
    add_until(j);
    ++begin;
  }
  add_until(w.size());
  if (const auto& a = settings_.penalty.combination; !a.empty()) {
    const double sum = optim::dot(a, w);
    add_scaled(2 * l2 * sum, a, gradient);
    square += sum * sum;
  }
  return l2 * square;
}

double problem::l1_part(std::span<const double> w) const {
  if (!has_l1()) return 0;
  double sum = 0;
  for (std::size_t j = 0; j < size_; ++j) sum += is_free(j) ? 0 : std::abs(w[j]);
  return settings_.penalty.l1 * sum;
}

void problem::pseudo_gradient(std::span<const double> w, std::span<const double> gradient,
                              std::span<double> out) const {
  for (std::size_t j = 0; j < size_; ++j) {
    const double l1 = l1_of(j);
    const double g = gradient[j];
    if (w[j] > 0) out[j] = g + l1;
    else if (w[j] < 0) out[j] = g - l1;
    else if (g + l1 < 0) out[j] = g + l1;
    else if (g - l1 > 0) out[j] = g - l1;
    else out[j] = std::isnan(g) ? g : 0;
  }
}

void problem::hessian_vector(std::span<const double> v, std::span<double> out) {
  ++products;
  std::fill(out.begin(), out.end(), 0.0);
  f_.hessian_vector(v, out);
  team_.sum(out);
  const double l2 = settings_.penalty.l2;
  for (std::size_t j = 0; j < size_; ++j) out[j] = scale_ * out[j] + (is_free(j) ? 0 : 2 * l2 * v[j]);
  if (const auto& a = settings_.penalty.combination; !a.empty()) add_scaled(2 * l2 * optim::dot(a, v), a, out);
}

void problem::add_penalty_diagonal(std::span<double> out) const {
  const double l2 = settings_.penalty.l2;
  const auto& a = settings_.penalty.combination;
  for (std::size_t j = 0; j < size_; ++j) out[j] += (is_free(j) ? 0 : 2 * l2) + (a.empty() ? 0 : 2 * l2 * a[j] * a[j]);
}

std::vector<double> problem::inverse_curvatures(std::span<const double> w) {
  if (has_own_) return {};
  if (settings_.chunks > 0) revisit(w);
  std::vector<double> sums(2 * size_);
  const auto weights = std::span(sums).subspan(size_);
  const auto own = std::span(sums).first(size_);
  bool known = f_.sampled_curvature_scale(own, weights);
  if (known) {
    team_.sum(sums);
    known = std::ranges::none_of(weights, [](double weight) { return weight == 0; });
    if (!known) std::ranges::fill(sums, 0.0);
  }
  if (!known) {
    if (!f_.curvature_scale(own, weights)) return {};
    team_.sum(sums);
  }
  // As large as if all rows depended on it.
  for (std::size_t j = 0; j < size_; ++j) sums[j] = weights[j] > 0 ? scale_ * sums[j] / weights[j] * total_weight_ : 0;
  sums.resize(size_);
  add_penalty_diagonal(sums);
  for (std::size_t j = 0; j < size_; ++j) {
    if (!std::isfinite(sums[j]))
      throw error(std::string(name_of(settings_.how)) + ": the second derivative by coordinate " + std::to_string(j) +
                  " is " + std::to_string(sums[j]) + ", want a finite number: smaller numbers in the rows");
    // Without curvature F does not depend on the coordinate.
    sums[j] = sums[j] > 0 ? 1 / sums[j] : 1;
  }
  return sums;
}

bool problem::hessian_diagonal(std::span<double> out) {
  std::fill(out.begin(), out.end(), 0.0);
  if (!f_.hessian_diagonal(out)) return false;
  team_.sum(out);
  for (auto& h : out) h *= scale_;
  add_penalty_diagonal(out);
  return true;
}

void problem::hessian(std::vector<double>& packed) {
  packed.assign(size_ * (size_ + 1) / 2, 0.0);
  f_.hessian(packed);
  team_.sum(packed);
  for (auto& h : packed) h *= scale_;
  const double l2 = settings_.penalty.l2;
  for (std::size_t j = 0; j < size_; ++j) packed[packed_row(size_, j) + j] += is_free(j) ? 0 : 2 * l2;
  const auto& a = settings_.penalty.combination;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = i; j < size_; ++j) packed[packed_row(size_, i) + j] += 2 * l2 * a[i] * a[j];
  }
}

}  // namespace paracel::optim
