// SPDX-License-Identifier: BSD-3-Clause
#include "fm_kernel.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <paracel/random.hpp>

namespace paracel::alg {

namespace {

constexpr std::uint32_t not_in_batch = 0xffffffffU;
constexpr std::uint64_t factor_stream = 1;

}  // namespace

fm_batcher::fm_batcher(const sample_rows& samples, std::span<const double> weights, bool bias, bool classes)
    : samples_(samples), weights_(weights), bias_(bias), classes_(classes), slot_of_(samples.columns, not_in_batch) {}

void fm_batcher::begin(fm_batch& into) const {
  into.bias = bias_;
  into.ids.clear();
  if (bias_) into.ids.push_back(0);
  into.begin.assign(1, 0);
  into.slot.clear();
  into.value.clear();
  into.label.clear();
  into.weight.clear();
}

void fm_batcher::end(const fm_batch& into) {
  for (std::size_t s = into.bias ? 1 : 0; s < into.ids.size(); ++s) slot_of_[into.ids[s] - 1] = not_in_batch;
}

void fm_batcher::add(std::size_t row, fm_batch& into) {
  const auto entry = [&](std::size_t j, double x) {
    if (x == 0) return;
    auto& slot = slot_of_[j];
    if (slot == not_in_batch) {
      slot = static_cast<std::uint32_t>(into.ids.size());
      into.ids.push_back(j + 1);
    }
    into.slot.push_back(slot);
    into.value.push_back(x);
  };
  if (samples_.dense) {
    const auto x = samples_.dense_row(row);
    for (std::size_t j = 0; j < x.size(); ++j) entry(j, x[j]);
  } else {
    for (std::size_t e = samples_.row_begin[row]; e < samples_.row_begin[row + 1]; ++e)
      entry(samples_.column[e], samples_.value[e]);
  }
  into.begin.push_back(into.slot.size());
  if (!samples_.label.empty()) into.label.push_back(classes_ ? 2 * samples_.label[row] - 1 : samples_.label[row]);
  into.weight.push_back(weights_.empty() ? 1 : weights_[row]);
}

void fm_batcher::cut(std::span<const std::uint32_t> rows, fm_batch& into) {
  begin(into);
  for (const auto row : rows) add(row, into);
  end(into);
}

void fm_batcher::cut(std::size_t first, std::size_t last, fm_batch& into) {
  begin(into);
  for (std::size_t row = first; row < last; ++row) add(row, into);
  end(into);
}

double fm_kernel::margin(const fm_batch& batch, std::size_t i, std::span<const double> model) {
  const std::size_t k = k_;
  double* __restrict sum = sum_.data();
  double* __restrict squares = squares_.data();
  std::fill(sum_.begin(), sum_.end(), 0.0);
  std::fill(squares_.begin(), squares_.end(), 0.0);
  double m = batch.bias ? model[0] : 0;
  for (std::size_t e = batch.begin[i]; e < batch.begin[i + 1]; ++e) {
    const double x = batch.value[e];
    const double* __restrict row = model.data() + batch.slot[e] * (k + 1);
    m += x * row[0];
    for (std::size_t f = 0; f < k; ++f) {
      const double t = x * row[f + 1];
      sum[f] += t;
      squares[f] += t * t;
    }
  }
  double pairs = 0;
  for (std::size_t f = 0; f < k; ++f) pairs += sum[f] * sum[f] - squares[f];
  return m + pairs / 2;
}

double fm_kernel::loss(double margin, double label) const noexcept {
  if (loss_ == fm_loss::squared) return (margin - label) * (margin - label) / 2;
  const double z = label * margin;
  return std::log1p(std::exp(-std::abs(z))) + std::max(-z, 0.0);
}

double fm_kernel::slope(double margin, double label) const noexcept {
  if (loss_ == fm_loss::squared) return margin - label;
  return -label / (1 + std::exp(label * margin));
}

double fm_kernel::gradient(const fm_batch& batch, std::span<const double> model, std::span<double> gradient,
                           std::span<double> curvature) {
  const std::size_t k = k_;
  const double most = loss_ == fm_loss::squared ? 1 : 0.25;  // of the second derivative by the margin
  std::fill(gradient.begin(), gradient.end(), 0.0);
  std::fill(curvature.begin(), curvature.end(), 0.0);
  double total = 0;
  for (std::size_t i = 0; i < batch.rows(); ++i) {
    const double m = margin(batch, i, model);
    const double weight = batch.weight[i];
    total += weight * loss(m, batch.label[i]);
    const double d = weight * slope(m, batch.label[i]);
    const double penalty_w = weight * penalty_.w;
    const double penalty_v = weight * penalty_.v;
    const double* __restrict sum = sum_.data();
    if (batch.bias) {
      gradient[0] += d;
      if (!curvature.empty()) curvature[0] += weight * most;
    }
    for (std::size_t e = batch.begin[i]; e < batch.begin[i + 1]; ++e) {
      const double x = batch.value[e];
      const double* __restrict row = model.data() + batch.slot[e] * (k + 1);
      double* __restrict to = gradient.data() + batch.slot[e] * (k + 1);
      to[0] += d * x + penalty_w * row[0];
      const double a = d * x;
      const double b = penalty_v - d * x * x;
      for (std::size_t f = 0; f < k; ++f) to[f + 1] += a * sum[f] + b * row[f + 1];
      if (curvature.empty()) continue;
      double square = 1;
      for (std::size_t f = 0; f < k; ++f) square += (sum[f] - x * row[f + 1]) * (sum[f] - x * row[f + 1]);
      curvature[batch.slot[e]] += weight * most * x * x * square;
    }
  }
  return total;
}

double fm_kernel::penalties(const fm_batch& batch, std::span<const double> model) const noexcept {
  double total = 0;
  for (std::size_t i = 0; i < batch.rows(); ++i) {
    for (std::size_t e = batch.begin[i]; e < batch.begin[i + 1]; ++e) {
      const double* row = model.data() + batch.slot[e] * width();
      const double squares = std::inner_product(row + 1, row + width(), row + 1, 0.0);
      total += batch.weight[i] / 2 * (penalty_.w * row[0] * row[0] + penalty_.v * squares);
    }
  }
  return total;
}

double fm_share(double alpha, double curvature, std::size_t workers) {
  const double way = alpha * curvature * static_cast<double>(workers);
  return way > 0 ? -std::expm1(-way) / way : 1;
}

void fm_start_row(std::span<double> row, std::uint64_t seed, std::uint64_t id, double sd) {
  counter_random random(seed, factor_stream, id);
  row[0] = 0;
  for (auto& v : row.subspan(1)) v = sd * random.normal();
}

}  // namespace paracel::alg
