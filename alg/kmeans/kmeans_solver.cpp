// SPDX-License-Identifier: BSD-3-Clause
#include "kmeans_solver.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include <paracel/random.hpp>

#include "alg/common/solvers/sum_over_workers.hpp"

namespace paracel::alg {

namespace {

// Streams of random numbers.
constexpr std::uint64_t first_stream = 1;
constexpr std::uint64_t batch_stream = 2;
constexpr std::uint64_t seeding_stream = 16;  // plus the round of k-means||

// k-means||: five rounds, each expected to choose twice as many points as there are centres. Source: Bahmani et al.,
// section 5.
constexpr int seeding_rounds = 5;
constexpr double oversampling = 2;
// Means that differ from centres by this fraction of the greatest one or less are those centres, rounded otherwise.
constexpr double same_centre = 1e-13;
// A centre's weight without one of its points is rounding error if it is below this fraction of the weight.
constexpr double alone = 1e-12;

/// Scales row c of d numbers to length 1; a zero row is unchanged.
void normalise(std::vector<double>& rows, std::size_t d, std::size_t c) {
  const auto row = std::span(rows).subspan(c * d, d);
  double norm = 0;
  for (const auto v : row) norm += v * v;
  if (norm == 0) return;
  for (auto& v : row) v /= std::sqrt(norm);
}

}  // namespace

kmeans_outcome kmeans_solver::best() {
  kmeans_outcome best;
  resumable_loop attempts(job_);
  attempts.keep("centres", best.centres).keep("assignment", best.assignment).keep("counts", best.counts);
  attempts.keep("inertia", best.inertia).keep("rounds", best.rounds).keep("converged", best.converged);
  attempts.keep("seen", best.seen).keep("steps", best.steps);
  const bool continues = !options_.start.empty();
  while (attempts.next(continues ? 1 : options_.n_init)) {
    const auto attempt = static_cast<int>(attempts.iteration());
    seed_ = mix64(options_.seed + static_cast<std::uint64_t>(attempt) * 0x9e3779b97f4a7c15U);
    auto centres = continues ? options_.start : seeds(seed_);
    auto found =
        options_.batch_size == 0 ? lloyd(std::move(centres), attempt) : mini_batches(std::move(centres), attempt);
    if (attempt == 0 || found.inertia < best.inertia) best = std::move(found);
  }
  return best;
}

/// These rows of this worker and of all others, in global order. A collective.
std::vector<double> kmeans_solver::gather_points(const std::vector<std::size_t>& mine) {
  std::vector<double> rows;
  for (const auto i : mine) {
    const auto x = points_.point(i);
    rows.insert(rows.end(), x.begin(), x.end());
  }
  std::vector<double> all;
  for (const auto& part : comm_.allgather(rows)) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// The row of a first point, drawn with a probability proportional to its weight: the least of exponential random
/// numbers, each divided by its row's weight. A function of seed, rows and weights only. A collective.
std::uint64_t kmeans_solver::first_seed(std::uint64_t seed) {
  if (!options_.weighted) return counter_random(seed, first_stream).below(total_);
  std::vector<double> least{std::numeric_limits<double>::infinity(), 0};
  for (std::size_t i = 0; i < points_.rows(); ++i) {
    if (points_.weight(i) == 0) continue;
    counter_random random(seed, first_stream, points_.first_row() + i);
    const double key = -std::log(random.uniform_above_zero()) / points_.weight(i);
    if (key < least[0]) least = {key, static_cast<double>(points_.first_row() + i)};
  }
  const auto all = comm_.allgather(least);
  return static_cast<std::uint64_t>((*std::min_element(all.begin(), all.end()))[1]);
}

/// k-means||: a first point, five rounds in which each point is chosen with a probability proportional to its weight
/// times its squared distance, and a reduction of the chosen points to k centres.
std::vector<double> kmeans_solver::seeds(std::uint64_t seed) {
  const std::size_t n = points_.rows();
  const std::size_t d = points_.dimension();
  const auto wanted = oversampling * static_cast<double>(options_.clusters);
  std::vector<std::size_t> all(n);
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::vector<double> square(n, std::numeric_limits<double>::infinity());
  std::vector<double> new_square(n);
  std::vector<double> ignored(n);
  std::vector<std::uint32_t> nearest(n);
  std::vector<std::uint32_t> new_nearest(n);

  std::vector<std::size_t> taken;
  const std::uint64_t first = first_seed(seed);
  if (first >= points_.first_row() && first - points_.first_row() < n) taken.push_back(first - points_.first_row());
  std::vector<double> candidates;
  for (int round = 0;; ++round) {
    const auto fresh = gather_points(taken);
    const auto before = static_cast<std::uint32_t>(candidates.size() / d);
    double cost = 0;
    if (!fresh.empty()) {
      points_.nearest(kmeans_centres(fresh, d), all, new_nearest, new_square, ignored);
      for (std::size_t i = 0; i < n; ++i) {
        if (new_square[i] >= square[i]) continue;
        square[i] = new_square[i];
        nearest[i] = before + new_nearest[i];
      }
    }
    for (std::size_t i = 0; i < n; ++i) cost += points_.weight(i) * square[i];
    candidates.insert(candidates.end(), fresh.begin(), fresh.end());
    // More rounds, up to twice as many, if the usual five have not found enough.
    const bool enough = candidates.size() / d >= options_.clusters;
    if ((round >= seeding_rounds && enough) || round > 2 * seeding_rounds) break;
    cost = sum_over_workers(comm_, cost);
    if (!(cost > 0)) break;  // every point is a candidate
    taken.clear();
    for (std::size_t i = 0; i < n; ++i) {
      counter_random random(seed, seeding_stream + static_cast<std::uint64_t>(round), points_.first_row() + i);
      if (random.uniform() * cost < wanted * points_.weight(i) * square[i]) taken.push_back(i);
    }
  }

  const std::size_t count = candidates.size() / d;
  if (count <= options_.clusters) {
    // Too few distinct points: duplicate centres stay empty, or are given the farthest points.
    std::vector<double> rows = candidates;
    while (rows.size() < options_.clusters * d)
      rows.insert(rows.end(), candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(d));
    return rows;
  }
  std::vector<double> weight(count);
  for (std::size_t i = 0; i < n; ++i) weight[nearest[i]] += points_.weight(i);
  sum_over_workers(comm_, weight);
  // On one worker, because results may differ in the last digits between processors.
  std::vector<double> rows;
  if (comm_.get_rank() == 0) rows = kmeans_reduce(candidates, d, weight, options_.clusters, seed);
  comm_.bcast(rows);
  for (std::size_t c = 0; options_.cosine && c < options_.clusters; ++c) normalise(rows, d, c);
  return rows;
}

/// One round: every worker assigns its points, and the sums of all workers are added. A collective.
void kmeans_solver::assign(const kmeans_centres& centres, const std::vector<double>& moved) {
  points_.assign(centres, moved, sums_);
  sum_up();
}

/// Adds up the sums of all workers; those of points stay local if `combine` computes the centres from them.
void kmeans_solver::sum_up() {
  const auto own = options_.combine ? options_.clusters * points_.dimension() : 0;
  sum_over_workers(comm_, std::span(sums_.values).subspan(own));
}

std::vector<double> kmeans_solver::next_centres(const kmeans_centres& old) {
  if (!options_.combine) return kmeans_means(old, sums_, options_.cosine);
  const std::size_t d = points_.dimension();
  std::vector<double> rows(old.size() * d);
  for (std::size_t c = 0; c < old.size(); ++c) {
    const auto count = sums_.count(c);
    for (std::size_t j = 0; j < d; ++j) {
      if (count > 0) rows[c * d + j] = sums_.sum(c)[j] / count;
      else if (comm_.get_rank() == 0) rows[c * d + j] = old.row(c)[j];
    }
  }
  rows = options_.combine(std::move(rows));
  for (std::size_t c = 0; options_.cosine && c < options_.clusters; ++c) normalise(rows, d, c);
  return rows;
}

/// Assigns a point to every empty centre: the points farthest from their centres are moved, farthest first. A
/// collective; nothing is sent when no centre is empty.
void kmeans_solver::fill_empty() {
  std::vector<std::uint32_t> empty;
  for (std::size_t c = 0; c < sums_.size(); ++c) {
    if (sums_.count(c) == 0) empty.push_back(static_cast<std::uint32_t>(c));
  }
  if (empty.empty()) return;
  // Some of them may be the only points of their centres and remain there: at most as many as there are centres.
  const auto far = points_.farthest(options_.clusters);
  std::vector<std::vector<double>> mine;
  for (const auto& f : far) {
    auto x = points_.point(f.row - points_.first_row());
    double norm = 0;
    for (const double v : x) norm += v * v;
    // A distance within the rounding error of the centre, a mean of so many points (at most, with weights), counts as
    // 0.
    const double points = options_.weighted ? static_cast<double>(total_) : sums_.count(f.centre);
    const double rounding = std::numeric_limits<double>::epsilon() * points;
    if (f.distance <= rounding * rounding * norm) continue;
    x.push_back(f.distance);
    x.push_back(static_cast<double>(f.row));
    x.push_back(f.centre);
    x.push_back(f.weight);
    mine.push_back(std::move(x));
  }
  std::vector<std::vector<double>> all;
  for (auto& part : comm_.allgather(mine)) {
    for (auto& x : part) all.push_back(std::move(x));
  }
  const std::size_t d = points_.dimension();
  // Ties by row, because the parts are in the order of the rows.
  std::stable_sort(all.begin(), all.end(), [d](const auto& a, const auto& b) { return a[d] > b[d]; });
  std::size_t at = 0;
  for (const auto& x : all) {
    const auto from = static_cast<std::size_t>(x[d + 2]);
    if (at == empty.size()) break;
    const double w = x[d + 3];
    // The only point of its centre: what others add is rounding error.
    if (sums_.count(from) - w <= alone * sums_.count(from)) continue;
    const auto to = empty[at++];
    const auto row = static_cast<std::uint64_t>(x[d + 1]);
    const bool own = row >= points_.first_row() && row - points_.first_row() < points_.rows();
    for (std::size_t j = 0; j < d && (own || !options_.combine); ++j) {
      sums_.sum(from)[j] -= w * x[j];
      sums_.sum(to)[j] += w * x[j];
    }
    sums_.count(from) -= w;
    sums_.count(to) += w;
    sums_.changed() += 1;
    if (own) points_.reassign(row - points_.first_row(), to);
  }
}

kmeans_outcome kmeans_solver::lloyd(std::vector<double> rows, int attempt) {
  const std::size_t d = points_.dimension();
  sums_ = kmeans_sums(options_.clusters, d);
  points_.restart();
  std::vector<double> moved(options_.clusters);
  double last = std::numeric_limits<double>::infinity();
  bool converged = false;
  resumable_loop loop(job_);
  loop.keep("centres", rows).keep("moved", moved).keep("last", last).keep("converged", converged);
  points_.keep(loop);
  while (loop.next(options_.rounds)) {
    const kmeans_centres centres(std::move(rows), d);
    assign(centres, moved);
    fill_empty();
    const double inertia = sums_.inertia();
    if (options_.progress) options_.progress(attempt, static_cast<int>(loop.iteration()) + 1, inertia, sums_.changed());
    if (sums_.changed() == 0) {
      rows = centres.rows();
      converged = true;
      loop.stop();
      continue;
    }
    converged = options_.tolerance > 0 && last - inertia <= options_.tolerance * inertia;
    last = inertia;
    rows = next_centres(centres);
    for (std::size_t c = 0; c < moved.size(); ++c) {
      double square = 0;
      for (std::size_t j = 0; j < d; ++j) {
        const double e = rows[c * d + j] - centres.row(c)[j];
        square += e * e;
      }
      moved[c] = std::sqrt(square) * (1 + 1e-10);
    }
    const double rounding = same_centre * std::sqrt(centres.largest_norm());
    if (loop.iteration() == 0 && !options_.start.empty() &&
        std::ranges::all_of(moved, [&](double m) { return m <= rounding; })) {
      rows = centres.rows();  // the earlier run had converged, and these points are as its points were
      converged = true;
    }
    if (converged) loop.stop();
  }
  return assigned(std::move(rows), static_cast<int>(loop.iteration()), converged);
}

/// A step moves each centre to the mean of all points assigned to it so far, including this step's. Points are drawn
/// uniformly and weighted in the mean.
kmeans_outcome kmeans_solver::mini_batches(std::vector<double> rows, int attempt) {
  const std::size_t d = points_.dimension();
  const std::size_t k = options_.clusters;
  sums_ = kmeans_sums(k, d);
  auto seen = options_.seen;
  seen.resize(k);
  const std::uint64_t size = std::min<std::uint64_t>(options_.batch_size, total_);
  const std::uint64_t steps = (total_ + size - 1) / size;
  double last = std::numeric_limits<double>::infinity();
  std::uint64_t step = options_.steps;
  std::vector<std::size_t> mine;
  std::vector<std::uint32_t> best;
  std::vector<double> square;
  std::vector<double> ignored;
  bool converged = false;
  resumable_loop loop(job_);
  loop.keep("centres", rows).keep("seen", seen).keep("last", last).keep("step", step).keep("converged", converged);
  while (loop.next(options_.rounds)) {
    double inertia = 0;
    for (std::uint64_t s = 0; s < steps; ++s, ++step) {
      // Every worker draws the whole batch and uses its own rows of it.
      counter_random random(seed_, batch_stream, step);
      mine.clear();
      for (std::uint64_t i = 0; i < size; ++i) {
        const std::uint64_t row = random.below(total_);
        if (row >= points_.first_row() && row - points_.first_row() < points_.rows())
          mine.push_back(row - points_.first_row());
      }
      std::sort(mine.begin(), mine.end());
      best.resize(mine.size());
      square.resize(mine.size());
      ignored.resize(mine.size());
      const kmeans_centres centres(rows, d);
      if (!mine.empty()) points_.nearest(centres, mine, best, square, ignored);
      std::fill(sums_.values.begin(), sums_.values.end(), 0.0);
      for (std::size_t i = 0; i < mine.size(); ++i) {
        const double w = points_.weight(mine[i]);
        points_.add(mine[i], w, sums_.sum(best[i]));
        sums_.count(best[i]) += w;
        sums_.inertia() += w * square[i];
      }
      sum_up();
      inertia += sums_.inertia();
      const bool adds = !options_.combine || comm_.get_rank() == 0;  // others only contribute their points
      for (std::size_t c = 0; c < k; ++c) {
        const double count = sums_.count(c);
        seen[c] += count;
        for (std::size_t j = 0; j < d; ++j) {
          double& v = rows[c * d + j];
          const double old = adds ? v : 0;
          v = count == 0 ? old : old + (sums_.sum(c)[j] - count * old) / seen[c];
        }
      }
      if (options_.combine) rows = options_.combine(std::move(rows));
      for (std::size_t c = 0; options_.cosine && c < k; ++c) {
        if (sums_.count(c) > 0) normalise(rows, d, c);
      }
    }
    // Inertia of the drawn points, at the time of their draw, scaled to all points.
    inertia *= static_cast<double>(total_) / static_cast<double>(steps * size);
    if (options_.progress) options_.progress(attempt, static_cast<int>(loop.iteration()) + 1, inertia, std::nullopt);
    converged = options_.tolerance > 0 && std::abs(last - inertia) <= options_.tolerance * inertia;
    last = inertia;
    if (converged) loop.stop();
  }
  auto out = assigned(std::move(rows), static_cast<int>(loop.iteration()), converged);
  out.seen = std::move(seen);
  out.steps = step;
  return out;
}

/// Assigns every point to its nearest centre.
kmeans_outcome kmeans_solver::assigned(std::vector<double> rows, int rounds, bool converged) {
  kmeans_outcome out;
  sums_ = kmeans_sums(options_.clusters, points_.dimension());
  points_.restart();
  assign(kmeans_centres(rows, points_.dimension()), {});
  out.centres = std::move(rows);
  out.assignment = points_.assignment();
  out.inertia = sums_.inertia();
  for (std::size_t c = 0; c < options_.clusters; ++c) out.counts.push_back(sums_.count(c));
  out.rounds = rounds;
  out.converged = converged;
  return out;
}

}  // namespace paracel::alg
