// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include <paracel/detail/bytes.hpp>
#include <paracel/error.hpp>
#include <paracel/optim_losses.hpp>

#include "optim/linear_rows.hpp"
#include "optim/vectors.hpp"

namespace paracel::optim {

namespace {

// Rows whose margins, losses and gradient are computed together: their entries are still in the cache for the gradient.
constexpr std::size_t block_rows = 256;
// With more entries per row, their outer products cost more than the Hessian-vector products that they save.
constexpr double most_outer_entries = 100;
// Dense rows of all workers from which every row_stride-th one is measured.
constexpr std::uint64_t most_measured_rows = 16384;
constexpr std::uint64_t row_stride = 16;

}  // namespace

void check_rows(const sample_rows& rows, std::size_t columns, const linear_options& options) {
  if (columns < rows.columns || (rows.dense && columns != rows.columns))
    throw error("the rows have " + std::to_string(rows.columns) + " columns, the objective " + std::to_string(columns));
  if (rows.label.size() != rows.rows()) throw error("the rows have no labels");
  const auto& weights = options.row_weights;
  if (!weights.empty() && weights.size() != rows.rows())
    throw error(std::to_string(weights.size()) + " weights for " + std::to_string(rows.rows()) + " rows");
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] >= 0) || !std::isfinite(weights[i]))
      throw error("the weight of row " + std::to_string(i) + " is " + std::to_string(weights[i]) +
                  ", want a finite number from 0");
  }
  const auto& standard = options.standardize;
  if (standard.is_identity()) return;
  if (standard.inverse().size() != columns || standard.shift().empty() == options.intercept)
    throw error("the standardization has a different number of columns, or centers features without an intercept");
}

standardization::standardization(Comm comm, const sample_rows& rows, std::size_t columns,
                                 std::span<const double> weight, bool center) {
  const auto weight_of = [&](std::size_t i) { return weight.empty() ? 1.0 : weight[i]; };
  std::vector<double> sums(columns + 1);
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    sums[columns] += weight_of(i);
    visit_row(rows, i, [&](std::size_t j, double x) { sums[j] += weight_of(i) * x; });
  }
  comm.allreduce(sums);
  const double total = sums[columns];
  if (!(total > 0)) throw error("standardization: there are no rows");
  std::vector<double> mean(sums.begin(), sums.end() - 1);
  for (auto& m : mean) m /= total;
  // Around the mean, so that nothing cancels; entries that are not stored are zeros.
  std::vector<double> squares(columns);
  std::vector<double> seen(columns);
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    visit_row(rows, i, [&](std::size_t j, double x) {
      squares[j] += weight_of(i) * (x - mean[j]) * (x - mean[j]);
      seen[j] += weight_of(i);
    });
  }
  squares.insert(squares.end(), seen.begin(), seen.end());
  comm.allreduce(squares);
  inverse_.resize(columns);
  for (std::size_t j = 0; j < columns; ++j) {
    const double variance = (squares[j] + (total - squares[columns + j]) * mean[j] * mean[j]) / total;
    // A constant feature, up to the rounding of its mean.
    const bool constant = !(variance > 1e-28 * mean[j] * mean[j]);
    inverse_[j] = constant ? 1 : 1 / std::sqrt(variance);
  }
  if (!center) return;
  shift_.resize(columns);
  for (std::size_t j = 0; j < columns; ++j) shift_[j] = mean[j] * inverse_[j];
}

void standardization::to_raw(std::span<const double> w, std::span<double> raw, std::size_t width) const {
  const std::size_t first = shift_.empty() ? 0 : width;
  if (first > 0) std::copy_n(w.begin(), width, raw.begin());
  for (std::size_t j = 0; j < inverse_.size(); ++j) {
    for (std::size_t c = 0; c < width; ++c) {
      const double x = w[first + j * width + c];
      if (first > 0) raw[c] -= shift_[j] * x;
      raw[first + j * width + c] = inverse_[j] * x;
    }
  }
}

