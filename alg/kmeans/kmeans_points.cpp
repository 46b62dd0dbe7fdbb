// SPDX-License-Identifier: BSD-3-Clause
#include "kmeans_points.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <paracel/random.hpp>

#include "alg/common/solvers/dense_product.hpp"
#include "alg/common/solvers/power_scale.hpp"

namespace paracel::alg {

namespace {

// Rows whose products are computed together: 48 rows of 64 features are 24 kB and fit in the level 1 cache.
constexpr std::size_t batch = 48;
// Rows whose bounds are tested before their distances are computed.
constexpr std::size_t block = 240;
// Two values of |c|^2 - 2 x.c that differ by less than this fraction of |x|^2 + |c|^2 may be in the wrong order: the
// rounding error is at most about d 2^-53 of it.
constexpr double rounding = 1e-13;
// |x|^2 - 2 x.c + |c|^2 below this fraction of |x|^2 + |c|^2 has lost so many digits that the distance is computed from
// the differences instead.
constexpr double cancelled = 1e-5;
// The same as `rounding` for distances computed directly, which are sums of positive numbers only.
constexpr double slack = 1e-10;

double squared_distance(const double* x, const double* c, std::size_t d) {
  double lane[8] = {};
  std::size_t j = 0;
  for (; j + 8 <= d; j += 8) {
    for (std::size_t l = 0; l < 8; ++l) {
      const double e = x[j + l] - c[j + l];
      lane[l] += e * e;
    }
  }
  double sum = 0;
  for (; j < d; ++j) {
    const double e = x[j] - c[j];
    sum += e * e;
  }
  return sum + (((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7])));
}

double squared_norm(std::span<const double> x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return sum;
}

}  // namespace

kmeans_centres::kmeans_centres(std::vector<double> rows, std::size_t d)
    : d_(d), rows_(std::move(rows)), norm_(d == 0 ? 0 : rows_.size() / d) {
  width_ = product_padded(size());
  columns_.assign(d_ * width_, 0.0);
  for (std::size_t c = 0; c < size(); ++c) {
    for (std::size_t j = 0; j < d_; ++j) columns_[j * width_ + c] = rows_[c * d_ + j];
    norm_[c] = squared_norm(row(c));
    largest_norm_ = std::max(largest_norm_, norm_[c]);
  }
}

std::vector<double> kmeans_centres::half_gaps() const {
  std::vector<double> gap(size(), std::numeric_limits<double>::infinity());
  for (std::size_t a = 0; a < size(); ++a) {
    for (std::size_t b = a + 1; b < size(); ++b) {
      const double half = 0.5 * std::sqrt(squared_distance(row(a).data(), row(b).data(), d_));
      gap[a] = std::min(gap[a], half);
      gap[b] = std::min(gap[b], half);
    }
  }
  return gap;
}

kmeans_points::kmeans_points(sample_rows rows, bool cosine) : rows_(std::move(rows)), norm_(rows_.rows()) {
  for (std::size_t i = 0; i < norm_.size(); ++i) {
    const std::size_t begin = rows_.dense ? i * rows_.columns : rows_.row_begin[i];
    const std::size_t end = rows_.dense ? begin + rows_.columns : rows_.row_begin[i + 1];
    const std::span<double> x(rows_.value.data() + begin, end - begin);
    const bool scaled = cosine && scale_to_one(x);
    norm_[i] = squared_norm(x);
    if (!scaled) continue;
    const double length = std::sqrt(norm_[i]);
    for (auto& v : x) v /= length;
    norm_[i] = squared_norm(x);
  }
}

void kmeans_points::add(std::size_t i, double times, std::span<double> to) const {
  if (rows_.dense) {
    const double* x = rows_.value.data() + i * rows_.columns;
    for (std::size_t j = 0; j < rows_.columns; ++j) to[j] += times * x[j];
    return;
  }
  for (std::size_t k = rows_.row_begin[i]; k < rows_.row_begin[i + 1]; ++k)
    to[rows_.column[k]] += times * rows_.value[k];
}

