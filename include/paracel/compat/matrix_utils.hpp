// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel 0.3's helpers of utils.hpp for Eigen's matrices and vectors; empty if Eigen is not installed, as for a
// plug-in that includes utils.hpp for its string functions.
#pragma once

#if __has_include(<Eigen/Sparse>)
#include <Eigen/Dense>
#include <Eigen/Sparse>
#elif __has_include(<eigen3/Eigen/Sparse>)
#include <eigen3/Eigen/Dense>
#include <eigen3/Eigen/Sparse>
#endif

#ifdef EIGEN_WORLD_VERSION

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <paracel/error.hpp>

namespace paracel {

/// func(row, column, value) for every entry; a func that takes a double& may change it.
template <class F>
void traverse_matrix(Eigen::SparseMatrix<double, Eigen::RowMajor>& m, F&& func) {
  for (Eigen::Index k = 0; k < m.outerSize(); ++k) {
    for (Eigen::SparseMatrix<double, Eigen::RowMajor>::InnerIterator it(m, k); it; ++it)
      func(it.row(), it.col(), it.valueRef());
  }
}
template <class F>
void traverse_matrix(const Eigen::SparseMatrix<double, Eigen::RowMajor>& m, F&& func) {
  for (Eigen::Index k = 0; k < m.outerSize(); ++k) {
    for (Eigen::SparseMatrix<double, Eigen::RowMajor>::InnerIterator it(m, k); it; ++it)
      func(it.row(), it.col(), it.value());
  }
}
/// func(index, value) for every entry.
template <class F>
void traverse_vector(Eigen::SparseVector<double>& v, F&& func) {
  for (Eigen::SparseVector<double>::InnerIterator it(v); it; ++it) func(it.index(), it.value());
}

inline Eigen::VectorXd vec2evec(const std::vector<double>& v) {
  return Eigen::VectorXd::Map(v.data(), static_cast<Eigen::Index>(v.size()));
}
inline std::vector<double> evec2vec(const Eigen::VectorXd& v) { return {v.data(), v.data() + v.size()}; }

/// Column by column.
inline std::vector<double> mat2vec(const Eigen::MatrixXd& m) { return {m.data(), m.data() + m.size()}; }
/// A matrix of `columns` columns from its columns, concatenated.
/// Throws: error when they differ in length.
inline Eigen::MatrixXd vec2mat(const std::vector<double>& v, std::size_t columns) {
  if (columns == 0 ? !v.empty() : v.size() % columns != 0)
    throw error("vec2mat: " + std::to_string(v.size()) + " numbers do not make " + std::to_string(columns) +
                " columns");
  return Eigen::MatrixXd::Map(v.data(), static_cast<Eigen::Index>(columns == 0 ? 0 : v.size() / columns),
                              static_cast<Eigen::Index>(columns));
}
/// Entries ((row, column), value), row by row.
inline std::vector<std::pair<std::pair<int, int>, double>> mat2vec(
    const Eigen::SparseMatrix<double, Eigen::RowMajor>& m) {
  std::vector<std::pair<std::pair<int, int>, double>> entries;
  entries.reserve(static_cast<std::size_t>(m.nonZeros()));
  traverse_matrix(m, [&](auto row, auto column, double value) {
    entries.push_back({{static_cast<int>(row), static_cast<int>(column)}, value});
  });
  return entries;
}
/// The smallest matrix that has these entries; duplicates are summed.
inline Eigen::SparseMatrix<double, Eigen::RowMajor> vec2mat(
    const std::vector<std::pair<std::pair<int, int>, double>>& entries) {
  std::vector<Eigen::Triplet<double>> triplets;
  triplets.reserve(entries.size());
  int rows = 0;
  int columns = 0;
  for (const auto& [place, value] : entries) {
    triplets.emplace_back(place.first, place.second, value);
    rows = std::max(rows, place.first + 1);
    columns = std::max(columns, place.second + 1);
  }
  Eigen::SparseMatrix<double, Eigen::RowMajor> m(rows, columns);
  m.setFromTriplets(triplets.begin(), triplets.end());
  return m;
}

}  // namespace paracel

#endif
