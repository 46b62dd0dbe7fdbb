// SPDX-License-Identifier: BSD-3-Clause
#include "fm_als.hpp"

#include <algorithm>
#include <cmath>

#include "alg/common/solvers/class_base.hpp"
#include "alg/common/solvers/factor_kernels.hpp"
#include "feature_colours.hpp"

namespace paracel::alg {

namespace {

constexpr std::size_t tile_rows = 128;
// Numbers of the equations that are summed at once: 16 MB.
constexpr std::size_t block_numbers = std::size_t{1} << 21U;
// A pivot below this fraction of its diagonal element is rounding error: the coordinate depends on those before it.
constexpr double least_pivot = 1e-12;
// Below this, tanh(m / 2) / (2 m) is 1/4 to within rounding error.
constexpr double small_margin = 1e-4;

constexpr std::size_t triangle_size(std::size_t d) { return d * (d + 1) / 2; }

}  // namespace

fm_als::fm_als(collectives& all, const sample_rows& rows, std::span<const double> weights, fm_loss loss, std::size_t k,
               fm_penalty penalty, bool bias)
    : weights_(weights),
      loss_(loss),
      k_(k),
      penalty_(penalty),
      bias_(bias),
      columns_(rows.columns),
      label_(rows.label),
      margin_(rows.rows()),
      q_(rows.rows() * k) {
  if (loss_ == fm_loss::log) {
    for (auto& y : label_) y = 2 * y - 1;
  }
  const auto colour = colour_features(all, rows);
  std::vector<std::size_t> members;  // of each colour
  for (const auto c : colour) {
    if (c == no_colour) continue;
    if (c >= members.size()) members.resize(c + 1);
    ++members[c];
  }
  colours_ = members.size();
  const std::size_t d = k_ + 1;
  const std::size_t most = std::max<std::size_t>(1, block_numbers / (triangle_size(d) + d));
  std::vector<std::size_t> next(colours_);
  std::size_t features = 0;
  for (std::size_t c = 0; c < colours_; ++c) {
    next[c] = features;
    features += members[c];
    for (auto b = next[c]; b < features; b += most) blocks_.push_back({b, std::min(b + most, features)});
  }
  order_.resize(features);
  std::vector<std::uint32_t> place(columns_);
  for (std::uint32_t j = 0; j < columns_; ++j) {
    if (colour[j] == no_colour) continue;
    place[j] = static_cast<std::uint32_t>(next[colour[j]]++);
    order_[place[j]] = j;
  }

  begin_.resize(features + 1);
  weight_of_.resize(features);
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    visit_entries(rows, i, [&](std::size_t j, double) {
      ++begin_[place[j] + 1];
      weight_of_[place[j]] += weight(i);
    });
  }
  for (std::size_t f = 0; f < features; ++f) begin_[f + 1] += begin_[f];
  sample_.resize(begin_.back());
  value_.resize(begin_.back());
  auto to = begin_;
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    visit_entries(rows, i, [&](std::size_t j, double x) {
      const auto e = to[place[j]]++;
      sample_[e] = static_cast<std::uint32_t>(i);
      value_[e] = x;
    });
  }
  all.all_reduce(std::span(weight_of_), reduce_op::sum, "weights of features");

  const std::size_t stride = (d + 1 + 3) / 4 * 4;
  tile_.resize(tile_rows * stride);
  scaled_.resize(tile_rows * stride);
  triangle_.resize(stride * stride);
}

std::vector<double> fm_als::start(double bias, std::uint64_t seed, double sd) const {
  const std::size_t d = k_ + 1;
  std::vector<double> model((columns_ + std::size_t{1}) * d);
  fm_start_row(std::span(model).first(d), seed, 0, sd);
  model[0] = bias;
  for (const auto j : order_)
    fm_start_row(std::span(model).subspan((j + std::size_t{1}) * d, d), seed, j + std::uint64_t{1}, sd);
  return model;
}

