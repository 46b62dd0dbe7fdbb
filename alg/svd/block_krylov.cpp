// SPDX-License-Identifier: BSD-3-Clause
#include "block_krylov.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include <paracel/error.hpp>
#include <paracel/random.hpp>
#include <paracel/resumable_loop.hpp>

namespace paracel::alg {

namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr std::uint64_t start_stream = 6;
// A column smaller than A by this factor is rounding error.
constexpr double nothing = 1e-14;
// For unit columns: a smaller eigenvalue of their Gram matrix is rounding error, but not its vector.
constexpr double dependent = 1e-14;
constexpr int passes = 3;
// After the second pass, columns with Gram eigenvalues in [1 - x, 1 + x] that had products up to x with the basis are
// orthonormal to rounding: twice is enough (Kahan), unless something cancelled.
constexpr double nearly_done = 1e-2;
// Squares of singular values are known to 1e-16 of the greatest: below this, too few digits of a value remain.
constexpr double least_square = 1e-10;
// Steps after which a small value is one of A rather than of the first random block.
constexpr int settled_steps = 3;
// How often it is asked whether the residual falls fast enough for the steps that are left. If not, and without a given
// size, the basis doubles, up to so many times its first one and so many numbers of a worker (1 GB).
constexpr int looks = 8;
constexpr Index growth = 4;
constexpr double greatest_entries = 0x1p27;

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

void append(side& to, const MatrixXd& x) {
  to.basis.middleCols(to.used, x.cols()) = x;
  to.used += x.cols();
}

/// Makes x orthogonal to the basis and its columns orthonormal, dropping dependent columns: fewer may remain.
/// `scale`: the size of A. `inside`: receives the coefficients of x in the basis.
///
/// The Gram matrix resolves no combination of the columns that is shorter than 1e-7: these are made orthonormal after
/// the others, with which they then have no part in common. Otherwise triplets below 1e-7 of the greatest would be
/// lost.
void orthonormalise(product_operator& a, side& against, MatrixXd& x, double scale, MatrixXd* inside = nullptr) {
  MatrixXd rest(x.rows(), 0);
  for (int pass = 0; pass < passes && x.cols() > 0; ++pass) {
    // Project in each pass: the remainder of a column that is nearly in the basis is inexact after the first one.
    double touching = 0;
    if (against.used > 0) {
      const MatrixXd c = inner(a, against.columns(), x);
      x.noalias() -= against.columns() * c;
      touching = c.size() == 0 ? 0 : c.cwiseAbs().maxCoeff();
      if (pass == 0 && inside != nullptr) *inside = c;
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
    if (pass == 0 && first > 0) {
      // With coefficients of length 1 the columns keep the rounding errors of x, which are relative to `scale`.
      MatrixXd dropped = MatrixXd::Zero(x.cols(), first);
      for (Index i = 0; i < count; ++i) {
        const auto p = kept[static_cast<std::size_t>(i)];
        dropped.row(p) = eigen.eigenvectors().row(i).head(first) / norm[p];
      }
      rest = x * dropped.colwise().normalized();
    }
    x = (x * change).eval();
    if (pass > 0 && touching <= nearly_done && first == 0 && count == gram.cols() &&
        eigen.eigenvalues()[0] >= 1 - nearly_done && (norm.array() - 1).abs().maxCoeff() <= nearly_done)
      break;
  }
  if (rest.cols() == 0) return;
  side both{MatrixXd(x.rows(), against.used + x.cols()), 0};
  append(both, against.columns());
  append(both, x);
  orthonormalise(a, both, rest, scale);
  const Index before = x.cols();
  x.conservativeResize(x.rows(), before + rest.cols());
  x.rightCols(rest.cols()) = rest;
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

MatrixXd gram_product(product_operator& a, const Eigen::Ref<const MatrixXd>& v) {
  tall_block w;
  a.gram_times(v, w);
  return w;
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

/// Sizes of the iteration.
struct extent {
  double rows = 0;  // of A, as `columns`
  double columns = 0;
  Index k = 0;      // triplets
  Index block = 0;  // columns

  /// Columns of a basis: `blocks` blocks, unless the options set another number.
  [[nodiscard]] Index basis(const krylov_options& options, Index blocks) const {
    return std::max<Index>(options.basis == 0 ? blocks * block : static_cast<Index>(options.basis), 3 * block);
  }
  /// The most columns that the basis of right vectors may grow to.
  [[nodiscard]] Index greatest_basis(product_operator& a, const krylov_options& options, Index blocks) const {
    const Index least = basis(options, blocks);
    if (options.basis != 0) return least;
    auto own = static_cast<double>(a.columns());
    a.largest(std::span(&own, 1));
    const auto held = static_cast<Index>(std::min(greatest_entries / std::max(own, 1.0), 1e6));
    return std::max(least, std::min({growth * least, static_cast<Index>(columns), held}));
  }
};

extent extent_of(product_operator& a, const krylov_options& options) {
  std::vector<double> totals{static_cast<double>(a.rows()), static_cast<double>(a.columns())};
  a.sum(totals);
  const auto limit = static_cast<Index>(std::min(totals[0], totals[1]));  // upper limit of the number of triplets
  const auto k = std::min(static_cast<Index>(options.k), limit);
  return {totals[0], totals[1], k, std::min<Index>(k + 2, limit)};
}

MatrixXd first_block(product_operator& a, const krylov_options& options, Index block) {
  MatrixXd x(static_cast<Index>(a.columns()), block);
  for (Index i = 0; i < x.rows(); ++i) {
    counter_random random(options.seed, start_stream, a.first_column() + static_cast<std::uint64_t>(i));
    for (Index j = 0; j < block; ++j) x(i, j) = random.normal();
  }
  side nothing_else{MatrixXd(x.rows(), 0), 0};
  orthonormalise(a, nothing_else, x, greatest_column(a, x));
  return x;
}

/// Residuals, rank and signs of triplets of which `av` is A v.
singular_triplets finish(product_operator& a, const krylov_options& options, const extent& e, const VectorXd& sigma,
                         MatrixXd u, MatrixXd v, const MatrixXd& av, int steps) {
  singular_triplets t;
  t.steps = steps;
  // Singular values within rounding error of 0 have no vectors.
  Index rank = 0;
  const double floor = sigma.size() == 0 ? 0 : sigma[0] * 1e-14 * std::max(e.rows, e.columns);
  while (rank < std::min(u.cols(), e.k) && sigma[rank] > floor) ++rank;
  t.u = u.leftCols(rank);
  t.v = v.leftCols(rank);
  t.sigma.assign(sigma.data(), sigma.data() + rank);
  if (rank > 0) {
    const MatrixXd d = sigma.head(rank).asDiagonal();
    const auto forward = norms(a, av.leftCols(rank) - t.u * d);
    const auto backward = norms(a, transposed_product(a, t.u) - t.v * d);
    for (std::size_t j = 0; j < forward.size(); ++j) t.residual.push_back(std::max(forward[j], backward[j]));
  }
  t.converged =
      std::all_of(t.residual.begin(), t.residual.end(), [&](double r) { return r <= options.tolerance * t.sigma[0]; });
  fix_signs(a, t);
  return t;
}

/// A loop of steps: a resumable one in a job.
class step_loop {
 public:
  explicit step_loop(paralg* job) {
    if (job != nullptr) loop_.emplace(*job);
  }
  template <class T>
  step_loop& keep(const std::string& name, T& variable) {
    if (loop_) loop_->keep(name, variable);
    return *this;
  }
  step_loop& keep(const std::string& name, MatrixXd& m) {
    return keep_as(
        name, [&m]() -> const MatrixXd& { return m; }, [&m](MatrixXd&& found) { m = std::move(found); });
  }
  step_loop& keep(const std::string& name, side& s) {
    return keep_as(
        name, [&s]() -> MatrixXd { return s.columns(); },
        [&s](const MatrixXd& found) {
          s.used = 0;
          s.basis.conservativeResize(found.rows(), std::max(s.basis.cols(), found.cols()));
          append(s, found);
        });
  }
  [[nodiscard]] bool next(int limit) {
    if (loop_) return loop_->next(limit);
    return !stopped_ && done_++ < limit;
  }
  void stop() {
    if (loop_) loop_->stop();
    stopped_ = true;
  }

 private:
  /// Shape of what is saved: rows and columns, then the entries.
  template <class Get, class Set>
  step_loop& keep_as(const std::string& name, Get get, Set set) {
    if (!loop_) return *this;
    loop_->keep_with(
        [name, get](saved_state& to, const std::string& prefix) {
          const MatrixXd& m = get();
          std::vector<double> all{static_cast<double>(m.rows()), static_cast<double>(m.cols())};
          all.insert(all.end(), m.data(), m.data() + m.size());
          to.put(prefix + name, all);
        },
        [name, set](const saved_state& from, const std::string& prefix) {
          std::vector<double> all;
          if (!from.get(prefix + name, all) || all.size() < 2 || static_cast<double>(all.size() - 2) != all[0] * all[1])
            throw error("the checkpoint has no matrix \"" + name + "\" of a singular value decomposition");
          set(MatrixXd(
              Eigen::Map<const MatrixXd>(all.data() + 2, static_cast<Index>(all[0]), static_cast<Index>(all[1]))));
        });
    return *this;
  }

  std::optional<resumable_loop> loop_;
  int done_ = 0;
  bool stopped_ = false;
};

/// Whether a residual that fell from `before` to `now` in some steps will reach `wanted` in those that are left.
bool falls_in_time(double before, double now, double wanted, int steps, int left) {
  return now < before && std::log(now / wanted) * steps <= std::log(before / now) * left;
}

/// An orthonormal basis of the right vectors, by products with A'A. Empty if they have too few digits.
MatrixXd right_vectors(product_operator& a, const krylov_options& options, const extent& e, int& steps) {
  const Index greatest = e.greatest_basis(a, options, 10);
  side right{MatrixXd(static_cast<Index>(a.columns()), e.basis(options, 10)), 0};
  MatrixXd next = first_block(a, options, e.block);
  MatrixXd t = MatrixXd::Zero(right.basis.cols(), right.basis.cols());  // as large as the basis
  MatrixXd q;
  double before = 0;  // the residual at step `since`
  int since = 0;
  double scale = 0;
  bool enough_digits = true;
  step_loop loop(options.job);
  loop.keep("right", right).keep("next", next).keep("t", t).keep("q", q).keep("scale", scale).keep("steps", steps);
  loop.keep("enough_digits", enough_digits).keep("before", before).keep("since", since);
  while (loop.next(options.steps)) {
    ++steps;
    Index most = t.cols();
    if (right.basis.cols() < most) right.basis.conservativeResize(Eigen::NoChange, most);
    const Index from = right.used;
    const Index width = next.cols();
    append(right, next);
    const MatrixXd w = gram_product(a, next);
    next = w;
    scale = std::max(scale, greatest_column(a, w));
    MatrixXd inside;
    orthonormalise(a, right, next, scale, &inside);
    t.block(0, from, right.used, width) = inside;
    t.block(from, 0, width, right.used) = inside.transpose();
    const MatrixXd rest = next.cols() == 0 ? MatrixXd::Zero(0, width) : inner(a, next, w);

    const Eigen::SelfAdjointEigenSolver<MatrixXd> small(t.topLeftCorner(right.used, right.used));
    const VectorXd square = small.eigenvalues().reverse();
    q = small.eigenvectors().rowwise().reverse();
    if (!(square[0] > 0)) {
      enough_digits = false;
      loop.stop();
      continue;
    }
    const double top = std::sqrt(square[0]);
    const Index found = std::min(e.k, right.used);
    std::size_t good = 0;
    double worst = 0;
    for (Index j = 0; j < found; ++j) {
      const double s = std::sqrt(std::max(square[j], least_square * square[0]));
      const double r = (rest * q.col(j).segment(from, width)).norm() / s;
      worst = std::max(worst, r);
      if (r <= options.tolerance * top) ++good;
    }
    if (options.progress) options.progress(steps, good, worst / top);
    // Nothing new, or all wanted triplets have converged; with half the tolerance, because of rounding errors.
    const bool ends = next.cols() == 0 || (found == e.k && worst <= options.tolerance / 2 * top);
    const bool small_values = square[found - 1] <= least_square * square[0];
    enough_digits = !small_values || (!ends && steps < settled_steps);
    if (ends || !enough_digits) {
      loop.stop();
      continue;
    }
    if (right.used + next.cols() <= most) continue;
    const double now = worst / top;
    if (since == 0 || steps - since > options.steps / looks) {
      const bool is_slow =
          since != 0 && !falls_in_time(before, now, options.tolerance / 2, steps - since, options.steps - steps);
      before = now;
      since = steps;
      if (is_slow && most < greatest) {
        most = std::min(2 * most, greatest);
        t.conservativeResizeLike(MatrixXd::Zero(most, most));
        continue;
      }
    }
    const Index kept = std::min(right.used, 2 * e.block);
    right.basis.leftCols(kept) = (right.columns() * q.leftCols(kept)).eval();
    right.used = kept;
    t.setZero();
    t.diagonal().head(kept) = square.head(kept);
    q.setIdentity(kept, kept);
  }
  if (!enough_digits) return {};
  return right.columns() * q.leftCols(std::min(e.k, right.used));
}

/// The triplets in the space of v, whose columns are orthonormal.
singular_triplets triplets_of(product_operator& a, const krylov_options& options, const extent& e, const MatrixXd& v,
                              int steps) {
  const MatrixXd av = product(a, v);
  MatrixXd u = av;
  side nothing_else{MatrixXd(u.rows(), 0), 0};
  orthonormalise(a, nothing_else, u, greatest_column(a, av));
  const Eigen::BDCSVD<MatrixXd> small(inner(a, u, av), Eigen::ComputeThinU | Eigen::ComputeThinV);
  return finish(a, options, e, small.singularValues(), u * small.matrixU(), v * small.matrixV(), av * small.matrixV(),
                steps);
}

/// With bases on both sides, for values of all magnitudes. `steps`: already done.
singular_triplets both_sides(product_operator& a, const krylov_options& options, const extent& e, int steps) {
  const Index most = e.basis(options, 5);
  side left{MatrixXd(static_cast<Index>(a.rows()), most), 0};
  side right{MatrixXd(static_cast<Index>(a.columns()), most), 0};
  MatrixXd b = MatrixXd::Zero(most, most);
  MatrixXd next = first_block(a, options, e.block);

  double scale = 0;
  MatrixXd p;
  MatrixXd q;
  MatrixXd sigma;        // a column
  bool settled = false;  // whether the bases hold the triplets themselves
  const auto settle = [&](Index count) {
    left.basis.leftCols(count) = (left.columns() * p.leftCols(count)).eval();
    right.basis.leftCols(count) = (right.columns() * q.leftCols(count)).eval();
    left.used = right.used = count;
    settled = true;
  };
  const int limit = options.steps - steps;
  step_loop loop(options.job);
  loop.keep("left", left).keep("right", right).keep("b", b).keep("next", next).keep("scale", scale).keep("p", p);
  loop.keep("q", q).keep("sigma", sigma).keep("settled", settled).keep("steps", steps);
  while (loop.next(limit)) {
    ++steps;
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
      loop.stop();
      continue;
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
    const double top = found > 0 ? sigma(0, 0) : 0;
    std::size_t good = 0;
    double worst = 0;
    for (Index j = 0; j < std::min(e.k, found); ++j) {
      const double r = fresh.cols() == 0 ? 0.0 : (rest * p.col(j).segment(old, fresh.cols())).norm();
      worst = std::max(worst, r);
      if (r <= options.tolerance * top) ++good;
    }
    if (options.progress) options.progress(steps, good, top > 0 ? worst / top : 0);
    // Nothing new, or all wanted triplets have converged; with half the tolerance, because the sums below have rounding
    // errors, too.
    const bool ends = next.cols() == 0 || (found >= e.k && worst <= options.tolerance / 2 * top);
    if (!ends && right.used + next.cols() <= most) continue;
    settle(std::min(found, ends ? e.k : 2 * e.block));
    if (ends) {
      loop.stop();
      continue;
    }
    b.setZero();
    b.diagonal().head(left.used) = sigma.col(0).head(left.used);
  }
  if (left.used == 0) {
    singular_triplets none;
    none.u.resize(left.basis.rows(), 0);
    none.v.resize(right.basis.rows(), 0);
    none.steps = steps;
    none.converged = true;
    return none;
  }
  if (!settled) settle(std::min(e.k, sigma.size()));  // the step limit was reached in the middle of a cycle

  const MatrixXd v = right.columns();
  return finish(a, options, e, sigma.col(0), left.columns(), v, product(a, v), steps);
}

}  // namespace

void product_operator::gram_times(const tall_block& v, tall_block& w) {
  tall_block u;
  times(v, u);
  transposed_times(u, w);
}

singular_triplets block_krylov(product_operator& a, const krylov_options& options) {
  const auto e = extent_of(a, options);
  if (e.k == 0) {
    singular_triplets none;
    none.u.resize(static_cast<Index>(a.rows()), 0);
    none.v.resize(static_cast<Index>(a.columns()), 0);
    none.converged = true;
    return none;
  }
  int steps = 0;
  if (const auto v = right_vectors(a, options, e, steps); v.cols() > 0) {
    auto found = triplets_of(a, options, e, v, steps);
    if (found.converged || steps >= options.steps) return found;
  }
  return both_sides(a, options, e, steps);
}

}  // namespace paracel::alg
