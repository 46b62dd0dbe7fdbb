// SPDX-License-Identifier: BSD-3-Clause
//
// The plain oracle of spectral clustering: one eigenvector of I + D^-1/2 W D^-1/2 after the other by Lanczos' method with
// full re-orthogonalisation against all that was found (so that an eigenvalue that is there twice is found twice), rows of
// length 1, k-means++ and Lloyd's rounds.
//
//     spectral_clustering_serial EDGES [--k 4] [--tolerance 1e-10] [--n_init 10] [--out FILE]
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using vec = std::vector<double>;

struct graph {
  std::vector<std::uint64_t> ids;  // ascending
  std::vector<std::size_t> begin;
  std::vector<std::uint32_t> target;
  vec value;  // of D^-1/2 W D^-1/2
  std::vector<bool> active;

  [[nodiscard]] std::size_t size() const { return ids.size(); }
  [[nodiscard]] vec times(const vec& x) const {
    vec y(size());
    for (std::size_t v = 0; v < size(); ++v) {
      if (!active[v]) continue;
      y[v] = x[v];
      for (std::size_t e = begin[v]; e < begin[v + 1]; ++e) y[v] += value[e] * x[target[e]];
    }
    return y;
  }
};

graph load(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + file);
  std::ostringstream buffer;
  buffer << in.rdbuf();
  const auto text = std::move(buffer).str();
  std::vector<std::uint64_t> a, b;
  vec w;
  const auto blank = [](char c) { return c == '\t' || c == ' ' || c == ',' || c == ';' || c == '\r'; };
  for (const char* at = text.c_str(); *at != 0;) {
    while (blank(*at)) ++at;
    if (*at == '\n') {
      ++at;
      continue;
    }
    char* end = nullptr;
    a.push_back(std::strtoull(at, &end, 10));
    while (blank(*end)) ++end;
    b.push_back(std::strtoull(end, &end, 10));
    while (blank(*end)) ++end;
    w.push_back(*end == '\n' || *end == 0 ? 1 : std::strtod(end, &end));
    for (at = end; *at != 0 && *at != '\n';) ++at;
  }
  graph g;
  g.ids = a;
  g.ids.insert(g.ids.end(), b.begin(), b.end());
  std::sort(g.ids.begin(), g.ids.end());
  g.ids.erase(std::unique(g.ids.begin(), g.ids.end()), g.ids.end());
  const auto number = [&](std::uint64_t id) {
    return static_cast<std::uint32_t>(std::lower_bound(g.ids.begin(), g.ids.end(), id) - g.ids.begin());
  };
  g.begin.assign(g.size() + 1, 0);
  vec degree(g.size());
  for (std::size_t e = 0; e < a.size(); ++e) {
    a[e] = number(a[e]);
    b[e] = number(b[e]);
    if (a[e] == b[e]) continue;
    ++g.begin[a[e] + 1];
    ++g.begin[b[e] + 1];
    degree[a[e]] += w[e];
    degree[b[e]] += w[e];
  }
  std::partial_sum(g.begin.begin(), g.begin.end(), g.begin.begin());
  g.target.resize(g.begin.back());
  g.value.resize(g.begin.back());
  auto next = g.begin;
  for (std::size_t e = 0; e < a.size(); ++e) {
    if (a[e] == b[e]) continue;
    const double x = w[e] == 0 ? 0 : w[e] / std::sqrt(degree[a[e]] * degree[b[e]]);
    g.target[next[a[e]]] = static_cast<std::uint32_t>(b[e]);
    g.value[next[a[e]]++] = x;
    g.target[next[b[e]]] = static_cast<std::uint32_t>(a[e]);
    g.value[next[b[e]]++] = x;
  }
  for (const double d : degree) g.active.push_back(d > 0);
  return g;
}

double inner(const vec& a, const vec& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

/// Makes x orthogonal to those vectors, twice, and of length 1; returns its length before that.
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

/// The greatest eigenvalue of a symmetric tridiagonal matrix by bisection, its vector by inverse iteration just above it,
/// where elimination needs no pivots.
double greatest(const vec& diagonal, const vec& beside, vec& vector) {
  const std::size_t m = diagonal.size();
  double high = 0;
  for (std::size_t i = 0; i < m; ++i) {
    high = std::max(high, std::abs(diagonal[i]) + (i > 0 ? std::abs(beside[i - 1]) : 0) +
                              (i + 1 < m ? std::abs(beside[i]) : 0));
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

/// The eigenvector of the greatest eigenvalue that is orthogonal to `found`, for which `x` is the start.
double eigenvector(const graph& g, const std::vector<vec>& found, double tolerance, vec& x) {
  constexpr std::size_t most = 150;  // vectors that are kept before a restart
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

}  // namespace

int main(int argc, char** argv) {
  try {
    std::map<std::string, std::string> option{{"k", "4"}, {"tolerance", "1e-10"}, {"n_init", "10"}, {"out", ""}};
    if (argc < 2) throw std::runtime_error("usage: spectral_clustering_serial EDGES [--k K] [--n_init N] [--out FILE]");
    for (int i = 2; i + 1 < argc; i += 2) {
      const std::string name = std::string(argv[i]).substr(2);
      if (!option.contains(name)) throw std::runtime_error("unknown option " + name);
      option[name] = argv[i + 1];
    }
    const auto g = load(argv[1]);
    std::vector<std::size_t> rows;
    for (std::size_t v = 0; v < g.size(); ++v)
      if (g.active[v]) rows.push_back(v);
    const auto k = std::strtoull(option["k"].c_str(), nullptr, 10);
    if (k == 0 || k > rows.size()) throw std::runtime_error("want k from 1 to the number of vertices with edges");
    const double tolerance = 2 * std::strtod(option["tolerance"].c_str(), nullptr);
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
    for (int run = std::atoi(option["n_init"].c_str()); run > 0; --run) {
      const double inertia = kmeans(points, rows.size(), k, k, random, label);
      if (inertia >= best) continue;
      best = inertia;
      best_label = label;
    }
    std::printf("inertia %.17g\n", best);
    if (option["out"].empty()) return 0;
    std::vector<int> labels(g.size(), -1), number(k, -1);
    int next = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      auto& n = number[best_label[i]];
      if (n < 0) n = next++;
      labels[rows[i]] = n;
    }
    std::ofstream out(option["out"]);
    for (std::size_t v = 0; v < g.size(); ++v) out << g.ids[v] << '\t' << labels[v] << '\n';
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "spectral_clustering_serial: error: %s\n", e.what());
    return 1;
  }
}