std::vector<double> kmeans_points::point(std::size_t i) const {
  std::vector<double> x(dimension());
  add(i, 1, x);
  return x;
}

double kmeans_points::distance(std::size_t i, std::span<const double> centre) const {
  if (rows_.dense) return squared_distance(rows_.value.data() + i * rows_.columns, centre.data(), rows_.columns);
  return squared_distance(point(i).data(), centre.data(), centre.size());
}

/// As `distance`, to a relative error of 1e-10, but O(entries) for most sparse rows.
double kmeans_points::own_distance(const kmeans_centres& centres, std::size_t i, std::uint32_t c) const {
  if (rows_.dense) return distance(i, centres.row(c));
  const auto centre = centres.row(c);
  double product = 0;
  for (std::size_t k = rows_.row_begin[i]; k < rows_.row_begin[i + 1]; ++k)
    product += rows_.value[k] * centre[rows_.column[k]];
  const double most = norm_[i] + centres.norm(c);
  const double square = most - 2 * product;
  return square > cancelled * most ? square : distance(i, centre);
}

/// out[r * width + c] = x_which[r] . centre c
void kmeans_points::products(const kmeans_centres& centres, std::span<const std::size_t> which,
                             std::vector<double>& copy, std::vector<double>& out) const {
  const std::size_t width = centres.width();
  const std::size_t d = dimension();
  std::fill(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(which.size() * width), 0.0);
  if (!rows_.dense) {
    for (std::size_t r = 0; r < which.size(); ++r) {
      double* to = out.data() + r * width;
      for (std::size_t k = rows_.row_begin[which[r]]; k < rows_.row_begin[which[r] + 1]; ++k) {
        const double* column = centres.columns() + std::size_t{rows_.column[k]} * width;
        for (std::size_t c = 0; c < width; ++c) to[c] += rows_.value[k] * column[c];
      }
    }
    return;
  }
  const double* a = rows_.value.data() + which[0] * d;
  if (which.back() - which.front() != which.size() - 1) {
    for (std::size_t r = 0; r < which.size(); ++r) {
      std::copy_n(rows_.value.data() + which[r] * d, d, copy.data() + r * d);
    }
    a = copy.data();
  }
  add_product(a, d, 1, centres.columns(), width, out.data(), width, which.size(), width, d);
}

void kmeans_points::nearest(const kmeans_centres& centres, std::span<const std::size_t> which,
                            std::span<std::uint32_t> best, std::span<double> best_distance,
                            std::span<double> second_distance) const {
  const std::size_t width = centres.width();
  const std::size_t k = centres.size();
  std::vector<double> copy(rows_.dense ? batch * dimension() : 0);
  std::vector<double> product(batch * width);
  for (std::size_t first = 0; first < which.size(); first += batch) {
    const auto part = which.subspan(first, std::min(batch, which.size() - first));
    products(centres, part, copy, product);
    for (std::size_t r = 0; r < part.size(); ++r) {
      double* score = product.data() + r * width;
      for (std::size_t c = 0; c < k; ++c) score[c] = centres.norm(c) - 2 * score[c];
      std::uint32_t least = 0;
      double second = std::numeric_limits<double>::infinity();
      for (std::size_t c = 1; c < k; ++c) {
        if (score[c] < score[least]) {
          second = score[least];
          least = static_cast<std::uint32_t>(c);
        } else if (score[c] < second) {
          second = score[c];
        }
      }
      const std::size_t i = part[r];
      const double doubt = rounding * (norm_[i] + centres.largest_norm());
      if (second - score[least] <= 2 * doubt) {
        // Too close for these approximate values: compare exact distances.
        const double bound = score[least] + 2 * doubt;
        double nearest_so_far = std::numeric_limits<double>::infinity();
        const auto x = point(i);
        for (std::size_t c = 0; c < k; ++c) {
          if (score[c] > bound) continue;
          const double candidate = squared_distance(x.data(), centres.row(c).data(), dimension());
          if (candidate >= nearest_so_far) continue;
          nearest_so_far = candidate;
          least = static_cast<std::uint32_t>(c);
        }
      }
      best[first + r] = least;
      best_distance[first + r] = own_distance(centres, i, least);
      second_distance[first + r] = std::max(0.0, second + norm_[i] - doubt);
    }
  }
}

