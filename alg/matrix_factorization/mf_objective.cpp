// SPDX-License-Identifier: BSD-3-Clause
#include "mf_objective.hpp"

#include <algorithm>
#include <cmath>

#include "alg/common/solvers/cpu_dispatch.hpp"
#include "alg/common/solvers/factor_kernels.hpp"

namespace paracel::alg {

namespace {

/// The ratings of one user.
struct user_ratings {
  std::span<const std::uint32_t> column;
  std::span<const double> value;
};

// Rows of | bias | factors |. Adds to the slopes -2 e times the other side's row; returns the sum of e^2.
PARACEL_INLINE double user_pass(std::size_t k, double mean, const user_ratings& ratings, const double* __restrict user,
                                double* __restrict user_slope, const double* __restrict rows,
                                double* __restrict slopes) {
  double sum = 0;
  for (std::size_t t = 0; t < ratings.column.size(); ++t) {
    const std::size_t at = ratings.column[t] * (k + 1);
    const double* __restrict row = rows + at;
    double* __restrict slope = slopes + at;
    // Eight partial sums, so that the compiler can vectorise without reordering additions.
    double lane[8] = {};
    std::size_t j = 1;
    for (; j + 8 <= k + 1; j += 8) {
      for (std::size_t l = 0; l < 8; ++l) lane[l] += user[j + l] * row[j + l];
    }
    double product = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
    for (; j <= k; ++j) product += user[j] * row[j];
    const double e = ratings.value[t] - mean - user[0] - row[0] - product;
    sum += e * e;
    const double times = -2 * e;
    user_slope[0] += times;
    slope[0] += times;
    for (j = 1; j <= k; ++j) {
      user_slope[j] += times * row[j];
      slope[j] += times * user[j];
    }
  }
  return sum;
}

}  // namespace

mf_objective::mf_objective(const sparse_rows& ratings, std::size_t k, double mean, double deviation,
                           const mf_penalties& penalties, std::span<const double> item_ratings)
    : ratings_(ratings), k_(k), mean_(mean), penalties_(penalties) {
  for (std::size_t u = 0; u < ratings.rows(); ++u)
    user_scale_.push_back(scale_of_row(static_cast<double>(ratings.columns_of(u).size()), deviation));
  for (const double n : item_ratings) item_scale_.push_back(scale_of_row(n, deviation));
  // Each worker adds the share of an item's penalty that its own ratings of it make up.
  column_weight_.assign(ratings.column_ids.size(), 0.0);
  for (const auto c : ratings.column) column_weight_[c] += 1;
  if (!penalties.weighted) {
    for (std::size_t c = 0; c < column_weight_.size(); ++c) column_weight_[c] /= item_ratings[ratings.column_number[c]];
  }
  rows_.resize(column_weight_.size() * (k + 1));
  slopes_.resize(rows_.size());
}

// The squared factor of the other side is estimated as the value at which k products have the ratings' deviation.
mf_objective::row_scale mf_objective::scale_of_row(double ratings, double deviation) const {
  const double weight = penalties_.weighted ? ratings : 1.0;
  const double square = k_ == 0 || deviation == 0 ? 1 : deviation / std::sqrt(static_cast<double>(k_));
  return {1 / std::sqrt(ratings + weight * penalties_.lambda_bias),
          1 / std::sqrt(ratings * square + weight * penalties_.lambda)};
}

void mf_objective::unscale(const row_scale& by, const double* from, double* to) const {
  to[0] = by.bias * from[0];
  for (std::size_t j = 1; j <= k_; ++j) to[j] = by.factor * from[j];
}

double mf_objective::add_gradient(const row_scale& by, double weight, const double* row, const double* slope,
                                  double* to) const {
  const double bias = weight * penalties_.lambda_bias;
  const double factor = weight * penalties_.lambda;
  to[0] += by.bias * (slope[0] + 2 * bias * row[0]);
  for (std::size_t j = 1; j <= k_; ++j) to[j] += by.factor * (slope[j] + 2 * factor * row[j]);
  return bias * row[0] * row[0] + factor * dot(row + 1, row + 1, k_);
}

double mf_objective::value_and_gradient(std::span<const double> w, std::span<double> gradient) {
  static auto* const pass = compiled_for<user_pass>::this_cpu();
  const std::size_t width = k_ + 1;
  for (std::size_t c = 0; c < column_weight_.size(); ++c) {
    const auto item = ratings_.column_number[c];
    unscale(item_scale_[item], w.data() + item * width, rows_.data() + c * width);
  }
  std::fill(slopes_.begin(), slopes_.end(), 0.0);
  std::vector<double> user(width);
  std::vector<double> slope(width);
  double value = 0;
  for (std::size_t u = 0; u < ratings_.rows(); ++u) {
    unscale(user_scale_[u], w.data() + user_at(u), user.data());
    std::fill(slope.begin(), slope.end(), 0.0);
    const user_ratings own{ratings_.columns_of(u), ratings_.values_of(u)};
    value += pass(k_, mean_, own, user.data(), slope.data(), rows_.data(), slopes_.data());
    const double weight = penalties_.weighted ? static_cast<double>(own.column.size()) : 1.0;
    value += add_gradient(user_scale_[u], weight, user.data(), slope.data(), gradient.data() + user_at(u));
  }
  for (std::size_t c = 0; c < column_weight_.size(); ++c) {
    const auto item = ratings_.column_number[c];
    value += add_gradient(item_scale_[item], column_weight_[c], rows_.data() + c * width, slopes_.data() + c * width,
                          gradient.data() + item * width);
  }
  return value;
}

namespace {

void put_row(std::size_t k, double bias_scale, double factor_scale, std::span<const double> row, double* to) {
  to[0] = row[bias_at] / bias_scale;
  for (std::size_t j = 0; j < k; ++j) to[1 + j] = row[factors_at + j] / factor_scale;
}

void get_row(std::size_t k, double bias_scale, double factor_scale, const double* from, std::span<double> row) {
  row[bias_at] = bias_scale * from[0];
  row[known_at] = 1;
  for (std::size_t j = 0; j < k; ++j) row[factors_at + j] = factor_scale * from[1 + j];
}

}  // namespace

void mf_objective::put_item(std::size_t item, std::span<const double> row, std::span<double> w) const {
  put_row(k_, item_scale_[item].bias, item_scale_[item].factor, row, w.data() + item * (k_ + 1));
}
void mf_objective::put_user(std::size_t user, std::span<const double> row, std::span<double> w) const {
  put_row(k_, user_scale_[user].bias, user_scale_[user].factor, row, w.data() + user_at(user));
}
void mf_objective::get_item(std::size_t item, std::span<const double> w, std::span<double> row) const {
  get_row(k_, item_scale_[item].bias, item_scale_[item].factor, w.data() + item * (k_ + 1), row);
}
void mf_objective::get_user(std::size_t user, std::span<const double> w, std::span<double> row) const {
  get_row(k_, user_scale_[user].bias, user_scale_[user].factor, w.data() + user_at(user), row);
}

}  // namespace paracel::alg
