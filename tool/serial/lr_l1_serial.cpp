// SPDX-License-Identifier: BSD-3-Clause
//
// The serial oracle of lr_l1: cyclic coordinate descent by one-dimensional Newton steps with a line search, on columns.
//
//     min  |w|_1 + C sum_i log(1 + exp(-y_i w.x_i))
//
// lr_l1_serial TRAINING [--C C] [--tolerance T] [--bias] [--test FILE] [--theta FILE to write]
//
// Source: G.-X. Yuan et al., "A comparison of optimization methods and software for large-scale L1-regularized linear
// classification", JMLR 11, 2010, section 4 (CDN).
#include "samples.hpp"

namespace {

double loss(double z) { return z > 0 ? std::log1p(std::exp(-z)) : std::log1p(std::exp(z)) - z; }

void work(int argc, char** argv) {
  const serial::arguments o(argc, argv, {"bias"});
  auto s = serial::load(o.file());
  const double c = o.number("C", 1);
  const double tolerance = o.number("tolerance", 1e-5);
  const std::size_t n = s.rows();
  const bool bias = o.has("bias");
  const std::size_t p = s.columns + (bias ? 1 : 0);
  for (auto& y : s.label) y = y > 0 ? 1 : -1;

  // Columns.
  std::vector<std::size_t> begin(p + 1);
  const auto visit = [&](auto&& f) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t k = s.begin[i]; k < s.begin[i + 1]; ++k) {
        if (s.value[k] != 0) f(i, s.dense ? k - s.begin[i] : s.column[k], s.value[k]);
      }
      if (bias) f(i, p - 1, 1.0);
    }
  };
  visit([&](std::size_t, std::size_t j, double) { ++begin[j + 1]; });
  for (std::size_t j = 0; j < p; ++j) begin[j + 1] += begin[j];
  std::vector<unsigned> row(begin[p]);
  std::vector<double> value(begin[p]);
  auto at = begin;
  visit([&](std::size_t i, std::size_t j, double v) {
    row[at[j]] = static_cast<unsigned>(i);
    value[at[j]++] = v;
  });

  std::vector<double> w(p);
  std::vector<double> z(n);  // y w.x
  double worst = 0;
  int sweep = 0;
  for (; sweep < 100000; ++sweep) {
    worst = 0;
    for (std::size_t j = 0; j < p; ++j) {
      const double l1 = bias && j + 1 == p ? 0 : 1;
      double slope = 0;
      double curve = 1e-12;
      for (std::size_t k = begin[j]; k < begin[j + 1]; ++k) {
        const std::size_t i = row[k];
        const double wrong = 1 / (1 + std::exp(z[i]));
        slope -= c * s.label[i] * value[k] * wrong;
        curve += c * value[k] * value[k] * wrong * (1 - wrong);
      }
      const double violation =
          w[j] == 0 ? std::max(0.0, std::abs(slope) - l1) : std::abs(slope + std::copysign(l1, w[j]));
      worst = std::max(worst, violation);
      if (violation == 0) continue;
      double step = -w[j];
      if (slope + l1 <= curve * w[j]) step = -(slope + l1) / curve;
      else if (slope - l1 >= curve * w[j]) step = -(slope - l1) / curve;
      const double expected = slope * step + l1 * (std::abs(w[j] + step) - std::abs(w[j]));
      for (int half = 0; half < 40; ++half, step /= 2) {
        double change = l1 * (std::abs(w[j] + step) - std::abs(w[j]));
        for (std::size_t k = begin[j]; k < begin[j + 1]; ++k) {
          const std::size_t i = row[k];
          change += c * (loss(z[i] + step * s.label[i] * value[k]) - loss(z[i]));
        }
        if (change <= 0.01 * expected * std::ldexp(1.0, -half) + 1e-12) break;
      }
      w[j] += step;
      for (std::size_t k = begin[j]; k < begin[j + 1]; ++k) z[row[k]] += step * s.label[row[k]] * value[k];
    }
    if (worst <= tolerance) break;
  }

  double objective = 0;
  int nonzeros = 0;
  for (std::size_t i = 0; i < n; ++i) objective += c * loss(z[i]);
  for (std::size_t j = 0; j < p; ++j) {
    if (!bias || j + 1 < p) objective += std::abs(w[j]);
    nonzeros += w[j] != 0 ? 1 : 0;
  }
  std::printf("objective %.17g\nnonzeros %d\nviolation %.3g\nrounds %d\n", objective, nonzeros, worst, sweep + 1);
  if (o.has("test")) {
    const auto test = serial::load(o.text("test"));
    const double shift = bias ? w.back() : 0;
    auto weights = w;
    if (bias) weights.pop_back();
    double right = 0;
    for (std::size_t i = 0; i < test.rows(); ++i) {
      right += (serial::product(test, i, weights) + shift >= 0) == (test.label[i] > 0) ? 1 : 0;
    }
    std::printf("accuracy %.17g\n", right / static_cast<double>(test.rows()));
  }
  if (bias) std::rotate(w.begin(), w.end() - 1, w.end());
  if (o.has("theta")) serial::write_vector(o.text("theta"), w);
}

}  // namespace

int main(int argc, char** argv) { return serial::run("lr_l1_serial", argc, argv, work); }