/// The derivative of the loss by the margin.
double fm_als::slope(std::size_t i) const {
  if (loss_ == fm_loss::squared) return margin_[i] - label_[i];
  return -label_[i] / (1 + std::exp(label_[i] * margin_[i]));
}

/// The curvature of the parabola that bounds the loss from above.
double fm_als::curvature(std::size_t i) const {
  if (loss_ == fm_loss::squared) return 1;
  const double m = std::abs(margin_[i]);
  return m < small_margin ? 0.25 : std::tanh(m / 2) / (2 * m);
}

void fm_als::set_margins(std::span<const double> model) {
  const std::size_t d = k_ + 1;
  std::fill(margin_.begin(), margin_.end(), bias_ ? model[0] : 0.0);
  std::fill(q_.begin(), q_.end(), 0.0);
  // A pair of features is counted when its second one is added.
  for (std::size_t f = 0; f < order_.size(); ++f) {
    const double* row = model.data() + (order_[f] + std::size_t{1}) * d;
    for (std::size_t e = begin_[f]; e < begin_[f + 1]; ++e) {
      double* q = q_.data() + sample_[e] * k_;
      const double x = value_[e];
      double product = row[0];
      for (std::size_t l = 0; l < k_; ++l) {
        product += q[l] * row[l + 1];
        q[l] += x * row[l + 1];
      }
      margin_[sample_[e]] += x * product;
    }
  }
}

void fm_als::move_bias(collectives& all, std::span<double> model) {
  double sums[2] = {0, 0};
  for (std::size_t i = 0; i < margin_.size(); ++i) {
    sums[0] += weight(i) * slope(i);
    sums[1] += weight(i) * curvature(i);
  }
  all.all_reduce(std::span<double>(sums), reduce_op::sum, "bias");
  const double step = -sums[0] / sums[1];
  if (!std::isfinite(step)) return;
  model[0] += step;
  for (auto& m : margin_) m += step;
}

void fm_als::add_equations(std::size_t at, std::span<const double> row, std::span<double> to) {
  const std::size_t d = k_ + 1;
  const std::size_t stride = (d + 1 + 3) / 4 * 4;
  std::fill(triangle_.begin(), triangle_.end(), 0.0);
  for (std::size_t first = begin_[at]; first < begin_[at + 1]; first += tile_rows) {
    const auto count = std::min(tile_rows, begin_[at + 1] - first);
    for (std::size_t r = 0; r < count; ++r) {
      const auto i = sample_[first + r];
      const double x = value_[first + r];
      const double c = weight(i) * curvature(i);
      const double* q = q_.data() + i * k_;
      double* h = tile_.data() + r * stride;
      double* s = scaled_.data() + r * stride;
      h[0] = x;
      for (std::size_t l = 0; l < k_; ++l) h[l + 1] = x * (q[l] - x * row[l + 1]);
      for (std::size_t l = 0; l < d; ++l) s[l] = c * h[l];
      s[d] = weight(i) * slope(i);
    }
    add_gram(count, d + 1, stride, scaled_.data(), tile_.data(), triangle_.data());
  }
  double* out = to.data();
  for (std::size_t r = 0; r < d; ++r) out = std::copy_n(triangle_.data() + r * stride, r + 1, out);
  std::copy_n(triangle_.data() + d * stride, d, out);
}