void standardization::add_from_raw(std::span<const double> raw, std::span<double> gradient, std::size_t width) const {
  const std::size_t first = shift_.empty() ? 0 : width;
  for (std::size_t c = 0; c < first; ++c) gradient[c] += raw[c];
  for (std::size_t j = 0; j < inverse_.size(); ++j) {
    for (std::size_t c = 0; c < width; ++c) {
      const std::size_t at = first + j * width + c;
      gradient[at] += inverse_[j] * raw[at] - (first > 0 ? shift_[j] * raw[c] : 0);
    }
  }
}

void group_equal_rows(sample_rows& rows) {
  if (rows.dense) return;
  constexpr std::size_t run = 2048;  // rows: a copy of them fits into the L2 cache
  std::vector<std::size_t> order;
  sample_rows copy;
  for (std::size_t first = 0; first < rows.rows(); first += run) {
    const std::size_t count = std::min(run, rows.rows() - first);
    const std::size_t begin = rows.row_begin[first];
    const std::size_t entries = rows.row_begin[first + count] - begin;
    const auto keep = [](auto& to, const auto& from, std::size_t at, std::size_t n) {
      const auto part = std::span(from).subspan(at, n);
      to.assign(part.begin(), part.end());
    };
    keep(copy.row_begin, rows.row_begin, first, count + 1);
    keep(copy.column, rows.column, begin, entries);
    keep(copy.value, rows.value, begin, entries);
    if (!rows.label.empty()) keep(copy.label, rows.label, first, count);
    order.resize(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto length = [&](std::size_t i) { return copy.row_begin[i + 1] - copy.row_begin[i]; };
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return length(a) < length(b); });
    std::size_t to = begin;
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t i = order[k];
      const auto from = static_cast<std::ptrdiff_t>(copy.row_begin[i] - begin);
      const auto n = static_cast<std::ptrdiff_t>(length(i));
      const auto at = static_cast<std::ptrdiff_t>(to);
      std::copy_n(copy.column.begin() + from, n, rows.column.begin() + at);
      std::copy_n(copy.value.begin() + from, n, rows.value.begin() + at);
      if (!rows.label.empty()) rows.label[first + k] = copy.label[i];
      to += length(i);
      rows.row_begin[first + k + 1] = to;
    }
  }
}

linear_objective::linear_objective(const sample_rows& rows, loss_ptr of, linear_options options)
    : rows_(rows),
      loss_(std::move(of)),
      options_(std::move(options)),
      columns_(options_.columns != 0 ? options_.columns : rows.columns) {
  check_rows(rows_, columns_, options_);
  curvature_.resize(rows_.rows());
  if (options_.standardize.is_identity()) return;
  raw_.resize(dimension());
  raw_gradient_.resize(dimension());
}

double linear_objective::weight() const {
  if (options_.row_weights.empty()) return static_cast<double>(rows_.rows());
  double sum = 0;
  for (const auto x : options_.row_weights) sum += x;
  return sum;
}

inline double linear_objective::margin(const sample_rows& rows, std::size_t i, const double* raw) const {
  return (options_.intercept ? raw[0] : 0.0) + row_dot(rows, i, raw + first());
}

inline void linear_objective::add_row(const sample_rows& rows, std::size_t i, double times, double* raw) const {
  if (options_.intercept) raw[0] += times;
  add_scaled_row(rows, i, times, raw + first());
}

std::span<const double> linear_objective::raw_of(std::span<const double> w) {
  if (options_.standardize.is_identity()) return w;
  options_.standardize.to_raw(w, raw_);
  return raw_;
}

/// `pass(raw)` adds derivatives with respect to the raw weights.
template <class Pass>
void linear_objective::with_raw_gradient(std::span<double> gradient, Pass&& pass) {
  if (options_.standardize.is_identity()) return pass(gradient.data());
  std::fill(raw_gradient_.begin(), raw_gradient_.end(), 0.0);
  pass(raw_gradient_.data());
  options_.standardize.add_from_raw(raw_gradient_, gradient);
}

