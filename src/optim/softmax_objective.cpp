// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <paracel/error.hpp>
#include <paracel/optim_losses.hpp>

#include "optim/linear_rows.hpp"
#include "optim/vectors.hpp"

namespace paracel::optim {

softmax_objective::softmax_objective(const sample_rows& rows, std::size_t classes, linear_options options)
    : rows_(rows),
      classes_(classes),
      options_(std::move(options)),
      columns_(options_.columns != 0 ? options_.columns : rows.columns) {
  check_rows(rows_, columns_, options_);
  if (classes_ < 2) throw error("softmax: " + std::to_string(classes_) + " classes, want 2 or more");
  for (std::size_t i = 0; i < rows_.rows(); ++i) {
    const double y = rows_.label[i];
    if (!(y >= 0) || y >= static_cast<double>(classes_) || y != std::floor(y))
      throw error("softmax: the label of row " + std::to_string(rows_.first_row + i) + " is " + std::to_string(y) +
                  ", want an integer from 0, below " + std::to_string(classes_));
  }
  probability_.resize(rows_.rows() * classes_);
  if (options_.standardize.is_identity()) return;
  raw_.resize(dimension());
  raw_gradient_.resize(dimension());
}

double softmax_objective::weight() const {
  if (options_.row_weights.empty()) return static_cast<double>(rows_.rows());
  double sum = 0;
  for (const auto x : options_.row_weights) sum += x;
  return sum;
}

std::span<const double> softmax_objective::raw_of(std::span<const double> w) {
  if (options_.standardize.is_identity()) return w;
  options_.standardize.to_raw(w, raw_, classes_);
  return raw_;
}

/// `pass(raw)` adds derivatives with respect to the raw weights.
template <class Pass>
void softmax_objective::with_raw_gradient(std::span<double> gradient, Pass&& pass) {
  if (options_.standardize.is_identity()) return pass(gradient.data());
  std::fill(raw_gradient_.begin(), raw_gradient_.end(), 0.0);
  pass(raw_gradient_.data());
  options_.standardize.add_from_raw(raw_gradient_, gradient, classes_);
}

void softmax_objective::margins_of(std::size_t i, const double* raw, std::span<double> out) const {
  if (options_.intercept) std::copy_n(raw, classes_, out.begin());
  else std::fill(out.begin(), out.end(), 0.0);
  const double* features = raw + first() * classes_;
  visit_row(rows_, i, [&](std::size_t j, double x) {
    if (x != 0) add_scaled(x, {features + j * classes_, classes_}, out);
  });
}

void softmax_objective::add_row(std::size_t i, std::span<const double> times, double* raw) const {
  if (options_.intercept) add_scaled(1, times, {raw, classes_});
  double* features = raw + first() * classes_;
  visit_row(rows_, i, [&](std::size_t j, double x) {
    if (x != 0) add_scaled(x, times, {features + j * classes_, classes_});
  });
}

/// Returns the loss of a row, without its weight.
double softmax_objective::row_loss(std::size_t i, const double* raw, std::span<double> probability) const {
  margins_of(i, raw, probability);
  const double own = probability[static_cast<std::size_t>(rows_.label[i])];
  const double most = *std::max_element(probability.begin(), probability.end());
  double sum = 0;
  for (auto& m : probability) sum += m = std::exp(m - most);
  for (auto& m : probability) m /= sum;
  return std::log(sum) + most - own;
}

double softmax_objective::value_and_gradient(std::span<const double> w, std::span<double> gradient) {
  const auto raw = raw_of(w);
  double sum = 0;
  std::vector<double> slope(classes_);
  with_raw_gradient(gradient, [&](double* to) {
    for (std::size_t i = 0; i < rows_.rows(); ++i) {
      const auto p = std::span(probability_).subspan(i * classes_, classes_);
      sum += weight_of(i) * row_loss(i, raw.data(), p);
      for (std::size_t c = 0; c < classes_; ++c) slope[c] = weight_of(i) * p[c];
      slope[static_cast<std::size_t>(rows_.label[i])] -= weight_of(i);
      add_row(i, slope, to);
    }
  });
  return sum;
}

double softmax_objective::rows_value_and_gradient(std::span<const std::size_t> rows, std::span<const double> w,
                                                  std::span<double> gradient) {
  const auto raw = raw_of(w);
  double sum = 0;
  std::vector<double> slope(classes_);
  with_raw_gradient(gradient, [&](double* to) {
    for (const auto i : rows) {
      sum += weight_of(i) * row_loss(i, raw.data(), slope);
      slope[static_cast<std::size_t>(rows_.label[i])] -= 1;
      for (auto& x : slope) x *= weight_of(i);
      add_row(i, slope, to);
    }
  });
  return sum;
}

void softmax_objective::hessian_vector(std::span<const double> v, std::span<double> out) {
  const auto raw = raw_of(v);
  std::vector<double> u(classes_);
  with_raw_gradient(out, [&](double* to) {
    for (std::size_t i = 0; i < rows_.rows(); ++i) {
      margins_of(i, raw.data(), u);
      const auto p = std::span<const double>(probability_).subspan(i * classes_, classes_);
      const double mean = dot(p, u);
      for (std::size_t c = 0; c < classes_; ++c) u[c] = weight_of(i) * p[c] * (u[c] - mean);
      add_row(i, u, to);
    }
  });
}

bool softmax_objective::curvature_scale(std::span<double> sums, std::span<double> weights) {
  // p (1 - p) where all classes are equally probable.
  const double share = 1 / static_cast<double>(classes_);
  add_squares(rows_, options_, share * (1 - share), classes_, sums, weights);
  return true;
}

bool softmax_objective::sampled_curvature_scale(std::span<double> sums, std::span<double> weights) {
  const auto stride = sample_stride(rows_);
  const double share = 1 / static_cast<double>(classes_);
  if (stride > 1) add_squares(rows_, options_, share * (1 - share), classes_, sums, weights, stride);
  return stride > 1;
}

bool softmax_objective::hessian_diagonal(std::span<double> out) {
  if (!options_.standardize.shift().empty()) return false;  // standardised features need none
  const auto& inverse = options_.standardize.inverse();
  std::vector<double> own(classes_);
  for (std::size_t i = 0; i < rows_.rows(); ++i) {
    const auto p = std::span<const double>(probability_).subspan(i * classes_, classes_);
    for (std::size_t c = 0; c < classes_; ++c) own[c] = weight_of(i) * p[c] * (1 - p[c]);
    if (options_.intercept) add_scaled(1, own, out.first(classes_));
    visit_row(rows_, i, [&](std::size_t j, double x) {
      const double scaled = inverse.empty() ? x : x * inverse[j];
      if (x != 0) add_scaled(scaled * scaled, own, out.subspan((first() + j) * classes_, classes_));
    });
  }
  return true;
}

std::vector<double> softmax_objective::raw_weights(std::span<const double> w) const {
  std::vector<double> raw(w.begin(), w.end());
  if (!options_.standardize.is_identity()) options_.standardize.to_raw(w, raw, classes_);
  return raw;
}

std::vector<std::size_t> softmax_objective::intercepts() const {
  std::vector<std::size_t> all(first() * classes_);
  for (std::size_t c = 0; c < all.size(); ++c) all[c] = c;
  return all;
}

}  // namespace paracel::optim