void fm_als::solve(std::span<double> equations, double samples, std::span<const double> row,
                   std::span<double> step) const {
  const std::size_t d = row.size();
  double* const a = equations.data();
  const auto row_of = [&](std::size_t i) { return a + triangle_size(i); };
  double* const g = row_of(d);
  // Cholesky in place: L L' step = -g. A coordinate without a pivot has no row in L, and its step is 0.
  for (std::size_t i = 0; i < d; ++i) {
    double* const r = row_of(i);
    const double penalty = samples * (i == 0 ? penalty_.w : penalty_.v);
    double right = -(g[i] + penalty * row[i]);
    double pivot = r[i] + penalty;
    const double least = least_pivot * pivot;
    for (std::size_t j = 0; j < i; ++j) {
      const double* const other = row_of(j);
      if (other[j] == 0) {
        r[j] = 0;
        continue;
      }
      double sum = r[j];
      for (std::size_t l = 0; l < j; ++l) sum -= r[l] * other[l];
      r[j] = sum / other[j];
      pivot -= r[j] * r[j];
      right -= r[j] * step[j];
    }
    const bool moves = pivot > least && pivot > 0;
    r[i] = moves ? std::sqrt(pivot) : 0;
    step[i] = moves ? right / r[i] : 0;
  }
  for (std::size_t i = d; i-- > 0;) {
    const double* const r = row_of(i);
    if (r[i] == 0) {
      step[i] = 0;
      continue;
    }
    step[i] /= r[i];
    for (std::size_t j = 0; j < i; ++j) step[j] -= r[j] * step[i];
  }
}

void fm_als::move_block(collectives& all, const block& features, std::span<double> model) {
  const std::size_t d = k_ + 1;
  const std::size_t size = triangle_size(d) + d;
  const auto count = features.end - features.begin;
  const auto row_of = [&](std::size_t f) { return model.subspan((order_[f] + std::size_t{1}) * d, d); };
  // The same number for each worker, so that no feature is split between workers.
  const auto each = (count + all.size() - 1) / all.size();
  equations_.assign(each * all.size() * size, 0.0);
  for (std::size_t f = features.begin; f < features.end; ++f)
    add_equations(f, row_of(f), std::span(equations_).subspan((f - features.begin) * size, size));
  const auto mine = all.reduce_scatter(std::span(equations_), reduce_op::sum, "equations");
  const auto first = std::min(count, each * all.rank());
  const auto last = std::min(count, first + each);
  steps_.resize((last - first) * d);
  for (auto f = first; f < last; ++f) {
    const auto at = features.begin + f;
    solve(mine.subspan((f - first) * size, size), weight_of_[at], row_of(at),
          std::span(steps_).subspan((f - first) * d, d));
  }
  const auto steps = all.all_gather(std::span<const double>(steps_), "steps");
  for (std::size_t f = features.begin; f < features.end; ++f) {
    const double* step = steps.data() + (f - features.begin) * d;
    const auto row = row_of(f);
    for (std::size_t e = begin_[f]; e < begin_[f + 1]; ++e) {
      double* q = q_.data() + sample_[e] * k_;
      const double x = value_[e];
      double change = step[0];
      for (std::size_t l = 0; l < k_; ++l) {
        change += step[l + 1] * (q[l] - x * row[l + 1]);
        q[l] += x * step[l + 1];
      }
      margin_[sample_[e]] += x * change;
    }
    for (std::size_t l = 0; l < d; ++l) row[l] += step[l];
  }
}

double fm_als::round(collectives& all, std::span<double> model) {
  set_margins(model);
  if (bias_) move_bias(all, model);
  for (const auto& b : blocks_) move_block(all, b, model);
  double sum = 0;
  const fm_kernel kernel(loss_, k_, penalty_);
  for (std::size_t i = 0; i < margin_.size(); ++i) sum += weight(i) * kernel.loss(margin_[i], label_[i]);
  all.all_reduce(std::span<double>(&sum, 1), reduce_op::sum, "loss");
  for (std::size_t f = 0; f < order_.size(); ++f) {
    const auto row = model.subspan((order_[f] + std::size_t{1}) * (k_ + 1), k_ + 1);
    double squares = 0;
    for (const double v : row.subspan(1)) squares += v * v;
    sum += weight_of_[f] / 2 * (penalty_.w * row[0] * row[0] + penalty_.v * squares);
  }
  return sum;
}

}  // namespace paracel::alg