void kmeans_points::assign(const kmeans_centres& centres, std::span<const double> moved, kmeans_sums& sums) {
  const std::size_t n = rows();
  const bool fresh = !assigned_;
  if (fresh) {
    assignment_.assign(n, 0);
    distance_.assign(n, 0.0);
    lower_.assign(n, 0.0);
    assigned_ = true;
  }
  distance_.resize(n);
  std::fill(sums.values.begin(), sums.values.end(), 0.0);
  // How much closer another centre may have moved: by the longest move or, for the centre that made it, the second
  // longest.
  double longest = 0;
  double second_longest = 0;
  std::size_t longest_at = 0;
  std::vector<double> gap;
  if (!fresh) {
    for (std::size_t c = 0; c < moved.size(); ++c) {
      if (moved[c] > longest) {
        second_longest = longest;
        longest = moved[c];
        longest_at = c;
      } else {
        second_longest = std::max(second_longest, moved[c]);
      }
    }
    // Its cost of k^2 d pays off only if it is small compared with n k d.
    if (centres.size() * 4 <= n) gap = centres.half_gaps();
  }
  std::vector<std::size_t> which;
  std::vector<std::uint32_t> best(block);
  std::vector<double> best_distance(block);
  std::vector<double> second_distance(block);
  for (std::size_t first = 0; first < n; first += block) {
    const std::size_t end = std::min(n, first + block);
    which.clear();
    for (std::size_t i = first; i < end; ++i) {
      if (!fresh) {
        const auto c = assignment_[i];
        distance_[i] = own_distance(centres, i, c);
        lower_[i] = std::max(0.0, lower_[i] * (1 - slack) - (c == longest_at ? second_longest : longest));
        const double doubt = rows_.dense ? 0 : rounding * (norm_[i] + centres.largest_norm());
        const double upper = std::sqrt(distance_[i] + doubt) * (1 + slack);
        if (upper < lower_[i] || (!gap.empty() && upper < gap[c] * (1 - slack))) continue;
      }
      which.push_back(i);
    }
    if (!which.empty()) {
      nearest(centres, which, best, best_distance, second_distance);
      for (std::size_t r = 0; r < which.size(); ++r) {
        const std::size_t i = which[r];
        if ((fresh || assignment_[i] != best[r]) && weight(i) > 0) sums.changed() += 1;
        assignment_[i] = best[r];
        distance_[i] = best_distance[r];
        lower_[i] = std::sqrt(second_distance[r]);
      }
    }
    double inertia = 0;
    for (std::size_t i = first; i < end; ++i) {
      const double w = weight(i);
      add(i, w, sums.sum(assignment_[i]));
      sums.count(assignment_[i]) += w;
      inertia += w * distance_[i];
    }
    sums.inertia() += inertia;
  }
}

std::vector<kmeans_far_point> kmeans_points::farthest(std::size_t count) const {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < rows(); ++i)
    if (weight(i) > 0) order.push_back(i);
  count = std::min(count, order.size());
  const auto farther = [this](std::size_t a, std::size_t b) {
    return distance_[a] > distance_[b] || (distance_[a] == distance_[b] && a < b);
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(), farther);
  std::vector<kmeans_far_point> out;
  for (std::size_t r = 0; r < count; ++r) {
    out.push_back({distance_[order[r]], weight(order[r]), first_row() + order[r], assignment_[order[r]]});
  }
  return out;
}

std::vector<double> kmeans_means(const kmeans_centres& old, kmeans_sums& sums, bool cosine) {
  std::vector<double> rows = old.rows();
  const std::size_t d = old.dimension();
  for (std::size_t c = 0; c < old.size(); ++c) {
    const auto sum = sums.sum(c);
    double divisor = sums.count(c);
    if (cosine) divisor = std::sqrt(squared_norm(sum));
    if (sums.count(c) <= 0 || divisor == 0) continue;
    for (std::size_t j = 0; j < d; ++j) rows[c * d + j] = sum[j] / divisor;
  }
  return rows;
}

