// SPDX-License-Identifier: BSD-3-Clause
#include "design_matrix.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "dense_product.hpp"
#include "sum_over_workers.hpp"

namespace paracel::alg {

namespace {

// Rows that are copied together before a dense product: 256 rows of 64 features are 128 kB, half of a level 2 cache.
constexpr std::size_t block_rows = 256;

double dense_dot(const double* x, const double* w, std::size_t n) {
  // Eight partial sums, so that the compiler can vectorise without reordering additions.
  double lane[8] = {};
  std::size_t j = 0;
  for (; j + 8 <= n; j += 8) {
    for (std::size_t l = 0; l < 8; ++l) lane[l] += x[j + l] * w[j + l];
  }
  double sum = 0;
  for (; j < n; ++j) sum += x[j] * w[j];
  return sum + (((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7])));
}

}  // namespace

double row_product(const sample_rows& rows, std::size_t i, std::span<const double> w) {
  if (rows.dense) return dense_dot(rows.value.data() + i * rows.columns, w.data(), rows.columns);
  double sum = 0;
  const std::size_t end = rows.row_begin[i + 1];
  for (std::size_t k = rows.row_begin[i]; k < end; ++k) sum += rows.value[k] * w[rows.column[k]];
  return sum;
}

void add_row(const sample_rows& rows, std::size_t i, double times, std::span<double> to) {
  if (rows.dense) {
    const double* x = rows.value.data() + i * rows.columns;
    for (std::size_t j = 0; j < rows.columns; ++j) to[j] += times * x[j];
    return;
  }
  const std::size_t end = rows.row_begin[i + 1];
  for (std::size_t k = rows.row_begin[i]; k < end; ++k) to[rows.column[k]] += times * rows.value[k];
}

void multiply(const sample_rows& rows, std::span<const double> w, std::span<double> out) {
  for (std::size_t i = 0; i < rows.rows(); ++i) out[i] = row_product(rows, i, w);
}

void add_transposed(const sample_rows& rows, std::span<const double> r, std::span<double> out) {
  for (std::size_t i = 0; i < rows.rows(); ++i) add_row(rows, i, r[i], out);
}

void add_weighted_product(const sample_rows& rows, std::span<const double> weight, std::span<const double> v,
                          std::span<double> out) {
  if (rows.dense) {
    for (std::size_t i = 0; i < rows.rows(); ++i) add_row(rows, i, weight[i] * row_product(rows, i, v), out);
    return;
  }
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    const std::size_t count = rows.row_begin[i + 1] - rows.row_begin[i];
    const std::uint32_t* column = rows.column.data() + rows.row_begin[i];
    const double* value = rows.value.data() + rows.row_begin[i];
    // Four partial sums: with one, each addition would wait for the previous one.
    double lane[4] = {};
    std::size_t k = 0;
    for (; k + 4 <= count; k += 4) {
      for (std::size_t l = 0; l < 4; ++l) lane[l] += value[k + l] * v[column[k + l]];
    }
    for (; k < count; ++k) lane[0] += value[k] * v[column[k]];
    const double times = weight[i] * ((lane[0] + lane[1]) + (lane[2] + lane[3]));
    for (k = 0; k < count; ++k) out[column[k]] += times * value[k];
  }
}

void add_weighted_squares(const sample_rows& rows, std::span<const double> weight, std::span<double> out) {
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    if (rows.dense) {
      const auto x = rows.dense_row(i);
      for (std::size_t j = 0; j < x.size(); ++j) out[j] += weight[i] * x[j] * x[j];
    } else {
      for (std::size_t k = rows.row_begin[i]; k < rows.row_begin[i + 1]; ++k)
        out[rows.column[k]] += weight[i] * rows.value[k] * rows.value[k];
    }
  }
}

