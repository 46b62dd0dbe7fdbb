// SPDX-License-Identifier: BSD-3-Clause
//
// Similarities of sparse rows by inverted lists: for a row all other rows that share a column with it come up in the
// lists of its columns, and what they have in common is added up in an array with an element a row. Pairs that share
// nothing cost nothing. The products of a pair are added in the order of the columns, whichever of its rows looks for
// the other, so the bits of a similarity do not depend on how rows are spread.
//
// Source: R. Bayardo, Y. Ma, R. Srikant, "Scaling up all pairs similarity search", WWW 2007, section 3 (without its
// bounds, since the similarity that the k best need is not known beforehand).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace paracel::alg {

enum class similarity_method { cosine, jaccard, pearson };

/// Which pairs count.
struct similarity_limits {
  similarity_method method = similarity_method::cosine;
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  std::uint32_t common = 1;  ///< columns that a pair must share
};

/// Rows with entries that are not 0, columns ascending.
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

/// What a method does to a row beforehand. cosine: a power of two, which changes no digit, makes its values about 1, so
/// that no square overflows or vanishes. pearson: the row's mean is taken away, which changes no correlation but keeps
/// the sums small.
inline void prepare_row(similarity_method method, std::span<double> values) {
  if (method == similarity_method::cosine) {
    double greatest = 0;
    for (const auto v : values) greatest = std::max(greatest, std::abs(v));
    const int exponent = greatest > 0 ? std::ilogb(greatest) : 0;
    for (auto& v : values) v = std::scalbn(v, -exponent);
  } else if (method == similarity_method::pearson) {
    double sum = 0;
    for (const auto v : values) sum += v;
    const double mean = values.empty() ? 0 : sum / static_cast<double>(values.size());
    for (auto& v : values) v -= mean;
  }
}

/// What the methods need of a whole row, prepared.
struct row_facts {
  std::size_t entries = 0;
  double square = 0;  ///< sum of the squares
};
inline row_facts facts_of(std::span<const double> values) {
  row_facts f{values.size(), 0};
  for (const auto v : values) f.square += v * v;
  return f;
}

/// The rows of one side, and pairs of them with each other or with rows from elsewhere.
/// Thread-safety: none
/// Cost: a pair that shares c columns costs c additions; 12 bytes an entry for the lists, 24 (pearson: 48) a row.
class sparse_kernel {
 public:
  /// Rows are prepared already. `columns`: one more than the greatest column.
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

  /// f(i, j, similarity) for each pair i < j of these rows that is within the limits, once.
  template <class F>
  void own_pairs(F&& f) {
    start_at(0);
    for (std::size_t i = 0; i < rows_.rows(); ++i) {
      // Rows are met in ascending order: the list of each of its columns now begins with the row itself.
      for (const auto c : rows_.columns_of(i)) ++start_[c];
      pairs_of(rows_.columns_of(i), rows_.values_of(i), {rows_.entries(i), square_.empty() ? 0 : square_[i]},
               [&](std::uint32_t j, double similarity) { f(i, static_cast<std::size_t>(j), similarity); });
    }
  }

  /// Rows below `first` take no part in `visit` from now on.
  void start_at(std::size_t first) {
    start_.assign(list_begin_.begin(), list_begin_.end() - 1);
    if (first == 0) return;
    for (std::size_t c = 0; c < start_.size(); ++c) {
      const auto begin = list_row_.begin() + static_cast<std::ptrdiff_t>(list_begin_[c]);
      const auto end = list_row_.begin() + static_cast<std::ptrdiff_t>(list_begin_[c + 1]);
      start_[c] = static_cast<std::uint64_t>(std::lower_bound(begin, end, first) - list_row_.begin());
    }
  }
  /// f(i, similarity) for each of these rows i that makes a pair within the limits with a row from elsewhere.
  /// `columns`: those of its columns that exist here; `row`: all of it.
  template <class F>
  void visit(std::span<const std::uint32_t> columns, std::span<const double> values, const row_facts& row, F&& f) {
    pairs_of(columns, values, row, std::forward<F>(f));
  }

 private:
  struct moments {
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
        // One root of the product: similarities that are equal as numbers are then mostly equal in their bits, too.
        emit(f, [&](std::uint32_t row, std::uint32_t) {
          return std::clamp(std::exchange(dot_[row], 0.0) / std::sqrt(guest.square * square_[row]), -1.0, 1.0);
        });
        return;
      case similarity_method::jaccard:
        gather(columns, [](std::uint32_t, std::uint64_t, std::size_t) {});
        emit(f, [&](std::uint32_t row, std::uint32_t both) {
          return both / static_cast<double>(guest.entries + rows_.entries(row) - both);
        });
        return;
      case similarity_method::pearson:
        gather(columns, [&](std::uint32_t row, std::uint64_t at, std::size_t k) {
          auto& m = sums_[row];
          const double x = values[k];
          const double y = list_value_[at];
          m.x += x;
          m.y += y;
          m.xx += x * x;
          m.yy += y * y;
          m.xy += x * y;
        });
        emit(f,
             [&](std::uint32_t row, std::uint32_t both) { return correlation(std::exchange(sums_[row], {}), both); });
        return;
    }
  }

  /// add(row, place in the lists, k) for each list entry of each column k; counts what rows have in common.
  template <class A>
  void gather(std::span<const std::uint32_t> columns, A&& add) {
    met_count_ = 0;
    for (std::size_t k = 0; k < columns.size(); ++k) {
      const auto end = list_begin_[columns[k] + 1];
      for (auto at = start_[columns[k]]; at < end; ++at) {
        const auto row = list_row_[at];
        // Written always and counted when new: a jump here would be guessed wrong half of the time.
        met_[met_count_] = row;
        met_count_ += common_[row] == 0 ? 1 : 0;
        ++common_[row];
        add(row, at, k);
      }
    }
  }
  template <class F, class S>
  void emit(F& f, S&& similarity) {
    for (std::size_t n = 0; n < met_count_; ++n) {
      const auto row = met_[n];
      const auto both = std::exchange(common_[row], 0U);
      const double s = similarity(row, both);
      // NaN: not defined, so not a pair.
      if (both >= limits_.common && s >= limits_.least && s <= limits_.most) f(row, s);
    }
  }

  /// Of the common columns; not defined for less than two, or where a row has the same value in all of them.
  static double correlation(const moments& m, std::uint32_t both) {
    const double n = both;
    const double xx = m.xx - m.x * m.x / n;
    const double yy = m.yy - m.y * m.y / n;
    // What rounding leaves of a variance that is 0: a few units in the last place of the sums.
    if (both < 2 || xx <= 1e-14 * n * m.xx || yy <= 1e-14 * n * m.yy) return std::numeric_limits<double>::quiet_NaN();
    return std::clamp((m.xy - m.x * m.y / n) / (std::sqrt(xx) * std::sqrt(yy)), -1.0, 1.0);
  }

  csr_rows rows_;
  similarity_limits limits_;
  std::vector<std::uint64_t> list_begin_;  // by column
  std::vector<std::uint32_t> list_row_;    // ascending in a list
  std::vector<double> list_value_;
  std::vector<std::uint64_t> start_;   // by column: where its list begins for now
  std::vector<std::uint32_t> common_;  // by row; 0 between calls, as the sums are
  std::vector<double> dot_;
  std::vector<double> square_;  // of a row's values
  std::vector<moments> sums_;
  std::vector<std::uint32_t> met_;
  std::size_t met_count_ = 0;
};

}  // namespace paracel::alg