double linear_objective::value_and_gradient(std::span<const double> w, std::span<double> gradient) {
  return add_range(rows_, options_.row_weights, 0, rows_.rows(), w, gradient);
}

double linear_objective::range_value_and_gradient(std::size_t begin, std::size_t end, std::span<const double> w,
                                                  std::span<double> gradient) {
  return add_range(rows_, options_.row_weights, begin, end, w, gradient);
}

/// The part of own rows, or of rows of another worker, whose curvatures are not needed.
double linear_objective::add_range(const sample_rows& rows, std::span<const double> weights, std::size_t first_row,
                                   std::size_t end, std::span<const double> w, std::span<double> gradient) {
  const auto raw = raw_of(w);
  double sum = 0;
  with_raw_gradient(gradient, [&](double* to) {
    std::array<double, block_rows> margin_of;
    std::array<double, block_rows> slope;
    std::array<double, block_rows> unused;
    for (std::size_t begin = first_row; begin < end; begin += block_rows) {
      const std::size_t count = std::min(block_rows, end - begin);
      for (std::size_t i = 0; i < count; ++i) margin_of[i] = margin(rows, begin + i, raw.data());
      const auto curvature =
          &rows == &rows_ ? std::span(curvature_).subspan(begin, count) : std::span(unused).first(count);
      sum += loss_->derivatives(std::span(margin_of).first(count), std::span(rows.label).subspan(begin, count),
                                weights.empty() ? weights : weights.subspan(begin, count),
                                std::span(slope).first(count), curvature);
      for (std::size_t i = 0; i < count; ++i) {
        if (slope[i] != 0) add_row(rows, begin + i, slope[i], to);
      }
    }
  });
  return sum;
}

// Packed rows: u8 dense, u32 columns, u64 rows, u8 weighted, u64 entries; the labels, the weights, for sparse rows
// their lengths (u32) and columns; the values.
std::vector<std::byte> linear_objective::pack_rows(std::size_t begin, std::size_t end) const {
  const auto count = end - begin;
  const auto at = [&](std::size_t row) { return rows_.dense ? row * rows_.columns : rows_.row_begin[row]; };
  const auto entries = at(end) - at(begin);
  byte_vector to;
  put_fields(to, static_cast<std::uint8_t>(rows_.dense), rows_.columns, std::uint64_t{count},
             static_cast<std::uint8_t>(!options_.row_weights.empty()), std::uint64_t{entries});
  put_bytes(to, rows_.label.data() + begin, count);
  if (!options_.row_weights.empty()) put_bytes(to, options_.row_weights.data() + begin, count);
  if (!rows_.dense) {
    for (auto i = begin; i < end; ++i) put_fields(to, static_cast<std::uint32_t>(at(i + 1) - at(i)));
    put_bytes(to, rows_.column.data() + at(begin), entries);
  }
  put_bytes(to, rows_.value.data() + at(begin), entries);
  return to;
}

namespace {
struct unpacked_rows {
  sample_rows rows;
  std::vector<double> weights;
};
}  // namespace

std::shared_ptr<const void> linear_objective::unpack_rows(std::span<const std::byte> packed) const {
  auto made = std::make_shared<unpacked_rows>();
  auto& rows = made->rows;
  byte_reader from(packed);
  const auto numbers = [&]<class T>(std::vector<T>& to, std::size_t n) {
    const auto* bytes = from.take(n * sizeof(T));
    to.resize(n);
    if (n > 0) std::memcpy(to.data(), bytes, n * sizeof(T));
  };
  rows.dense = from.get<std::uint8_t>() != 0;
  rows.columns = from.get<std::uint32_t>();
  rows.row_count = from.get<std::uint64_t>();
  const bool weighted = from.get<std::uint8_t>() != 0;
  const auto entries = from.get<std::uint64_t>();
  if (rows.columns > columns_)
    throw error("rows of another worker have " + std::to_string(rows.columns) + " columns, the objective " +
                std::to_string(columns_));
  numbers(rows.label, rows.row_count);
  if (weighted) numbers(made->weights, rows.row_count);
  if (!rows.dense) {
    for (std::size_t i = 0; i < rows.row_count; ++i)
      rows.row_begin.push_back(rows.row_begin.back() + from.get<std::uint32_t>());
    numbers(rows.column, entries);
  }
  numbers(rows.value, entries);
  return made;
}