void add_gram(const sample_rows& rows, std::span<const std::uint32_t> features, std::span<const double> weight,
              std::span<double> packed) {
  const std::size_t n = features.size();
  if (n == 0 || rows.rows() == 0) return;
  constexpr std::uint32_t absent = ~std::uint32_t{0};
  std::vector<std::uint32_t> place;
  std::size_t chosen = 0;
  if (!rows.dense) {
    place.assign(rows.columns, absent);
    for (std::size_t k = 0; k < n; ++k) {
      if (features[k] < rows.columns) place[features[k]] = static_cast<std::uint32_t>(k);
    }
    for (const auto j : rows.column) chosen += place[j] != absent ? 1 : 0;
  }
  // One update of a sparse product is assumed to cost as much as 30 of a dense one (a guess, not a measurement).
  const double mean_entries = static_cast<double>(chosen) / static_cast<double>(rows.rows());
  if (!rows.dense && 30 * mean_entries * mean_entries < static_cast<double>(n) * static_cast<double>(n)) {
    std::vector<std::pair<std::uint32_t, double>> row;
    for (std::size_t i = 0; i < rows.rows(); ++i) {
      const double times = weight.empty() ? 1.0 : weight[i];
      if (times == 0) continue;
      row.clear();
      const std::size_t end = rows.row_begin[i + 1];
      for (std::size_t k = rows.row_begin[i]; k < end; ++k) {
        if (const auto at = place[rows.column[k]]; at != absent) row.emplace_back(at, rows.value[k]);
      }
      for (std::size_t a = 0; a < row.size(); ++a) {
        const double left = times * row[a].second;
        double* to = packed.data() + packed_at(n, row[a].first, 0);
        for (std::size_t b = a; b < row.size(); ++b) to[row[b].first] += left * row[b].second;
      }
    }
    return;
  }

  const std::size_t width = product_padded(n);
  std::vector<double> block(block_rows * width);
  std::vector<double> full(n * width);
  for (std::size_t first = 0; first < rows.rows(); first += block_rows) {
    const std::size_t count = std::min(block_rows, rows.rows() - first);
    for (std::size_t r = 0; r < count; ++r) {
      double* to = block.data() + r * width;
      const double times = weight.empty() ? 1.0 : std::sqrt(weight[first + r]);
      if (rows.dense) {
        const double* x = rows.value.data() + (first + r) * rows.columns;
        if (n == rows.columns) {
          for (std::size_t k = 0; k < n; ++k) to[k] = times * x[k];
        } else {
          for (std::size_t k = 0; k < n; ++k) to[k] = times * x[features[k]];
        }
      } else {
        std::fill(to, to + n, 0.0);
        for (std::size_t k = rows.row_begin[first + r]; k < rows.row_begin[first + r + 1]; ++k) {
          if (const auto at = place[rows.column[k]]; at != absent) to[at] = times * rows.value[k];
        }
      }
    }
    add_product(block.data(), 1, width, block.data(), width, full.data(), width, n, width, count, true);
  }
  for (std::size_t i = 0; i < n; ++i) {
    double* to = packed.data() + packed_at(n, i, 0);
    for (std::size_t j = i; j < n; ++j) to[j] += full[i * width + j];
  }
}

// ---- centred samples

