// SPDX-License-Identifier: BSD-3-Clause
//
// The serial oracle of spectral clustering: the eigenvectors of I + D^-1/2 W D^-1/2 one by one, by Lanczos' method with
// full reorthogonalisation against all previous ones (so that a double eigenvalue is found twice), rows of length 1,
// k-means++ and Lloyd's algorithm.
//
//     spectral_clustering_serial EDGES [--k 4] [--tolerance 1e-10] [--n_init 10] [--out FILE]
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "graph.hpp"

namespace {

using vec = std::vector<double>;

/// D^-1/2 W D^-1/2 of the undirected graph; self-loops are ignored.
struct graph {
  serial::csr links;
  std::vector<bool> active;  // whether the vertex has an edge with positive weight

  explicit graph(const serial::edge_list& from) : active(from.ids.size()) {
    vec degree(size());
    for (std::size_t e = 0; e < from.from.size(); ++e) {
      if (from.from[e] == from.to[e]) continue;
      degree[from.from[e]] += from.weight[e];
      degree[from.to[e]] += from.weight[e];
    }
    serial::edge_list both{.ids = from.ids, .from = {}, .to = {}, .weight = {}};
    for (std::size_t e = 0; e < from.from.size(); ++e) {
      const auto u = from.from[e], t = from.to[e];
      if (u == t) continue;
      const double w = from.weight[e] == 0 ? 0 : from.weight[e] / std::sqrt(degree[u] * degree[t]);
      both.from.insert(both.from.end(), {u, t});
      both.to.insert(both.to.end(), {t, u});
      both.weight.insert(both.weight.end(), {w, w});
    }
    links = serial::compress(both, false);
    for (std::size_t v = 0; v < size(); ++v) active[v] = degree[v] > 0;
  }
  [[nodiscard]] std::size_t size() const { return active.size(); }
  [[nodiscard]] vec times(const vec& x) const {
    vec y(size());
    for (std::size_t v = 0; v < size(); ++v) {
      if (!active[v]) continue;
      y[v] = x[v];
      for (auto e = links.begin[v]; e < links.begin[v + 1]; ++e) y[v] += links.weight[e] * x[links.target[e]];
    }
    return y;
  }
};

double inner(const vec& a, const vec& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

/// Orthogonalises x against these vectors, twice, and normalises it; returns its length before that.
double orthonormalise(vec& x, const std::vector<vec>& found, const std::vector<vec>& basis) {
  for (int pass = 0; pass < 2; ++pass) {
    for (const auto* set : {&found, &basis}) {
      for (const auto& b : *set) {
        const double c = inner(x, b);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] -= c * b[i];
      }
    }
  }
  const double length = std::sqrt(inner(x, x));
  for (auto& v : x) v /= length;
  return length;
}

/// The greatest eigenvalue of a symmetric tridiagonal matrix by bisection, its vector by inverse iteration just above
/// it, where elimination needs no pivoting.
double greatest(const vec& diagonal, const vec& beside, vec& vector) {
  const std::size_t m = diagonal.size();
  double high = 0;
  for (std::size_t i = 0; i < m; ++i) {
    high = std::max(
        high, std::abs(diagonal[i]) + (i > 0 ? std::abs(beside[i - 1]) : 0) + (i + 1 < m ? std::abs(beside[i]) : 0));
  }
  double low = -high;
  const double least = 1e-15 * high;
  const auto above_all = [&](double x) {
    double pivot = diagonal[0] - x;
    for (std::size_t i = 1; pivot < 0 && i < m; ++i) pivot = diagonal[i] - x - beside[i - 1] * beside[i - 1] / pivot;
    return pivot < 0;
  };
  high += 4 * least;
  while (high - low > least) {
    const double middle = (low + high) / 2;
    if (middle == low || middle == high) break;
    (above_all(middle) ? high : low) = middle;
  }
  vec pivot(m);
  pivot[0] = diagonal[0] - high;
  for (std::size_t i = 1; i < m; ++i) pivot[i] = diagonal[i] - high - beside[i - 1] * beside[i - 1] / pivot[i - 1];
  vector.assign(m, 1);
  for (int step = 0; step < 3; ++step) {
    for (std::size_t i = 1; i < m; ++i) vector[i] -= beside[i - 1] / pivot[i - 1] * vector[i - 1];
    vector[m - 1] /= pivot[m - 1];
    for (std::size_t i = m - 1; i-- > 0;) vector[i] = vector[i] / pivot[i] - beside[i] / pivot[i] * vector[i + 1];
    const double length = std::sqrt(inner(vector, vector));
    for (auto& v : vector) v /= length;
  }
  return high;
}

/// The eigenvector of the greatest eigenvalue orthogonal to `found`; `x` is the initial vector.
double eigenvector(const graph& g, const std::vector<vec>& found, double tolerance, vec& x) {
  constexpr std::size_t most = 150;  // maximum number of vectors before a restart
  for (int restart = 0;; ++restart) {
    std::vector<vec> basis;
    vec diagonal, beside, s;
    orthonormalise(x, found, basis);
    double value = 0;
    while (true) {
      basis.push_back(x);
      x = g.times(basis.back());
      diagonal.push_back(inner(x, basis.back()));
      const double rest = orthonormalise(x, found, basis);
      const bool full = basis.size() == most || rest < 1e-13;
      bool ends = false;
      if (full || basis.size() % 5 == 0) {
        value = greatest(diagonal, beside, s);
        ends = rest * std::abs(s.back()) <= tolerance || rest < 1e-13;
      }
      if (ends || full) {
        vec y(g.size());
        for (std::size_t j = 0; j < basis.size(); ++j) {
          for (std::size_t i = 0; i < y.size(); ++i) y[i] += s[j] * basis[j][i];
        }
        x = std::move(y);
        if (ends || restart == 1000) return value;
        break;
      }
      beside.push_back(rest);
    }
  }
}

double square(const double* a, const double* b, std::size_t d) {
  double sum = 0;
  for (std::size_t j = 0; j < d; ++j) sum += (a[j] - b[j]) * (a[j] - b[j]);
  return sum;
}

/// One run of k-means on n points; returns the inertia.
double kmeans(const vec& points, std::size_t n, std::size_t d, std::size_t k, std::mt19937_64& random,
              std::vector<std::uint32_t>& label) {
  vec centres, nearest(n, std::numeric_limits<double>::max());
  for (std::size_t c = 0; c < k; ++c) {
    std::size_t chosen = random() % n;
    const double total = std::accumulate(nearest.begin(), nearest.end(), 0.0);
    if (c > 0 && total > 0) {
      double left = std::uniform_real_distribution<double>(0, total)(random);
      for (chosen = 0; chosen + 1 < n && (left -= nearest[chosen]) >= 0;) ++chosen;
    }
    centres.insert(centres.end(), points.begin() + static_cast<std::ptrdiff_t>(chosen * d),
                   points.begin() + static_cast<std::ptrdiff_t>((chosen + 1) * d));
    for (std::size_t i = 0; i < n; ++i) nearest[i] = std::min(nearest[i], square(&points[i * d], &centres[c * d], d));
  }
  label.assign(n, 0);
  for (int round = 0;; ++round) {
    bool changed = round == 0;
    double inertia = 0;
    vec sums(k * d), counts(k);
    for (std::size_t i = 0; i < n; ++i) {
      std::uint32_t best = 0;
      double least = std::numeric_limits<double>::max();
      for (std::uint32_t c = 0; c < k; ++c) {
        const double s = square(&points[i * d], &centres[c * d], d);
        if (s < least) {
          least = s;
          best = c;
        }
      }
      changed = changed || label[i] != best;
      label[i] = best;
      inertia += least;
      counts[best] += 1;
      for (std::size_t j = 0; j < d; ++j) sums[best * d + j] += points[i * d + j];
    }
    if (!changed || round == 300) return inertia;
    for (std::size_t c = 0; c < k; ++c) {
      for (std::size_t j = 0; counts[c] > 0 && j < d; ++j) centres[c * d + j] = sums[c * d + j] / counts[c];
    }
  }
}

void solve(serial::arguments& from) {
  from.option.insert({{"k", "4"}, {"tolerance", "1e-10"}, {"n_init", "10"}, {"out", ""}});
  const auto edges = serial::load(from.input, "", true);
  const graph g(edges);
  std::vector<std::size_t> rows;
  for (std::size_t v = 0; v < g.size(); ++v)
    if (g.active[v]) rows.push_back(v);
  const auto k = std::stoull(from.option["k"]);
  if (k == 0 || k > rows.size()) throw std::runtime_error("want k from 1 to the number of vertices with edges");
  const double tolerance = 2 * std::stod(from.option["tolerance"]);
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  std::vector<vec> found;
  for (std::size_t j = 0; j < k; ++j) {
    vec x(g.size());
    for (const auto v : rows) x[v] = normal(random);
    const double value = eigenvector(g, found, tolerance, x);
    std::printf("eigenvalue_%zu %.17g\n", j + 1, 2 - value);
    found.push_back(std::move(x));
  }
  vec points;
  for (const auto v : rows) {
    double length = 0;
    for (const auto& x : found) length += x[v] * x[v];
    for (const auto& x : found) points.push_back(length > 0 ? x[v] / std::sqrt(length) : 0);
  }
  double best = std::numeric_limits<double>::max();
  std::vector<std::uint32_t> label, best_label;
  for (int run = std::stoi(from.option["n_init"]); run > 0; --run) {
    const double inertia = kmeans(points, rows.size(), k, k, random, label);
    if (inertia >= best) continue;
    best = inertia;
    best_label = label;
  }
  std::printf("inertia %.17g\n", best);
  std::vector<int> labels(g.size(), -1), number(k, -1);
  int next = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto& n = number[best_label[i]];
    if (n < 0) n = next++;
    labels[rows[i]] = n;
  }
  serial::write(from.option["out"], edges, [&](std::uint32_t v) { return labels[v]; });
}

}  // namespace

int main(int argc, char** argv) { return serial::run(argc, argv, " [--k K] [--tolerance T] [--n_init N]", solve); }
