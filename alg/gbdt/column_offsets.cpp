// SPDX-License-Identifier: BSD-3-Clause
#include "column_offsets.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <paracel/free_memory.hpp>
#include "alg/common/output/warning.hpp"
#include "alg/common/solvers/column_shift.hpp"

namespace paracel::alg {

namespace {

// Ratio of the distance from 0 to the spread. With 256 a float still tells 65,536 values apart, and bins are at most
// 255.
constexpr double far = 256;
constexpr double greatest_float = static_cast<double>(std::numeric_limits<float>::max()) / 2;
// Smaller floats have fewer than 24 bits.
constexpr auto least_float = static_cast<double>(std::numeric_limits<float>::min());

/// The least and the greatest value of each column, over all workers; -inf and inf swapped where there is none.
struct column_ranges {
  std::vector<double> least;
  std::vector<double> greatest;

  explicit column_ranges(std::size_t columns)
      : least(columns, std::numeric_limits<double>::infinity()),
        greatest(columns, -std::numeric_limits<double>::infinity()) {}
  void add(std::size_t column, double v) {
    if (v < least[column]) least[column] = v;
    if (v > greatest[column]) greatest[column] = v;
  }
  void unite(Comm comm) {
    comm.allreduce(least, reduce_op::min);
    comm.allreduce(greatest, reduce_op::max);
  }
  [[nodiscard]] double most(std::size_t j) const { return std::max(std::abs(least[j]), std::abs(greatest[j])); }
  [[nodiscard]] double spread(std::size_t j) const { return greatest[j] - least[j]; }
};

}  // namespace

std::vector<std::uint32_t> column_offsets::candidates(const Comm& comm, const sample_rows& rows) {
  column_ranges ranges(rows.columns);
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    const auto x = rows.float_row(i);
    for (std::size_t j = 0; j < x.size(); ++j) ranges.add(j, static_cast<double>(x[j]));
  }
  ranges.unite(comm);
  std::vector<std::uint32_t> found;
  for (std::uint32_t j = 0; j < rows.columns; ++j) {
    if (std::ranges::binary_search(rows.categorical, j) || !(ranges.least[j] <= ranges.greatest[j])) continue;
    if (ranges.most(j) >= greatest_float)
      warn(comm, "column " + column_name(rows.names, j) +
                     " has numbers beyond 1.7e38, which are taken for 1.7e38: trees keep single-precision numbers");
    else if (ranges.most(j) > 0 && ranges.most(j) < least_float)
      warn(comm, "column " + column_name(rows.names, j) +
                     " has only numbers below 1.2e-38, of which little or nothing is left: trees keep single-precision "
                     "numbers; want a factor");
    else if (ranges.most(j) > far * ranges.spread(j)) found.push_back(j);
  }
  return found;
}

void column_offsets::choose(const Comm& comm, const sample_rows& exact, const std::vector<std::uint32_t>& columns) {
  column_ranges ranges(exact.columns);
  for (std::size_t i = 0; i < exact.rows(); ++i) {
    if (exact.dense) {
      const auto x = exact.dense_row(i);
      for (const auto j : columns) ranges.add(j, x[j]);
      continue;
    }
    const auto at = exact.columns_of(i);
    const auto x = exact.values_of(i);
    for (std::size_t e = 0; e < at.size(); ++e) ranges.add(at[e], x[e]);
  }
  ranges.unite(comm);
  std::vector<double> offset(exact.columns);
  bool some = false;
  for (const auto j : columns) {
    if (!(ranges.spread(j) > 0)) continue;
    offset[j] = ranges.least[j] + ranges.spread(j) / 2;
    some = true;
  }
  if (some) offset_ = std::move(offset);
}

void column_offsets::apply(sample_rows& rows) const {
  const auto rounded = [&](double v, std::size_t j) {
    v -= of(j);
    return static_cast<float>(v > greatest_float ? greatest_float : v < -greatest_float ? -greatest_float : v);
  };
  std::vector<float> floats(rows.rows() * rows.columns);
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    float* const to = floats.data() + i * rows.columns;
    if (rows.dense) {
      const auto x = rows.dense_row(i);
      for (std::size_t j = 0; j < x.size(); ++j) to[j] = rounded(x[j], j);
      continue;
    }
    for (std::size_t j = 0; j < rows.columns; ++j) to[j] = rounded(0, j);
    const auto at = rows.columns_of(i);
    const auto x = rows.values_of(i);
    for (std::size_t e = 0; e < at.size(); ++e) to[at[e]] = rounded(x[e], at[e]);
  }
  rows.floats = std::move(floats);
  rows.dense = true;
  free_memory(rows.value);
  free_memory(rows.column);
  rows.row_begin = std::vector<std::size_t>{0};
}

void column_offsets::write(model_writer& to) const {
  if (!empty()) to.add("offset", offset_);
}

void column_offsets::read(const model_reader& from, std::size_t columns, const std::string& where) {
  if (!from.has("offset")) return;
  offset_ = from.read<double>("offset");
  if (offset_.size() != columns)
    throw data_error(where + ": found " + std::to_string(offset_.size()) + " offsets of columns, want " +
                     std::to_string(columns));
}

}  // namespace paracel::alg
