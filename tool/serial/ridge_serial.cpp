// SPDX-License-Identifier: BSD-3-Clause
//
// The serial oracle of ridge: centred (and standardised) samples, the normal equations, a handwritten Cholesky
// factorisation.
//
//     min  sum_i (y_i - b - w.x_i)^2 + a |w|^2
//
// ridge_serial TRAINING [--a A] [--test FILE] [--standardize] [--features a,b,c --target t] [--theta FILE to write]
#include "samples.hpp"

namespace {

void work(int argc, char** argv) {
  const serial::arguments o(argc, argv, {"standardize"});
  const auto s = serial::load(o.file(), true, o.list("features"), o.text("target"));
  const double a = o.number("a", 1);
  const std::size_t n = s.rows();
  const std::size_t p = s.columns;
  auto x = serial::dense_rows(s);
  auto y = s.label;
  std::vector<double> mean;
  std::vector<double> sd;
  double y_mean = 0;
  serial::centre(x, y, p, o.has("standardize"), mean, sd, y_mean);

  std::vector<double> m(p * p);
  std::vector<double> w(p);
  for (std::size_t i = 0; i < n; ++i) {
    const double* row = x.data() + i * p;
    for (std::size_t j = 0; j < p; ++j) {
      for (std::size_t k = 0; k <= j; ++k) m[j * p + k] += row[j] * row[k];
      w[j] += row[j] * y[i];
    }
  }
  // M + a I = L L', in place; then L u = X'y and L' w = u.
  for (std::size_t j = 0; j < p; ++j) {
    m[j * p + j] += a;
    for (std::size_t k = 0; k < j; ++k) m[j * p + j] -= m[j * p + k] * m[j * p + k];
    if (m[j * p + j] <= 0) throw std::runtime_error("the normal equations are singular");
    m[j * p + j] = std::sqrt(m[j * p + j]);
    for (std::size_t i = j + 1; i < p; ++i) {
      for (std::size_t k = 0; k < j; ++k) m[i * p + j] -= m[i * p + k] * m[j * p + k];
      m[i * p + j] /= m[j * p + j];
    }
  }
  for (std::size_t j = 0; j < p; ++j) {
    for (std::size_t k = 0; k < j; ++k) w[j] -= m[j * p + k] * w[k];
    w[j] /= m[j * p + j];
  }
  for (std::size_t j = p; j-- > 0;) {
    for (std::size_t k = j + 1; k < p; ++k) w[j] -= m[k * p + j] * w[k];
    w[j] /= m[j * p + j];
  }

  double squares = 0;
  for (std::size_t i = 0; i < n; ++i) {
    double e = y[i];
    for (std::size_t j = 0; j < p; ++j) e -= x[i * p + j] * w[j];
    squares += e * e;
  }
  double norm = 0;
  std::vector<double> theta{y_mean};
  for (std::size_t j = 0; j < p; ++j) {
    norm += w[j] * w[j];
    theta.push_back(w[j] / sd[j]);
    theta[0] -= theta.back() * mean[j];
  }
  std::printf("objective %.17g\ntrain_rmse %.17g\n", squares + a * norm, std::sqrt(squares / static_cast<double>(n)));
  if (o.has("test"))
    serial::print_rmse(serial::load(o.text("test"), true, o.list("features"), o.text("target")), theta);
  if (o.has("theta")) serial::write_vector(o.text("theta"), theta);
}

}  // namespace

int main(int argc, char** argv) { return serial::run("ridge_serial", argc, argv, work); }