centred_samples::centred_samples(Comm comm, sample_rows rows, bool standardize)
    : comm_(std::move(comm)), rows_(std::move(rows)) {
  const std::size_t p = rows_.columns;
  const std::size_t n = rows_.rows();
  if (!rows_.dense) shift_ = {comm_, rows_};
  std::vector<double> sums(p + 2);
  for (std::size_t i = 0; i < n; ++i) {
    const double weight = weight_of_row(rows_, i);
    add_row(rows_, i, weight, sums);
    sums[p] += weight * rows_.label[i];
    sums[p + 1] += weight;
  }
  sum_over_workers(comm_, sums);
  total_ = sums[p + 1];
  const double share = total_ > 0 ? 1 / total_ : 0;
  mean_.assign(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(p));
  for (auto& m : mean_) m *= share;
  target_mean_ = sums[p] * share;

  // Second pass: squared deviations, and a correction of the first mean.
  std::vector<double> deviations(3 * p + 2);
  const std::span<double> off(deviations.data(), p);
  const std::span<double> squares(deviations.data() + p, p);
  const std::span<double> stored(deviations.data() + 2 * p, p);  // sparse: entries
  for (std::size_t i = 0; i < n; ++i) {
    const double weight = weight_of_row(rows_, i);
    if (rows_.dense) {
      const double* x = rows_.value.data() + i * p;
      for (std::size_t j = 0; j < p; ++j) {
        const double d = x[j] - mean_[j];
        off[j] += weight * d;
        squares[j] += weight * d * d;
      }
    } else {
      for (std::size_t k = rows_.row_begin[i]; k < rows_.row_begin[i + 1]; ++k) {
        const auto j = rows_.column[k];
        const double d = rows_.value[k] - mean_[j];
        off[j] += weight * d;
        squares[j] += weight * d * d;
        stored[j] += weight;
      }
    }
    const double d = rows_.label[i] - target_mean_;
    deviations[3 * p] += weight * d;
    deviations[3 * p + 1] += weight * d * d;
  }
  sum_over_workers(comm_, deviations);
  if (!rows_.dense) {
    // The other rows have a 0.
    for (std::size_t j = 0; j < p; ++j) {
      off[j] -= (total_ - stored[j]) * mean_[j];
      squares[j] += (total_ - stored[j]) * mean_[j] * mean_[j];
    }
  }
  feature_sd_.resize(p);
  scale_.assign(p, 1.0);
  for (std::size_t j = 0; j < p; ++j) {
    const double shift = off[j] * share;
    mean_[j] += shift;
    feature_sd_[j] = spread_of(squares[j] * share, shift);
    // The variance of a constant feature is not exactly 0: its mean is accurate to a few parts in 2^52.
    const double away = mean_[j] + (shift_.amount().empty() ? 0 : shift_.amount()[j]);
    const bool constant = is_constant(away, feature_sd_[j]);
    if (constant) scale_[j] = 0;
    else if (standardize) scale_[j] = 1 / feature_sd_[j];
  }
  require_finite(rows_.names, feature_sd_);
  if (rows_.dense) warn_of_rounding(comm_, rows_.names, mean_, feature_sd_);
  for (std::size_t j = 0; j < p; ++j) feature_sd_[j] *= scale_[j];
  const double shift = deviations[3 * p] * share;
  target_mean_ += shift;
  target_sd_ = spread_of(deviations[3 * p + 1] * share, shift);
  for (auto& y : rows_.label) y -= target_mean_;
  if (!rows_.dense) return;
  for (std::size_t i = 0; i < n; ++i) {
    double* x = rows_.value.data() + i * p;
    for (std::size_t j = 0; j < p; ++j) x[j] = (x[j] - mean_[j]) * scale_[j];
  }
}

std::vector<double> centred_samples::gram(std::span<const std::uint32_t> features) const {
  const std::size_t n = features.size();
  std::vector<double> packed(packed_size(n));
  add_gram(rows_, features, rows_.weight, packed);
  sum_over_workers(comm_, packed);
  if (rows_.dense) return packed;
  for (std::size_t a = 0; a < n; ++a) {
    double* row = packed.data() + packed_at(n, a, 0);
    const auto i = features[a];
    for (std::size_t b = a; b < n; ++b) {
      const auto j = features[b];
      row[b] = (row[b] - total_ * mean_[i] * mean_[j]) * scale_[i] * scale_[j];
    }
  }
  return packed;
}

void centred_samples::residual(std::span<const double> w, std::vector<double>& r) const {
  r.resize(rows_.rows());
  if (rows_.dense) {
    for (std::size_t i = 0; i < r.size(); ++i) r[i] = rows_.label[i] - row_product(rows_, i, w);
    return;
  }
  std::vector<double> scaled(columns());
  double shift = 0;
  for (std::size_t j = 0; j < scaled.size(); ++j) {
    scaled[j] = w[j] * scale_[j];
    shift += scaled[j] * mean_[j];
  }
  for (std::size_t i = 0; i < r.size(); ++i) r[i] = rows_.label[i] - row_product(rows_, i, scaled) + shift;
}

void centred_samples::finish_correlation(std::span<double> sums, double sum_of_r) const {
  if (rows_.dense) return;
  for (std::size_t j = 0; j < columns(); ++j) sums[j] = (sums[j] - mean_[j] * sum_of_r) * scale_[j];
}