double linear_objective::packed_value_and_gradient(const void* unpacked, std::span<const double> w,
                                                   std::span<double> gradient) {
  const auto& of = *static_cast<const unpacked_rows*>(unpacked);
  return add_range(of.rows, of.weights, 0, of.rows.rows(), w, gradient);
}

double linear_objective::rows_value_and_gradient(std::span<const std::size_t> rows, std::span<const double> w,
                                                 std::span<double> gradient) {
  const auto raw = raw_of(w);
  double sum = 0;
  with_raw_gradient(gradient, [&](double* to) {
    for (const auto i : rows) {
      const double m = margin(i, raw.data());
      double slope = 0;
      double unused = 0;
      const auto weights = std::span<const double>(options_.row_weights);
      sum += loss_->derivatives(std::span(&m, 1), std::span(&rows_.label[i], 1),
                                weights.empty() ? weights : weights.subspan(i, 1), std::span(&slope, 1),
                                std::span(&unused, 1));
      if (slope != 0) add_row(i, slope, to);
    }
  });
  return sum;
}

void linear_objective::hessian_vector(std::span<const double> v, std::span<double> out) {
  const auto raw = raw_of(v);
  with_raw_gradient(out, [&](double* to) {
    for (std::size_t i = 0; i < rows_.rows(); ++i) {
      if (curvature_[i] != 0) add_row(i, curvature_[i] * margin(i, raw.data()), to);
    }
  });
}

bool linear_objective::curvature_scale(std::span<double> sums, std::span<double> weights) {
  add_squares(rows_, options_, loss_->greatest_curvature(), 1, sums, weights);
  return true;
}

bool linear_objective::sampled_curvature_scale(std::span<double> sums, std::span<double> weights) {
  const auto stride = sample_stride(rows_);
  if (stride > 1) add_squares(rows_, options_, loss_->greatest_curvature(), 1, sums, weights, stride);
  return stride > 1;
}

std::uint64_t sample_stride(const sample_rows& rows) noexcept {
  // Sizes need not be exact: of many dense rows some will do.
  return rows.dense && rows.rows_total >= most_measured_rows ? row_stride : 1;
}

void add_squares(const sample_rows& rows, const linear_options& options, double curvature, std::size_t width,
                 std::span<double> sums, std::span<double> weights, std::uint64_t stride) {
  const auto& inverse = options.standardize.inverse();
  const auto& shift = options.standardize.shift();
  const std::size_t first = options.intercept ? 1 : 0;
  const std::size_t columns = sums.size() / width - first;
  std::vector<double> square(columns);
  std::vector<double> weight(columns);
  double total = 0;
  // Which rows does not depend on the number of workers.
  for (std::size_t i = (stride - rows.first_row % stride) % stride; i < rows.rows(); i += stride) {
    const double w = options.row_weights.empty() ? 1 : options.row_weights[i];
    total += w;
    visit_row(rows, i, [&](std::size_t j, double x) {
      if (x == 0) return;
      const double standard = inverse.empty() ? x : x * inverse[j] - (shift.empty() ? 0 : shift[j]);
      square[j] += w * standard * standard;
      weight[j] += w;
    });
  }
  for (std::size_t c = 0; c < width; ++c) {
    if (first > 0) {
      sums[c] += curvature * total;
      weights[c] += total;
    }
    for (std::size_t j = 0; j < columns; ++j) {
      sums[(first + j) * width + c] += curvature * square[j];
      weights[(first + j) * width + c] += weight[j];
    }
  }
}

