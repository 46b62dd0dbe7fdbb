// SPDX-License-Identifier: BSD-3-Clause
#include "block_krylov.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <paracel/random.hpp>

namespace paracel::alg {

namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr std::uint64_t start_stream = 6;
// A column smaller than A by this factor is rounding error.
constexpr double nothing = 1e-14;
// For unit columns: a smaller eigenvalue of their Gram matrix is rounding error.
constexpr double dependent = 1e-14;
constexpr int passes = 3;

void sum_matrix(product_operator& a, MatrixXd& m) { a.sum(std::span(m.data(), static_cast<std::size_t>(m.size()))); }

/// One side of the decomposition.
struct side {
  MatrixXd basis;
  Index used = 0;

  auto columns() { return basis.leftCols(used); }
};

/// basis' x over all workers.
MatrixXd inner(product_operator& a, const Eigen::Ref<const MatrixXd>& basis, const MatrixXd& x) {
  MatrixXd c = basis.transpose() * x;
  sum_matrix(a, c);
  return c;
}

/// Makes x orthogonal to the basis and its columns orthonormal, dropping dependent columns: fewer may remain.
/// `scale`: the size of A.
void orthonormalise(product_operator& a, side& against, MatrixXd& x, double scale) {
  for (int pass = 0; pass < passes && x.cols() > 0; ++pass) {
    // Project in each pass: the remainder of a column that is nearly in the basis is inexact after the first one.
    if (against.used > 0) {
      const MatrixXd c = inner(a, against.columns(), x);
      x.noalias() -= against.columns() * c;
    }
    MatrixXd gram = x.transpose() * x;
    sum_matrix(a, gram);
    VectorXd norm = gram.diagonal().cwiseMax(0).cwiseSqrt();
    // Normalised first, so that small columns count as much as large ones.
    std::vector<Index> kept;
    const double least = pass == 0 ? nothing * scale : 1e-3;
    for (Index j = 0; j < x.cols(); ++j) {
      if (norm[j] > least) kept.push_back(j);
    }
    const auto count = static_cast<Index>(kept.size());
    MatrixXd scaled(count, count);
    for (Index i = 0; i < count; ++i) {
      for (Index j = 0; j < count; ++j) {
        const auto p = kept[static_cast<std::size_t>(i)];
        const auto q = kept[static_cast<std::size_t>(j)];
        scaled(i, j) = gram(p, q) / (norm[p] * norm[q]);
      }
    }
    if (count == 0) {
      x.resize(x.rows(), 0);
      return;
    }
    const Eigen::SelfAdjointEigenSolver<MatrixXd> eigen(scaled);
    const double smallest = (pass == 0 ? dependent : 1e-6) * static_cast<double>(count);
    Index first = 0;
    while (first < count && eigen.eigenvalues()[first] <= smallest) ++first;
    MatrixXd change = MatrixXd::Zero(x.cols(), count - first);
    for (Index j = first; j < count; ++j) {
      // In descending order.
      const Index to = count - 1 - j;
      const double by = 1 / std::sqrt(eigen.eigenvalues()[j]);
      for (Index i = 0; i < count; ++i) {
        const auto p = kept[static_cast<std::size_t>(i)];
        change(p, to) = eigen.eigenvectors()(i, j) * by / norm[p];
      }
    }
    x = (x * change).eval();
  }
}

void append(side& to, const MatrixXd& x) {
  to.basis.middleCols(to.used, x.cols()) = x;
  to.used += x.cols();
}

MatrixXd product(product_operator& a, const Eigen::Ref<const MatrixXd>& v) {
  tall_block u;
  a.times(v, u);
  return u;
}
MatrixXd transposed_product(product_operator& a, const Eigen::Ref<const MatrixXd>& u) {
  tall_block v;
  a.transposed_times(u, v);
  return v;
}

double greatest_column(product_operator& a, const MatrixXd& x) {
  std::vector<double> squares(static_cast<std::size_t>(x.cols()));
  for (Index j = 0; j < x.cols(); ++j) squares[static_cast<std::size_t>(j)] = x.col(j).squaredNorm();
  a.sum(squares);
  double most = 0;
  for (const double s : squares) most = std::max(most, std::sqrt(s));
  return most;
}

/// Norms of the columns over all workers.
std::vector<double> norms(product_operator& a, const MatrixXd& x) {
  std::vector<double> squares(static_cast<std::size_t>(x.cols()));
  for (Index j = 0; j < x.cols(); ++j) squares[static_cast<std::size_t>(j)] = x.col(j).squaredNorm();
  a.sum(squares);
  for (auto& s : squares) s = std::sqrt(s);
  return squares;
}

/// Applies the sign rule. Entries whose absolute values differ only by rounding count as equal.
void fix_signs(product_operator& a, singular_triplets& t) {
  const auto count = static_cast<std::size_t>(t.u.cols());
  std::vector<double> largest(count);
  for (std::size_t j = 0; j < count; ++j) {
    if (t.u.rows() > 0) largest[j] = t.u.col(static_cast<Index>(j)).cwiseAbs().maxCoeff();
  }
  a.largest(largest);
  constexpr double none = -std::numeric_limits<double>::infinity();
  std::vector<double> first(count, none);  // the negated number of the first row with the largest entry
  std::vector<double> sign(count);
  for (std::size_t j = 0; j < count; ++j) {
    const auto column = t.u.col(static_cast<Index>(j));
    for (Index i = 0; i < column.size(); ++i) {
      if (std::abs(column[i]) < largest[j] * (1 - 1e-9)) continue;
      first[j] = -static_cast<double>(a.first_row() + static_cast<std::uint64_t>(i));
      sign[j] = column[i] < 0 ? -1 : 1;
      break;
    }
  }
  auto all = first;
  a.largest(all);
  for (std::size_t j = 0; j < count; ++j) {
    if (first[j] != all[j] || first[j] == none) sign[j] = 0;
  }
  a.sum(sign);
  for (std::size_t j = 0; j < count; ++j) {
    if (sign[j] >= 0) continue;
    t.u.col(static_cast<Index>(j)) *= -1;
    t.v.col(static_cast<Index>(j)) *= -1;
  }
}

}  // namespace