std::vector<double> centred_samples::correlate(std::span<const double> r) const {
  std::vector<double> sums(columns() + 2);
  for (std::size_t i = 0; i < rows_.rows(); ++i) {
    const double weighted = weight_of_row(rows_, i) * r[i];
    add_row(rows_, i, weighted, sums);
    sums[columns()] += weighted;
    sums[columns() + 1] += weighted * r[i];
  }
  sum_over_workers(comm_, sums);
  finish_correlation(sums, sums[columns()]);
  sums[columns()] = sums[columns() + 1];
  sums.pop_back();
  return sums;
}

std::vector<double> centred_samples::normal_product(std::span<const double> v) const {
  std::vector<double> scaled(v.begin(), v.end());
  double shift = 0;
  if (!rows_.dense) {
    for (std::size_t j = 0; j < scaled.size(); ++j) {
      scaled[j] *= scale_[j];
      shift += scaled[j] * mean_[j];
    }
  }
  std::vector<double> sums(columns() + 1);
  for (std::size_t i = 0; i < rows_.rows(); ++i) {
    const double t = weight_of_row(rows_, i) * (row_product(rows_, i, scaled) - shift);
    add_row(rows_, i, t, sums);
    sums[columns()] += t;
  }
  sum_over_workers(comm_, sums);
  finish_correlation(sums, sums[columns()]);
  sums.pop_back();
  return sums;
}

std::vector<double> centred_samples::squared_lengths() const {
  std::vector<double> sums(columns());
  for (std::size_t i = 0; i < rows_.rows(); ++i) {
    const double weight = weight_of_row(rows_, i);
    if (rows_.dense) {
      const double* x = rows_.value.data() + i * columns();
      for (std::size_t j = 0; j < columns(); ++j) sums[j] += weight * x[j] * x[j];
    } else {
      for (std::size_t k = rows_.row_begin[i]; k < rows_.row_begin[i + 1]; ++k) {
        sums[rows_.column[k]] += weight * rows_.value[k] * rows_.value[k];
      }
    }
  }
  sum_over_workers(comm_, sums);
  if (rows_.dense) return sums;
  for (std::size_t j = 0; j < sums.size(); ++j) {
    sums[j] = std::max(0.0, sums[j] - total_ * mean_[j] * mean_[j]) * scale_[j] * scale_[j];
  }
  return sums;
}

std::vector<double> centred_samples::theta(std::span<const double> w) const {
  std::vector<double> out(columns() + 1);
  out[0] = target_mean_;
  for (std::size_t j = 0; j < columns(); ++j) {
    out[j + 1] = w[j] * scale_[j];
    out[0] -= out[j + 1] * mean_[j];
  }
  shift_.to_raw(out);
  return out;
}

std::pair<std::vector<double>, double> centred_samples::from_theta(std::span<const double> theta) const {
  std::vector<double> shifted(theta.begin(), theta.end());
  shift_.from_raw(shifted);
  double above = shifted[0] - target_mean_;
  std::vector<double> w(columns());
  for (std::size_t j = 0; j < w.size(); ++j) {
    w[j] = scale_[j] > 0 ? shifted[j + 1] / scale_[j] : 0;
    above += shifted[j + 1] * mean_[j];
  }
  return {std::move(w), above};
}

double centred_samples::row_intercept(std::span<const double> w) const {
  double sum = 0;
  if (!rows_.dense)
    for (std::size_t j = 0; j < w.size(); ++j) sum -= w[j] * scale_[j] * mean_[j];
  return sum;
}

double predicted(const sample_rows& rows, std::size_t i, std::span<const double> theta) {
  const auto weights = theta.subspan(1);
  if (rows.dense) return theta[0] + row_product(rows, i, weights);
  double sum = theta[0];
  const auto columns = rows.columns_of(i);
  const auto values = rows.values_of(i);
  for (std::size_t k = 0; k < columns.size() && columns[k] < weights.size(); ++k)
    sum += values[k] * weights[columns[k]];
  return sum;
}

double root_mean_squared_error(Comm comm, const sample_rows& rows, std::span<const double> theta) {
  double sums[2] = {0, 0};
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    const double weight = weight_of_row(rows, i);
    const double e = rows.label[i] - predicted(rows, i, theta);
    sums[0] += weight * e * e;
    sums[1] += weight;
  }
  sum_over_workers(std::move(comm), sums);
  return std::sqrt(sums[0] / sums[1]);
}

}  // namespace paracel::alg
