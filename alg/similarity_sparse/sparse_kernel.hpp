// SPDX-License-Identifier: BSD-3-Clause
//
// Similarities of sparse rows by inverted lists: for a given row, all rows that share a column with it occur in the
// lists of its columns, and their products are accumulated in an array with one element a row. Pairs that share nothing
// cost nothing. The products of a pair are added in column order, whichever of its rows is processed, so the bits of a
// similarity do not depend on the distribution of rows.
//
// Source: R. Bayardo, Y. Ma, R. Srikant, "Scaling up all pairs similarity search", WWW 2007, section 3 (without its
// bounds, since the least similarity among the k best is not known in advance).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "alg/common/solvers/power_scale.hpp"
#include "alg/common/solvers/top_k_neighbours.hpp"

namespace paracel::alg {

enum class similarity_method { cosine, jaccard, pearson };

/// Limits that a pair must satisfy.
struct similarity_limits {
  similarity_method method = similarity_method::cosine;
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  std::uint32_t common = 1;  ///< columns that a pair must share
};

/// Rows of nonzero entries, columns ascending.
struct csr_rows {
  std::vector<std::uint64_t> begin{0};
  std::vector<std::uint32_t> column;
  std::vector<double> value;

  [[nodiscard]] std::size_t rows() const noexcept { return begin.size() - 1; }
  [[nodiscard]] std::size_t entries(std::size_t i) const { return begin[i + 1] - begin[i]; }
  [[nodiscard]] std::span<const std::uint32_t> columns_of(std::size_t i) const {
    return std::span(column).subspan(begin[i], entries(i));
  }
  [[nodiscard]] std::span<const double> values_of(std::size_t i) const {
    return std::span(value).subspan(begin[i], entries(i));
  }
};

/// Preprocessing of a row: scaling by a power of two, which changes no similarity, so that no square overflows.
inline void prepare_row(similarity_method method, std::span<double> values) {
  if (method != similarity_method::jaccard) scale_to_one(values);
}

/// What the methods need of a complete row, after preprocessing.
struct row_facts {
  std::size_t entries = 0;
  double square = 0;  ///< sum of the squares
};
inline row_facts facts_of(std::span<const double> values) {
  row_facts f{values.size(), 0};
  for (const auto v : values) f.square += v * v;
  return f;
}

/// The rows of one worker, and pairs of them with each other or with rows of other workers.
/// Thread-safety: none
/// Cost: c additions for a pair that shares c columns; 12 bytes an entry for the lists, 24 (pearson: 64) a row.
class sparse_kernel {
 public:
  /// Rows must be preprocessed. `columns`: one more than the greatest column.
  sparse_kernel(csr_rows rows, std::size_t columns, const similarity_limits& limits)
      : rows_(std::move(rows)), limits_(limits), list_begin_(columns + 1) {
    for (const auto c : rows_.column) ++list_begin_[c + 1];
    for (std::size_t c = 0; c < columns; ++c) list_begin_[c + 1] += list_begin_[c];
    auto at = list_begin_;
    list_row_.resize(rows_.column.size());
    list_value_.resize(rows_.column.size());
    for (std::size_t i = 0; i < rows_.rows(); ++i) {
      for (auto k = rows_.begin[i]; k < rows_.begin[i + 1]; ++k) {
        const auto to = at[rows_.column[k]]++;
        list_row_[to] = static_cast<std::uint32_t>(i);
        list_value_[to] = rows_.value[k];
      }
    }
    common_.assign(rows_.rows(), 0);
    met_.resize(rows_.rows() + 1);
    if (limits_.method == similarity_method::cosine) {
      dot_.assign(rows_.rows(), 0);
      for (std::size_t i = 0; i < rows_.rows(); ++i) square_.push_back(facts_of(rows_.values_of(i)).square);
    }
    if (limits_.method == similarity_method::pearson) sums_.assign(rows_.rows(), {});
    start_at(0);
  }

  [[nodiscard]] const csr_rows& rows() const noexcept { return rows_; }

  /// Calls f(i, j, similarity) once for each pair i < j of these rows that is within the limits.
  template <class F>
  void own_pairs(F&& f) {
    start_at(0);
    for (std::size_t i = 0; i < rows_.rows(); ++i) {
      // Rows are processed in ascending order: the lists of this row's columns now begin with the row itself.
      for (const auto c : rows_.columns_of(i)) ++start_[c];
      pairs_of(rows_.columns_of(i), rows_.values_of(i), {rows_.entries(i), square_.empty() ? 0 : square_[i]},
               [&](std::uint32_t j, double similarity) { f(i, static_cast<std::size_t>(j), similarity); });
    }
  }