std::vector<double> kmeans_reduce(const std::vector<double>& points, std::size_t d, std::span<const double> weight,
                                  std::size_t k, std::uint64_t seed) {
  const std::size_t n = weight.size();
  sample_rows as_rows;
  as_rows.dense = true;
  as_rows.columns = static_cast<std::uint32_t>(d);
  as_rows.value = points;
  as_rows.row_count = n;
  const kmeans_points local(std::move(as_rows), false);
  std::vector<std::size_t> all(n);
  std::iota(all.begin(), all.end(), std::size_t{0});

  const auto drawn = [&](counter_random& random, const std::vector<double>& mass) {
    const double total = std::accumulate(mass.begin(), mass.end(), 0.0);
    double left = random.uniform() * total;
    std::size_t last = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (mass[i] <= 0) continue;
      last = i;
      left -= mass[i];
      if (left < 0) break;
    }
    return last;
  };
  const auto tries = static_cast<std::size_t>(2 + std::log(static_cast<double>(k)));
  // There are few candidates, so several seedings are cheap: as many as fit into 2^28 operations, at most 8.
  const double once = 20.0 * static_cast<double>(n) * static_cast<double>(k) * static_cast<double>(d);
  const auto attempts = static_cast<std::uint64_t>(std::clamp(0x1p28 / std::max(once, 1.0), 1.0, 8.0));
  std::vector<double> result;
  double result_inertia = std::numeric_limits<double>::infinity();
  for (std::uint64_t attempt = 0; attempt < attempts; ++attempt) {
    counter_random random(seed, 0x6b6d2b2b, attempt);
    std::vector<double> mass(weight.begin(), weight.end());
    std::vector<double> nearest_square(n, std::numeric_limits<double>::infinity());
    std::vector<double> centres;
    for (std::size_t c = 0; c < k; ++c) {
      std::size_t chosen = 0;
      std::vector<double> chosen_squares;
      double chosen_total = std::numeric_limits<double>::infinity();
      for (std::size_t t = 0; t < (c == 0 ? 1 : tries); ++t) {
        const auto i = drawn(random, mass);
        auto squares = nearest_square;
        double total = 0;
        for (std::size_t j = 0; j < n; ++j) {
          squares[j] = std::min(squares[j], squared_distance(points.data() + j * d, points.data() + i * d, d));
          total += weight[j] * squares[j];
        }
        if (total < chosen_total) {
          chosen = i;
          chosen_total = total;
          chosen_squares = std::move(squares);
        }
      }
      nearest_square = std::move(chosen_squares);
      for (std::size_t j = 0; j < n; ++j) mass[j] = weight[j] * nearest_square[j];
      centres.insert(centres.end(), points.begin() + static_cast<std::ptrdiff_t>(chosen * d),
                     points.begin() + static_cast<std::ptrdiff_t>((chosen + 1) * d));
    }
    // Lloyd's algorithm on the weighted candidates.
    std::vector<std::uint32_t> best(n);
    std::vector<std::uint32_t> before;
    std::vector<double> square(n);
    std::vector<double> ignored(n);
    double inertia = 0;
    for (int round = 0; round < 100; ++round) {
      const kmeans_centres current(centres, d);
      local.nearest(current, all, best, square, ignored);
      inertia = 0;
      for (std::size_t i = 0; i < n; ++i) inertia += weight[i] * square[i];
      if (best == before) break;
      before = best;
      kmeans_sums sums(k, d);
      for (std::size_t i = 0; i < n; ++i) {
        local.add(i, weight[i], sums.sum(best[i]));
        sums.count(best[i]) += weight[i];
      }
      centres = kmeans_means(current, sums, false);
    }
    if (inertia < result_inertia) {
      result_inertia = inertia;
      result = std::move(centres);
    }
  }
  return result;
}

}  // namespace paracel::alg
