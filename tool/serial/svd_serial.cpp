// SPDX-License-Identifier: BSD-3-Clause
//
// The serial oracle of svd: one process, one thread, its own parser; Golub-Kahan-Lanczos bidiagonalisation one vector
// at a time with full reorthogonalisation and no restart, and one-sided Jacobi for the small matrix.
//
//     svd_serial ENTRIES [--k 10] [--tolerance 1e-10]
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

using vec = std::vector<double>;

struct matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<std::size_t> begin;
  std::vector<std::uint32_t> column;
  vec value;

  vec times(const vec& x) const {
    vec y(rows);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t e = begin[i]; e < begin[i + 1]; ++e) y[i] += value[e] * x[column[e]];
    }
    return y;
  }
  vec transposed_times(const vec& x) const {
    vec y(columns);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t e = begin[i]; e < begin[i + 1]; ++e) y[column[e]] += value[e] * x[i];
    }
    return y;
  }
};

std::uint32_t number_of(std::unordered_map<std::uint64_t, std::uint32_t>& numbers, std::uint64_t id) {
  return numbers.emplace(id, static_cast<std::uint32_t>(numbers.size())).first->second;
}

matrix load(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + file);
  std::ostringstream buffer;
  buffer << in.rdbuf();
  const auto text = std::move(buffer).str();
  std::unordered_map<std::uint64_t, std::uint32_t> rows;
  std::unordered_map<std::uint64_t, std::uint32_t> columns;
  std::vector<std::uint32_t> r;
  std::vector<std::uint32_t> c;
  vec v;
  const char* at = text.c_str();
  while (*at != 0) {
    char* end = nullptr;
    r.push_back(number_of(rows, std::strtoull(at, &end, 10)));
    c.push_back(number_of(columns, std::strtoull(end + 1, &end, 10)));
    v.push_back(std::strtod(end + 1, &end));
    at = std::strchr(end, '\n');
    if (at == nullptr) break;
    ++at;
  }
  matrix a;
  a.rows = rows.size();
  a.columns = columns.size();
  a.begin.resize(a.rows + 1);
  for (const auto i : r) ++a.begin[i + 1];
  std::partial_sum(a.begin.begin(), a.begin.end(), a.begin.begin());
  a.column.resize(v.size());
  a.value.resize(v.size());
  auto next = a.begin;
  for (std::size_t e = 0; e < v.size(); ++e) {
    a.column[next[r[e]]] = c[e];
    a.value[next[r[e]]++] = v[e];
  }
  return a;
}

double inner(const vec& a, const vec& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

/// Orthogonalises x against the basis, twice, and normalises it; returns its length before that.
double orthonormalise(vec& x, const std::vector<vec>& basis) {
  for (int pass = 0; pass < 2; ++pass) {
    for (const auto& b : basis) {
      const double c = inner(x, b);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] -= c * b[i];
    }
  }
  const double length = std::sqrt(inner(x, x));
  for (auto& v : x) v /= length;
  return length;
}

/// Singular values (descending) of the n x n matrix m by one-sided Jacobi; last[j]: the last entry of its left vector.
void jacobi(std::vector<vec> m, vec& sigma, vec& last) {
  const std::size_t n = m.size();  // m[j]: column j
  for (int sweep = 0; sweep < 60; ++sweep) {
    double off = 0;
    for (std::size_t p = 0; p + 1 < n; ++p) {
      for (std::size_t q = p + 1; q < n; ++q) {
        const double a = inner(m[p], m[p]);
        const double b = inner(m[q], m[q]);
        const double c = inner(m[p], m[q]);
        if (std::abs(c) <= 1e-16 * std::sqrt(a * b) || c == 0) continue;
        off = std::max(off, std::abs(c) / std::sqrt(a * b));
        const double zeta = (b - a) / (2 * c);
        const double t = (zeta >= 0 ? 1 : -1) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta));
        const double cosine = 1 / std::sqrt(1 + t * t);
        const double sine = cosine * t;
        for (std::size_t i = 0; i < n; ++i) {
          const double x = m[p][i];
          m[p][i] = cosine * x - sine * m[q][i];
          m[q][i] = sine * x + cosine * m[q][i];
        }
      }
    }
    if (off < 1e-15) break;
  }
  std::vector<std::pair<double, double>> found;
  for (const auto& column : m) {
    const double s = std::sqrt(inner(column, column));
    found.emplace_back(s, s > 0 ? column.back() / s : 0);
  }
  std::sort(found.rbegin(), found.rend());
  sigma.clear();
  last.clear();
  for (const auto& [s, l] : found) {
    sigma.push_back(s);
    last.push_back(l);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::size_t k = 10;
    double tolerance = 1e-10;
    if (argc < 2) throw std::runtime_error("usage: svd_serial ENTRIES [--k K] [--tolerance T]");
    for (int i = 2; i + 1 < argc; i += 2) {
      const std::string name = argv[i];
      if (name == "--k") k = std::strtoull(argv[i + 1], nullptr, 10);
      else if (name == "--tolerance") tolerance = std::strtod(argv[i + 1], nullptr);
      else throw std::runtime_error("unknown option " + name);
    }
    const auto a = load(argv[1]);
    const std::size_t most = std::min(a.rows, a.columns);
    std::mt19937_64 random(1);
    std::normal_distribution<double> normal;
    vec next(a.columns);
    for (auto& x : next) x = normal(random);
    std::vector<vec> u;
    std::vector<vec> v;
    std::vector<vec> b;  // columns of the projected matrix
    vec sigma;
    vec last;
    orthonormalise(next, v);
    for (std::size_t j = 1; j <= most; ++j) {
      v.push_back(next);
      auto x = a.times(v.back());
      vec column;
      for (const auto& y : u) column.push_back(inner(y, x));
      column.push_back(orthonormalise(x, u));
      b.push_back(std::move(column));
      u.push_back(std::move(x));
      next = a.transposed_times(u.back());
      const double beta = orthonormalise(next, v);
      const bool end = j == most || beta < 1e-13 * b.front().front();
      if (!end && (j < k || j % 10 != 0)) continue;
      auto square = b;
      for (auto& c : square) c.resize(j);
      jacobi(std::move(square), sigma, last);
      bool enough = true;
      for (std::size_t i = 0; i < std::min(k, j); ++i)
        enough = enough && std::abs(beta * last[i]) <= tolerance * sigma[0];
      if (enough || end) break;
    }
    std::printf("steps %zu\n", v.size());
    for (std::size_t i = 0; i < std::min(k, sigma.size()); ++i) std::printf("sigma_%zu %.17g\n", i + 1, sigma[i]);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "svd_serial: error: %s\n", e.what());
    return 1;
  }
}