  /// Excludes rows below `first` from `visit` from now on.
  void start_at(std::size_t first) {
    start_.assign(list_begin_.begin(), list_begin_.end() - 1);
    if (first == 0) return;
    for (std::size_t c = 0; c < start_.size(); ++c) {
      const auto begin = list_row_.begin() + static_cast<std::ptrdiff_t>(list_begin_[c]);
      const auto end = list_row_.begin() + static_cast<std::ptrdiff_t>(list_begin_[c + 1]);
      start_[c] = static_cast<std::uint64_t>(std::lower_bound(begin, end, first) - list_row_.begin());
    }
  }
  /// Calls f(i, similarity) for each of these rows i that forms a pair within the limits with a row of another worker.
  /// `columns`: those of its columns that occur here; `row`: all of it.
  template <class F>
  void visit(std::span<const std::uint32_t> columns, std::span<const double> values, const row_facts& row, F&& f) {
    pairs_of(columns, values, row, std::forward<F>(f));
  }

 private:
  // Moments of the differences from the values in the first common column. Its square distance from the mean is at most
  // n - 1 variances, so sums over n columns lose at most a factor of n to cancellation, wherever the values are.
  struct moments {
    double first_x = 0;
    double first_y = 0;
    double x = 0;
    double y = 0;
    double xx = 0;
    double yy = 0;
    double xy = 0;
  };

  template <class F>
  void pairs_of(std::span<const std::uint32_t> columns, std::span<const double> values, const row_facts& guest, F&& f) {
    switch (limits_.method) {
      case similarity_method::cosine:
        gather(columns,
               [&](std::uint32_t row, std::uint64_t at, std::size_t k) { dot_[row] += values[k] * list_value_[at]; });
        // A single root of the product: similarities that are equal are then mostly bit-identical.
        emit(guest, f, [&](std::uint32_t row, std::uint32_t) {
          return std::clamp(std::exchange(dot_[row], 0.0) / std::sqrt(guest.square * square_[row]), -1.0, 1.0);
        });
        return;
      case similarity_method::jaccard:
        gather(columns, [](std::uint32_t, std::uint64_t, std::size_t) {});
        emit(guest, f, [&](std::uint32_t row, std::uint32_t both) {
          return both / static_cast<double>(guest.entries + rows_.entries(row) - both);
        });
        return;
      case similarity_method::pearson:
        gather(columns, [&](std::uint32_t row, std::uint64_t at, std::size_t k) {
          auto& m = sums_[row];
          // Selected instead of branched on, as in `gather`.
          const bool first = common_[row] == 1;
          m.first_x = first ? values[k] : m.first_x;
          m.first_y = first ? list_value_[at] : m.first_y;
          const double x = values[k] - m.first_x;
          const double y = list_value_[at] - m.first_y;
          m.x += x;
          m.y += y;
          m.xx += x * x;
          m.yy += y * y;
          m.xy += x * y;
        });
        emit(guest, f,
             [&](std::uint32_t row, std::uint32_t both) { return correlation(std::exchange(sums_[row], {}), both); });
        return;
    }
  }

  /// Calls add(row, position in the lists, k) for each list entry of each column k; counts the common columns of rows.
  template <class A>
  void gather(std::span<const std::uint32_t> columns, A&& add) {
    met_count_ = 0;
    for (std::size_t k = 0; k < columns.size(); ++k) {
      const auto end = list_begin_[columns[k] + 1];
      for (auto at = start_[columns[k]]; at < end; ++at) {
        const auto row = list_row_[at];
        // Written unconditionally and counted if new: a branch would be mispredicted half of the time.
        met_[met_count_] = row;
        met_count_ += common_[row] == 0 ? 1 : 0;
        ++common_[row];
        add(row, at, k);
      }
    }
  }
  template <class F, class S>
  void emit(const row_facts& guest, F& f, S&& similarity) {
    for (std::size_t n = 0; n < met_count_; ++n) {
      const auto row = met_[n];
      const auto both = std::exchange(common_[row], 0U);
      const double s = similarity(row, both);
      const double rounding = similarity_rounding(std::max(guest.entries, rows_.entries(row)));
      // NaN: undefined, so not a pair.
      if (both >= limits_.common && s >= limits_.least - rounding && s <= limits_.most + rounding) f(row, s);
    }
  }

  /// Correlation over the common columns; undefined with fewer than two, or if a row is constant in them.
  static double correlation(const moments& m, std::uint32_t both) {
    const double n = both;
    const double xx = m.xx - m.x * m.x / n;
    const double yy = m.yy - m.y * m.y / n;
    if (!(xx > 0 && yy > 0)) return std::numeric_limits<double>::quiet_NaN();
    return std::clamp((m.xy - m.x * m.y / n) / (std::sqrt(xx) * std::sqrt(yy)), -1.0, 1.0);
  }

  csr_rows rows_;
  similarity_limits limits_;
  std::vector<std::uint64_t> list_begin_;  // by column
  std::vector<std::uint32_t> list_row_;    // ascending in a list
  std::vector<double> list_value_;
  std::vector<std::uint64_t> start_;   // by column: the current start of its list
  std::vector<std::uint32_t> common_;  // by row; 0 between calls, as the sums are
  std::vector<double> dot_;
  std::vector<double> square_;  // of a row's values
  std::vector<moments> sums_;
  std::vector<std::uint32_t> met_;
  std::size_t met_count_ = 0;
};

}  // namespace paracel::alg