singular_triplets block_krylov(product_operator& a, const krylov_options& options) {
  const auto rows = static_cast<Index>(a.rows());
  const auto columns = static_cast<Index>(a.columns());
  std::vector<double> totals{static_cast<double>(rows), static_cast<double>(columns)};
  a.sum(totals);
  const auto limit = static_cast<Index>(std::min(totals[0], totals[1]));  // upper limit of the number of triplets
  const auto k = std::min(static_cast<Index>(options.k), limit);
  const Index block = std::min<Index>(k + 2, limit);
  const Index most = std::max<Index>(static_cast<Index>(options.basis == 0 ? 5 * block : options.basis), 3 * block);
  singular_triplets result;
  result.u.resize(rows, 0);
  result.v.resize(columns, 0);
  if (k == 0) {
    result.converged = true;
    return result;
  }

  side left{MatrixXd(rows, most), 0};
  side right{MatrixXd(columns, most), 0};
  MatrixXd b = MatrixXd::Zero(most, most);
  MatrixXd next(columns, block);
  for (Index i = 0; i < columns; ++i) {
    counter_random random(options.seed, start_stream, a.first_column() + static_cast<std::uint64_t>(i));
    for (Index j = 0; j < block; ++j) next(i, j) = random.normal();
  }
  orthonormalise(a, right, next, greatest_column(a, next));

  double scale = 0;
  MatrixXd p;
  MatrixXd q;
  VectorXd sigma;
  bool settled = false;  // whether the bases hold the triplets themselves
  const auto settle = [&](Index count) {
    left.basis.leftCols(count) = (left.columns() * p.leftCols(count)).eval();
    right.basis.leftCols(count) = (right.columns() * q.leftCols(count)).eval();
    left.used = right.used = count;
    settled = true;
  };
  while (result.steps < options.steps && next.cols() > 0) {
    ++result.steps;
    settled = false;
    const Index from = right.used;
    append(right, next);
    const MatrixXd z = product(a, next);
    scale = std::max(scale, greatest_column(a, z));
    MatrixXd fresh = z;
    orthonormalise(a, left, fresh, scale);
    const Index old = left.used;
    append(left, fresh);
    if (left.used == 0) {  // A is 0, as far as random columns show
      result.converged = true;
      return result;
    }
    b.block(0, from, left.used, next.cols()) = inner(a, left.columns(), z);

    const MatrixXd w = transposed_product(a, fresh);
    next = w;
    scale = std::max(scale, greatest_column(a, w));
    orthonormalise(a, right, next, scale);
    const MatrixXd rest =
        next.cols() == 0 || fresh.cols() == 0 ? MatrixXd::Zero(next.cols(), fresh.cols()) : inner(a, next, w);

    const Eigen::BDCSVD<MatrixXd> small(b.topLeftCorner(left.used, right.used),
                                        Eigen::ComputeThinU | Eigen::ComputeThinV);
    sigma = small.singularValues();
    p = small.matrixU();
    q = small.matrixV();
    const Index found = sigma.size();
    const double top = found > 0 ? sigma[0] : 0;
    std::size_t good = 0;
    double worst = 0;
    for (Index j = 0; j < std::min(k, found); ++j) {
      const double r = fresh.cols() == 0 ? 0.0 : (rest * p.col(j).segment(old, fresh.cols())).norm();
      worst = std::max(worst, r);
      if (r <= options.tolerance * top) ++good;
    }
    if (options.progress) options.progress(result.steps, good, top > 0 ? worst / top : 0);
    // Nothing new, or all wanted triplets have converged; with half the tolerance, because the sums below have rounding
    // errors, too.
    const bool ends = next.cols() == 0 || (found >= k && worst <= options.tolerance / 2 * top);
    if (!ends && right.used + next.cols() <= most) continue;
    settle(std::min(found, ends ? k : 2 * block));
    if (ends) break;
    b.setZero();
    b.diagonal().head(left.used) = sigma.head(left.used);
  }
  if (!settled) settle(std::min(k, sigma.size()));  // the step limit was reached in the middle of a cycle

  // Singular values within rounding error of 0 have no vectors.
  Index rank = 0;
  const double floor = sigma.size() == 0 ? 0 : sigma[0] * 1e-14 * std::max(totals[0], totals[1]);
  while (rank < std::min(left.used, k) && sigma[rank] > floor) ++rank;
  result.u = left.basis.leftCols(rank);
  result.v = right.basis.leftCols(rank);
  result.sigma.assign(sigma.data(), sigma.data() + rank);
  if (rank > 0) {
    const MatrixXd d = sigma.head(rank).asDiagonal();
    const auto forward = norms(a, product(a, result.v) - result.u * d);
    const auto backward = norms(a, transposed_product(a, result.u) - result.v * d);
    for (std::size_t j = 0; j < forward.size(); ++j) result.residual.push_back(std::max(forward[j], backward[j]));
  }
  result.converged = std::all_of(result.residual.begin(), result.residual.end(),
                                 [&](double r) { return r <= options.tolerance * result.sigma[0]; });
  fix_signs(a, result);
  return result;
}

}  // namespace paracel::alg
