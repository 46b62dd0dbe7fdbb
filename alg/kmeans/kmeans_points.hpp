// SPDX-License-Identifier: BSD-3-Clause
//
// A worker's points: nearest centres, and what a round needs of them. Purely local; for servers and other workers see
// kmeans.hpp.
//
// The nearest centre is the one with the least  sum_j (x_j - c_j)^2  as computed by these additions, ties by number. It
// is found by  |c|^2 - 2 x.c  for all centres at once, and by the formula itself where two of these values are within
// rounding error. Bounds avoid most of that work once the centres move little.
//
// Source: G. Hamerly, "Making k-means even faster", SDM 2010 (one upper and one lower bound a point).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <paracel/resumable_loop.hpp>
#include <paracel/samples.hpp>

namespace paracel::alg {

/// k centres in d dimensions, in the two layouts that distance computations need.
/// Thread-safety: const-concurrent
class kmeans_centres {
 public:
  kmeans_centres() = default;
  /// `rows`: k * d numbers, one centre a row.
  kmeans_centres(std::vector<double> rows, std::size_t d);

  [[nodiscard]] std::size_t size() const noexcept { return norm_.size(); }
  [[nodiscard]] std::size_t dimension() const noexcept { return d_; }
  [[nodiscard]] const std::vector<double>& rows() const noexcept { return rows_; }
  [[nodiscard]] std::span<const double> row(std::size_t c) const { return std::span(rows_).subspan(c * d_, d_); }
  /// |c|^2
  [[nodiscard]] double norm(std::size_t c) const { return norm_[c]; }
  [[nodiscard]] double largest_norm() const noexcept { return largest_norm_; }
  /// Element j of centre c is [j * width() + c]; from size() to width() it is padded with 0.
  [[nodiscard]] const double* columns() const noexcept { return columns_.data(); }
  [[nodiscard]] std::size_t width() const noexcept { return width_; }
  /// For each centre half the distance to the nearest other one. Cost: O(k^2 d)
  [[nodiscard]] std::vector<double> half_gaps() const;

 private:
  std::size_t d_ = 0;
  std::size_t width_ = 0;
  std::vector<double> rows_;
  std::vector<double> columns_;
  std::vector<double> norm_;
  double largest_norm_ = 0;
};

/// Sums over the points in a round: what the workers exchange.
struct kmeans_sums {
  kmeans_sums() = default;
  kmeans_sums(std::size_t k, std::size_t dimension) : d(dimension), values(k * dimension + k + 2) {}
  [[nodiscard]] std::size_t size() const noexcept { return (values.size() - 2) / (d + 1); }
  [[nodiscard]] std::span<double> sum(std::size_t c) { return std::span(values).subspan(c * d, d); }
  [[nodiscard]] double& count(std::size_t c) { return values[size() * d + c]; }
  [[nodiscard]] double& inertia() { return values[values.size() - 2]; }
  [[nodiscard]] double& changed() { return values.back(); }

  std::size_t d = 0;
  /// k * d weighted sums of points, k sums of their weights, the inertia, the number of points of a weight above 0
  /// whose centre has changed.
  std::vector<double> values;
};

/// A point that is far from its centre.
struct kmeans_far_point {
  double distance = 0;  ///< squared
  double weight = 0;
  std::uint64_t row = 0;  ///< global row
  std::uint32_t centre = 0;
};

class kmeans_points {
 public:
  kmeans_points() = default;
  /// `cosine`: rows are divided by their length (a zero row is unchanged). Rows may have weights.
  kmeans_points(sample_rows rows, bool cosine);

  [[nodiscard]] std::size_t rows() const noexcept { return rows_.rows(); }
  [[nodiscard]] std::size_t dimension() const noexcept { return rows_.columns; }
  [[nodiscard]] std::uint64_t first_row() const noexcept { return rows_.first_row; }
  [[nodiscard]] double weight(std::size_t i) const noexcept { return rows_.weight.empty() ? 1 : rows_.weight[i]; }
  /// to += times * x_i
  void add(std::size_t i, double times, std::span<double> to) const;
  /// Row i, as a dense vector.
  [[nodiscard]] std::vector<double> point(std::size_t i) const;

  /// sum_j (x_ij - c_j)^2. Cost: O(d), also for sparse rows.
  [[nodiscard]] double distance(std::size_t i, std::span<const double> centre) const;

  /// For each of `which` the nearest centre, the squared distance to it, and a lower bound of the squared distances to
  /// all others. The spans have as many elements as `which`.
  void nearest(const kmeans_centres& centres, std::span<const std::size_t> which, std::span<std::uint32_t> best,
               std::span<double> best_distance, std::span<double> second_distance) const;

  /// Assigns every row to its nearest centre and accumulates the sums. After `restart` nothing of earlier centres is
  /// used; otherwise `moved` says how far each centre has moved since the last call.
  void assign(const kmeans_centres& centres, std::span<const double> moved, kmeans_sums& sums);
  void restart() { assigned_ = false; }
  /// Adds to `loop` the state that `assign` carries over from earlier centres.
  void keep(resumable_loop& loop) {
    loop.keep("assignment", assignment_).keep("lower", lower_).keep("assigned", assigned_);
  }
  [[nodiscard]] const std::vector<std::uint32_t>& assignment() const noexcept { return assignment_; }
  /// Squared distances to the assigned centres, as of the last `assign`.
  [[nodiscard]] const std::vector<double>& distances() const noexcept { return distance_; }
  /// The `count` rows of a weight above 0 that are farthest from their centres, farthest first, ties by row.
  [[nodiscard]] std::vector<kmeans_far_point> farthest(std::size_t count) const;
  /// Moves row i to a centre that was empty.
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
  std::vector<double> lower_;  // a lower bound of the distance to all centres but the assigned one
  bool assigned_ = false;
};

/// The new centres: means of the assigned points, of length 1 with `cosine`. A centre without points stays where it is.
std::vector<double> kmeans_means(const kmeans_centres& old, kmeans_sums& sums, bool cosine);

/// Selects k of the points (n points of d numbers, weights > 0): weighted k-means++ with the best of a few draws for
/// each centre, then Lloyd's algorithm. Used for the candidates of k-means||; the same result on every worker. Returns
/// k * d numbers.
/// Source: D. Arthur, S. Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007.
std::vector<double> kmeans_reduce(const std::vector<double>& points, std::size_t d, std::span<const double> weight,
                                  std::size_t k, std::uint64_t seed);

}  // namespace paracel::alg