bool linear_objective::hessian_diagonal(std::span<double> out) {
  if (!has_hessian()) return false;
  // Over the raw weights: sums of c x^2, of c x, and of c.
  double total = 0;
  const bool centered = !options_.standardize.shift().empty();
  std::vector<double> square(columns_);
  std::vector<double> plain(centered ? columns_ : 0);
  for (std::size_t i = 0; i < rows_.rows(); ++i) {
    const double c = curvature_[i];
    if (c == 0) continue;
    total += c;
    visit_row(rows_, i, [&](std::size_t j, double x) {
      square[j] += c * x * x;
      if (centered) plain[j] += c * x;
    });
  }
  if (options_.intercept) out[0] += total;
  const auto& inverse = options_.standardize.inverse();
  const auto& shift = options_.standardize.shift();
  for (std::size_t j = 0; j < columns_; ++j) {
    const double scale = inverse.empty() ? 1 : inverse[j];
    out[first() + j] += scale * scale * square[j];
    if (centered) out[first() + j] += shift[j] * (shift[j] * total - 2 * scale * plain[j]);
  }
  return true;
}

bool linear_objective::prefers_dense_hessian() const {
  const auto entries = static_cast<double>(rows_.value.size());
  return entries <= most_outer_entries * static_cast<double>(rows_.rows());
}

void linear_objective::hessian(std::span<double> packed) {
  const std::size_t n = dimension();
  const bool standard = !options_.standardize.is_identity();
  std::vector<double> own(standard ? packed.size() : 0);
  const auto to = standard ? std::span<double>(own) : packed;
  if (rows_.dense) {
    for (std::size_t i = 0; i < rows_.rows(); ++i) {
      const auto x = rows_.dense_row(i);
      const double c = curvature_[i];
      if (c == 0) continue;
      if (options_.intercept) {
        to[0] += c;
        add_scaled(c, x, to.subspan(1));
      }
      for (std::size_t j = 0; j < columns_; ++j) {
        const std::size_t at = first() + j;
        if (x[j] != 0) add_scaled(c * x[j], x.subspan(j), to.subspan(packed_row(n, at) + at));
      }
    }
  }
  std::vector<std::pair<std::size_t, double>> row;
  for (std::size_t i = 0; !rows_.dense && i < rows_.rows(); ++i) {
    if (curvature_[i] == 0) continue;
    row.clear();
    if (options_.intercept) row.emplace_back(0, 1.0);
    visit_row(rows_, i, [&](std::size_t j, double x) {
      if (x != 0) row.emplace_back(first() + j, x);
    });
    for (std::size_t a = 0; a < row.size(); ++a) {
      const double left = curvature_[i] * row[a].second;
      double* line = to.data() + packed_row(n, row[a].first);
      for (std::size_t b = a; b < row.size(); ++b) line[row[b].first] += left * row[b].second;
    }
  }
  if (!standard) return;
  // H of the standardised weights: T'HT, where T is to_raw.
  const auto& inverse = options_.standardize.inverse();
  const auto& shift = options_.standardize.shift();
  const bool centered = !shift.empty();
  const auto scale = [&](std::size_t at) { return at < first() ? 1 : inverse[at - first()]; };
  const auto moved = [&](std::size_t at) { return !centered || at < first() ? 0 : shift[at - first()]; };
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = a; b < n; ++b) {
      double h = scale(a) * scale(b) * own[packed_row(n, a) + b];
      if (centered) h += moved(a) * moved(b) * own[0] - scale(a) * own[a] * moved(b) - moved(a) * own[b] * scale(b);
      packed[packed_row(n, a) + b] += h;
    }
  }
}

std::vector<double> linear_objective::margins(std::span<const double> w) const {
  const auto raw = raw_weights(w);
  std::vector<double> all(rows_.rows());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = margin(i, raw.data());
  return all;
}

std::vector<double> linear_objective::raw_weights(std::span<const double> w) const {
  std::vector<double> raw(w.begin(), w.end());
  if (!options_.standardize.is_identity()) options_.standardize.to_raw(w, raw);
  return raw;
}

}  // namespace paracel::optim
