// SPDX-License-Identifier: BSD-3-Clause
//
// Lasso by stochastic coordinate descent, as Paracel 0.3's tool of this name: w = u - v with u, v >= 0; a step moves
// one random coordinate of the 2p, each bounded below by 0. `lambda` is n times the penalty of alg/lasso; a constant
// feature comes first and is penalised like the others.
//
//     min  1/2 sum_i (y_i - w.x_i)^2 + lambda |w|_1
//
// lasso_serial_rigid TRAINING --lambda L --rounds N [--seed S] [--theta FILE]
//
// Source: S. Shalev-Shwartz, A. Tewari, "Stochastic methods for l1-regularized loss minimization", JMLR 12, 2011.
#include <cstdint>
#include <random>

#include "samples.hpp"

namespace {

void work(int argc, char** argv) {
  const serial::arguments o(argc, argv);
  const auto s = serial::load(o.file());
  const double lambda = o.number("lambda", 1);
  const auto rounds = static_cast<std::uint64_t>(o.number("rounds", 100000));
  std::mt19937_64 random(static_cast<std::uint64_t>(o.number("seed", 0)));
  const std::size_t n = s.rows();
  const std::size_t p = s.columns + 1;
  const auto rows = serial::dense_rows(s);
  std::vector<double> x(n * p, 1.0);  // feature by feature, the constant one first
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 1; j < p; ++j) x[j * n + i] = rows[i * (p - 1) + j - 1];
  std::vector<double> square(p);
  for (std::size_t k = 0; k < x.size(); ++k) square[k / n] += x[k] * x[k];

  std::vector<double> u(2 * p);
  std::vector<double> residual;  // w.x - y
  for (const double y : s.label) residual.push_back(-y);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::size_t k = random() % (2 * p);
    const std::size_t j = k % p;
    if (square[j] == 0) continue;
    const double sign = k < p ? 1 : -1;
    const double* column = x.data() + j * n;
    double slope = lambda;
    for (std::size_t i = 0; i < n; ++i) slope += sign * residual[i] * column[i];
    const double step = std::max(-u[k], -slope / square[j]);  // exact in this coordinate
    if (step == 0) continue;
    u[k] += step;
    for (std::size_t i = 0; i < n; ++i) residual[i] += step * sign * column[i];
  }

  double objective = 0;
  for (const double e : residual) objective += e * e / 2;
  std::vector<double> theta(p);
  for (std::size_t j = 0; j < p; ++j) {
    theta[j] = u[j] - u[p + j];
    objective += lambda * std::abs(theta[j]);
  }
  double squares = 0;
  for (const double e : residual) squares += e * e;
  std::printf("objective %.17g\ntotal error: %.17g\n", objective, squares / static_cast<double>(n));
  if (o.has("theta")) serial::write_vector(o.text("theta"), theta);
}

}  // namespace

int main(int argc, char** argv) { return serial::run("lasso_serial_rigid", argc, argv, work); }
