// SPDX-License-Identifier: BSD-3-Clause
//
// Serial als: one process, one thread, its own parser; normal equations and Cholesky for every row.
//
//     als_serial TRAIN [--k 32] [--rounds 20] [--lambda .1] [--lambda_bias .05] [--seed 0]
//
// The initial values are those of als, so the two agree digit by digit.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "counter_random.hpp"
#include "ratings.hpp"

namespace {

using serial::counter_random;
using serial::load;
using serial::rating;

/// Ratings by user, or by item.
struct side {
  std::vector<std::size_t> begin;
  std::vector<std::uint32_t> other;
  std::vector<double> value;
  std::vector<double> x;  // rows of bias and k factors

  side(std::size_t rows, const std::vector<std::uint32_t>& row, const std::vector<std::uint32_t>& column,
       const std::vector<rating>& ratings, std::size_t k)
      : begin(rows + 1), other(ratings.size()), value(ratings.size()), x(rows * (k + 1)) {
    for (const auto r : row) ++begin[r + 1];
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    auto next = begin;
    for (std::size_t t = 0; t < ratings.size(); ++t) {
      const auto at = next[row[t]]++;
      other[at] = column[t];
      value[at] = ratings[t].value;
    }
  }
};

struct settings {
  std::size_t k = 32;
  double lambda = 0.1;
  double lambda_bias = 0.05;
};

/// Solves the rows of `a` given those of `b`; returns the sum of e^2 and sets the penalty of a's rows.
double half_step(side& a, const side& b, double mean, const settings& s, double& penalty) {
  const std::size_t d = s.k + 1;
  std::vector<double> m(d * d);
  std::vector<double> z(d);
  std::vector<double> f(d);
  double squares = 0;
  penalty = 0;
  for (std::size_t r = 0; r + 1 < a.begin.size(); ++r) {
    std::fill(m.begin(), m.end(), 0.0);
    std::fill(z.begin(), z.end(), 0.0);
    const auto features = [&](std::size_t t) {
      const double* row = b.x.data() + a.other[t] * d;
      f[0] = 1;
      std::copy(row + 1, row + d, f.begin() + 1);
      return a.value[t] - mean - row[0];
    };
    for (std::size_t t = a.begin[r]; t < a.begin[r + 1]; ++t) {
      const double target = features(t);
      for (std::size_t i = 0; i < d; ++i) {
        double* row = m.data() + i * d;
        const double v = f[i];
        for (std::size_t j = 0; j <= i; ++j) row[j] += v * f[j];
        z[i] += v * target;
      }
    }
    const auto n = static_cast<double>(a.begin[r + 1] - a.begin[r]);
    for (std::size_t i = 0; i < d; ++i) m[i * d + i] += n * (i == 0 ? s.lambda_bias : s.lambda);
    for (std::size_t i = 0; i < d; ++i) {
      double* row = m.data() + i * d;
      for (std::size_t j = 0; j < i; ++j) {
        const double* up = m.data() + j * d;
        double v = row[j];
        for (std::size_t l = 0; l < j; ++l) v -= row[l] * up[l];
        row[j] = v / up[j];
      }
      double v = row[i];
      for (std::size_t l = 0; l < i; ++l) v -= row[l] * row[l];
      row[i] = std::sqrt(v);
      v = z[i];
      for (std::size_t l = 0; l < i; ++l) v -= row[l] * z[l];
      z[i] = v / row[i];
    }
    for (std::size_t i = d; i-- > 0;) {
      z[i] /= m[i * d + i];
      for (std::size_t j = 0; j < i; ++j) z[j] -= z[i] * m[i * d + j];
    }
    std::copy(z.begin(), z.end(), a.x.begin() + static_cast<std::ptrdiff_t>(r * d));
    for (std::size_t t = a.begin[r]; t < a.begin[r + 1]; ++t) {
      double e = features(t);
      for (std::size_t i = 0; i < d; ++i) e -= f[i] * z[i];
      squares += e * e;
    }
    for (std::size_t i = 0; i < d; ++i) penalty += n * (i == 0 ? s.lambda_bias : s.lambda) * z[i] * z[i];
  }
  return squares;
}

std::uint32_t number_of(std::unordered_map<std::uint64_t, std::uint32_t>& numbers, std::uint64_t id) {
  return numbers.emplace(id, static_cast<std::uint32_t>(numbers.size())).first->second;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    settings s;
    int rounds = 20;
    std::uint64_t seed = 0;
    if (argc < 2) throw std::runtime_error("usage: als_serial TRAIN [--k N] [--rounds N] [--lambda L] ...");
    for (int i = 2; i + 1 < argc; i += 2) {
      const std::string name = argv[i];
      if (name == "--k") s.k = std::strtoull(argv[i + 1], nullptr, 10);
      else if (name == "--rounds") rounds = std::atoi(argv[i + 1]);
      else if (name == "--lambda") s.lambda = std::strtod(argv[i + 1], nullptr);
      else if (name == "--lambda_bias") s.lambda_bias = std::strtod(argv[i + 1], nullptr);
      else if (name == "--seed") seed = std::strtoull(argv[i + 1], nullptr, 10);
      else throw std::runtime_error("unknown option " + name);
    }
    const auto input = load(argv[1]);
    std::unordered_map<std::uint64_t, std::uint32_t> user_number;
    std::unordered_map<std::uint64_t, std::uint32_t> item_number;
    std::vector<std::uint32_t> u;
    std::vector<std::uint32_t> v;
    double mean = 0;
    for (const auto& r : input) {
      u.push_back(number_of(user_number, r.user));
      v.push_back(number_of(item_number, r.item));
      mean += r.value;
    }
    mean /= static_cast<double>(input.size());
    side users(user_number.size(), u, v, input, s.k);
    side items(item_number.size(), v, u, input, s.k);
    for (const auto& [id, number] : item_number) {
      counter_random random(seed, 5, id);
      for (std::size_t j = 1; j <= s.k; ++j) items.x[number * (s.k + 1) + j] = 0.1 * random.normal();
    }
    double objective = 0;
    for (int round = 0; round < rounds; ++round) {
      double of_users = 0;
      double of_items = 0;
      half_step(users, items, mean, s, of_users);
      objective = half_step(items, users, mean, s, of_items);
      objective += of_users + of_items;
    }
    std::printf("objective %.17g\n", objective);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "als_serial: error: %s\n", e.what());
    return 1;
  }
}
