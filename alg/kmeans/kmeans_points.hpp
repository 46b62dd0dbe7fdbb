// SPDX-License-Identifier: BSD-3-Clause
//
// A worker's points of k-means: which centre is the nearest, and what a round needs to know of it. No server and no
// other worker: see kmeans.hpp for those.
//
// The nearest centre is the one with the least  sum_j (x_j - c_j)^2  as these additions give it, of equal ones that
// with the least number. It is found by  |c|^2 - 2 x.c  for all centres at once, and where two of these are so close
// that rounding may have turned them, by the formula itself. Bounds spare most of it once the centres move little.
//
// Source: G. Hamerly, "Making k-means even faster", SDM 2010 (one upper and one lower bound a point).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <paracel/samples.hpp>

namespace paracel::alg {

/// k centres in d dimensions, in the two layouts that the distances need.
/// Thread-safety: const-concurrent
class kmeans_centres {
 public:
  kmeans_centres() = default;
  /// `rows`: k * d numbers, a centre a row.
  kmeans_centres(std::vector<double> rows, std::size_t d);

  [[nodiscard]] std::size_t size() const noexcept { return norm_.size(); }
  [[nodiscard]] std::size_t dimension() const noexcept { return d_; }
  [[nodiscard]] const std::vector<double>& rows() const noexcept { return rows_; }
  [[nodiscard]] std::span<const double> row(std::size_t c) const { return std::span(rows_).subspan(c * d_, d_); }
  /// |c|^2
  [[nodiscard]] double norm(std::size_t c) const { return norm_[c]; }
  [[nodiscard]] double largest_norm() const noexcept { return largest_norm_; }
  /// Element j of centre c is [j * width() + c]; from size() to width() it is 0.
  [[nodiscard]] const double* columns() const noexcept { return columns_.data(); }
  [[nodiscard]] std::size_t width() const noexcept { return width_; }
  /// For each centre half of the distance to the nearest other one. Cost: O(k^2 d)
  [[nodiscard]] std::vector<double> half_gaps() const;

 private:
  std::size_t d_ = 0;
  std::size_t width_ = 0;
  std::vector<double> rows_;
  std::vector<double> columns_;
  std::vector<double> norm_;
  double largest_norm_ = 0;
};

/// What the points of a round add up to: the numbers that travel.
struct kmeans_sums {
  kmeans_sums() = default;
  kmeans_sums(std::size_t k, std::size_t dimension) : d(dimension), values(k * dimension + k + 2) {}
  [[nodiscard]] std::size_t size() const noexcept { return (values.size() - 2) / (d + 1); }
  [[nodiscard]] std::span<double> sum(std::size_t c) { return std::span(values).subspan(c * d, d); }
  [[nodiscard]] double& count(std::size_t c) { return values[size() * d + c]; }
  [[nodiscard]] double& inertia() { return values[values.size() - 2]; }
  [[nodiscard]] double& changed() { return values.back(); }

  std::size_t d = 0;
  std::vector<double>
      values;  ///< k * d sums of points, k counts, the inertia, points whose centre is another than before
};

/// Points that lie far from their centres.
struct kmeans_far_point {
  double distance = 0;    ///< squared
  std::uint64_t row = 0;  ///< among the rows of all workers
  std::uint32_t centre = 0;
};

class kmeans_points {
 public:
  kmeans_points() = default;
  /// `cosine`: rows are divided by their length (a row of zeros stays).
  kmeans_points(sample_rows rows, bool cosine);

  [[nodiscard]] std::size_t rows() const noexcept { return rows_.rows(); }
  [[nodiscard]] std::size_t dimension() const noexcept { return rows_.columns; }
  [[nodiscard]] std::uint64_t first_row() const noexcept { return rows_.first_row; }
  /// to += times * x_i
  void add(std::size_t i, double times, std::span<double> to) const;
  /// Row i, with its zeros.
  [[nodiscard]] std::vector<double> point(std::size_t i) const;

  /// sum_j (x_ij - c_j)^2. Cost: O(d), also for sparse rows.
  [[nodiscard]] double distance(std::size_t i, std::span<const double> centre) const;

  /// For each of `which` the nearest centre, the squared distance to it, and a squared distance that none of the others
  /// is below. The spans have as many elements as `which`.
  void nearest(const kmeans_centres& centres, std::span<const std::size_t> which, std::span<std::uint32_t> best,
               std::span<double> best_distance, std::span<double> second_distance) const;

  /// Assigns every row to its nearest centre and adds up. After `restart` nothing of earlier centres is used; otherwise
  /// `moved` says how far each centre has moved since the last call.
  void assign(const kmeans_centres& centres, std::span<const double> moved, kmeans_sums& sums);
  void restart() { assigned_ = false; }
  [[nodiscard]] const std::vector<std::uint32_t>& assignment() const noexcept { return assignment_; }
  /// A squared distance below this part of |x|^2 may be rounding: of dense points the mean's, of sparse ones that of
  /// |x|^2 - 2xc + |c|^2 too.
  [[nodiscard]] double least_distance() const noexcept { return rows_.dense ? 1e-20 : 1e-12; }
  /// Squared distances to the assigned centres, as of the last `assign`.
  [[nodiscard]] const std::vector<double>& distances() const noexcept { return distance_; }
  /// The `count` rows that are farthest from their centres, the farthest first, of equal ones the first row first.
  [[nodiscard]] std::vector<kmeans_far_point> farthest(std::size_t count) const;
  /// Row i belongs to that centre now: what an empty one has taken.
  void reassign(std::size_t i, std::uint32_t centre) {
    assignment_[i] = centre;
    lower_[i] = 0;
  }

 private:
  [[nodiscard]] double own_distance(const kmeans_centres& centres, std::size_t i, std::uint32_t c) const;
  void products(const kmeans_centres& centres, std::span<const std::size_t> which, std::vector<double>& block,
                std::vector<double>& out) const;

  sample_rows rows_;
  std::vector<double> norm_;  // |x_i|^2
  std::vector<std::uint32_t> assignment_;
  std::vector<double> distance_;
  std::vector<double> lower_;  // no other centre than the assigned one is nearer than that
  bool assigned_ = false;
};

/// The new centres: means of what is assigned, of length 1 with `cosine`. A centre without points stays where it is.
std::vector<double> kmeans_means(const kmeans_centres& old, kmeans_sums& sums, bool cosine);

/// k of the points (n of d numbers, weights > 0): weighted k-means++ with the best of a few draws for each centre, then
/// Lloyd's rounds. For the candidates of k-means||; the same on every worker. Returns k * d numbers.
/// Source: D. Arthur, S. Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007.
std::vector<double> kmeans_reduce(const std::vector<double>& points, std::size_t d, std::span<const double> weight,
                                  std::size_t k, std::uint64_t seed);

}  // namespace paracel::alg
