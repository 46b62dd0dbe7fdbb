// SPDX-License-Identifier: BSD-3-Clause
//
// The serial oracle of lasso: cyclic coordinate descent with a residual, over all features, until no optimality
// condition is violated by more than 1e-10 of the penalty.
//
//     min  1/(2n) sum_i (y_i - b - w.x_i)^2 + a (r |w|_1 + (1 - r)/2 |w|^2)
//
// lasso_serial TRAINING --a A [--l1_ratio R] [--test FILE] [--standardize] [--features a,b,c --target t] [--theta FILE]
#include "samples.hpp"

namespace {

void work(int argc, char** argv) {
  const serial::arguments o(argc, argv, {"standardize"});
  const auto s = serial::load(o.file(), true, o.list("features"), o.text("target"));
  const double a = o.number("a", 1);
  const double r = o.number("l1_ratio", 1);
  const std::size_t n = s.rows();
  const std::size_t p = s.columns;
  auto rows = serial::dense_rows(s);
  auto y = s.label;
  std::vector<double> mean;
  std::vector<double> sd;
  double y_mean = 0;
  serial::centre(rows, y, p, o.has("standardize"), mean, sd, y_mean);
  std::vector<double> x(rows.size());  // column by column
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < p; ++j) x[j * n + i] = rows[i * p + j];
  }
  std::vector<double> square(p);
  for (std::size_t j = 0; j < p; ++j) {
    for (std::size_t i = 0; i < n; ++i) square[j] += x[j * n + i] * x[j * n + i];
    square[j] /= static_cast<double>(n);
  }

  std::vector<double> w(p);
  auto e = y;  // the residual
  double worst = 0;
  for (int sweep = 0; sweep < 100000; ++sweep) {
    worst = 0;
    for (std::size_t j = 0; j < p; ++j) {
      if (square[j] <= 1e-28) continue;
      const double* column = x.data() + j * n;
      double correlation = 0;
      for (std::size_t i = 0; i < n; ++i) correlation += column[i] * e[i];
      correlation /= static_cast<double>(n);
      const double slope = correlation - a * (1 - r) * w[j];
      worst = std::max(worst, w[j] == 0 ? std::abs(slope) - a * r : std::abs(slope - std::copysign(a * r, w[j])));
      const double pull = correlation + square[j] * w[j];
      const double size = std::abs(pull) - a * r;
      const double next = size > 0 ? std::copysign(size, pull) / (square[j] + a * (1 - r)) : 0;
      const double change = next - w[j];
      if (change == 0) continue;
      w[j] = next;
      for (std::size_t i = 0; i < n; ++i) e[i] -= change * column[i];
    }
    if (worst <= 1e-10 * a) break;
  }

  double squares = 0;
  for (const double v : e) squares += v * v;
  double objective = squares / (2 * static_cast<double>(n));
  int nonzeros = 0;
  std::vector<double> theta{y_mean};
  for (std::size_t j = 0; j < p; ++j) {
    objective += a * (r * std::abs(w[j]) + (1 - r) / 2 * w[j] * w[j]);
    nonzeros += w[j] != 0 ? 1 : 0;
    theta.push_back(w[j] / sd[j]);
    theta[0] -= theta.back() * mean[j];
  }
  std::printf("objective %.17g\nnonzeros %d\nviolation %.3g\ntrain_rmse %.17g\n", objective, nonzeros, worst / a,
              std::sqrt(squares / static_cast<double>(n)));
  if (o.has("test"))
    serial::print_rmse(serial::load(o.text("test"), true, o.list("features"), o.text("target")), theta);
  if (o.has("theta")) serial::write_vector(o.text("theta"), theta);
}

}  // namespace

int main(int argc, char** argv) { return serial::run("lasso_serial", argc, argv, work); }
