// SPDX-License-Identifier: BSD-3-Clause
//
// k-means of points in memory: seeding, Lloyd's algorithm or mini-batches, over all workers. For methods and sources
// see kmeans.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <paracel/paralg.hpp>

#include "kmeans_points.hpp"

namespace paracel::alg {

struct kmeans_options {
  std::size_t clusters = 1;
  int rounds = 300;
  int n_init = 1;
  std::size_t batch_size = 0;  ///< 0: Lloyd's algorithm
  double tolerance = 0;
  bool cosine = false;
  bool weighted = false;  ///< some worker's points have weights
  std::uint64_t seed = 0;
  /// Of a run that continues an earlier one: its centres, and of its mini-batches the weight of the points that have
  /// moved each centre, and the number of steps.
  std::vector<double> start{};
  std::vector<double> seen{};
  std::uint64_t steps = 0;
  /// Called after each round: run (from 0), round (from 1), inertia, points that changed their centre (not with
  /// mini-batches).
  std::function<void(int, int, double, std::optional<double>)> progress{};
  /// A collective that combines the workers' contributions to the centres, one row a centre, into the new centres;
  /// empty: their sum, by a reduction.
  std::function<std::vector<double>(std::vector<double>)> combine{};
};

struct kmeans_outcome {
  std::vector<double> centres;            ///< one centre a row
  std::vector<std::uint32_t> assignment;  ///< of this worker's points
  std::vector<double> counts;             ///< over all workers: points, or the sums of their weights
  double inertia = 0;
  int rounds = 0;
  bool converged = false;
  std::vector<double> seen;  ///< of mini-batches: as in kmeans_options
  std::uint64_t steps = 0;
};

/// Lifetime: job and points must outlive it. Thread-safety: none. Every public call is a collective.
class kmeans_solver {
 public:
  /// `total`: the number of points of all workers; at least as many as clusters have a weight above 0. `job`: can
  /// resume the solver's loops.
  kmeans_solver(paralg& job, kmeans_points& points, std::uint64_t total, kmeans_options options)
      : job_(job), comm_(job.get_comm()), points_(points), total_(total), options_(std::move(options)) {}

  /// The best of n_init runs, or one from `start`. Cost: see README.md.
  [[nodiscard]] kmeans_outcome best();
  /// Assigns every point to the nearest of these centres.
  [[nodiscard]] kmeans_outcome assigned(std::vector<double> centres, int rounds, bool converged);

 private:
  [[nodiscard]] std::uint64_t first_seed(std::uint64_t seed);
  [[nodiscard]] std::vector<double> seeds(std::uint64_t seed);
  [[nodiscard]] std::vector<double> gather_points(const std::vector<std::size_t>& mine);
  [[nodiscard]] kmeans_outcome lloyd(std::vector<double> centres, int attempt);
  [[nodiscard]] kmeans_outcome mini_batches(std::vector<double> centres, int attempt);
  void assign(const kmeans_centres& centres, const std::vector<double>& moved);
  void sum_up();
  void fill_empty();
  [[nodiscard]] std::vector<double> next_centres(const kmeans_centres& old);

  paralg& job_;
  Comm comm_;
  kmeans_points& points_;
  std::uint64_t total_;
  kmeans_options options_;
  kmeans_sums sums_;
  std::uint64_t seed_ = 0;  // of the attempt
};

}  // namespace paracel::alg
