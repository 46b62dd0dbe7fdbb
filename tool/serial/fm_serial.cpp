// SPDX-License-Identifier: BSD-3-Clause
//
// A factorization machine for tool/bench/cost.py: squared loss, adagrad, one process, one thread, its own parser.
// Initial values, order, batches and steps are those of fm with one worker.
//
//     fm_serial TRAIN [--k 8] [--rounds 20] [--batch 1000] [--alpha .05] [--start .01] [--seed 0]
#include <cstdint>
#include <numeric>

#include "counter_random.hpp"
#include "samples.hpp"

namespace {

struct machine {
  std::size_t k;
  double bias = 0;
  std::vector<double> w;
  std::vector<double> v;    // k a feature
  std::vector<double> sum;  // of v x, set by margin()

  double margin(const serial::samples& s, std::size_t i) {
    double total = bias;
    double squares = 0;
    std::fill(sum.begin(), sum.end(), 0.0);
    for (std::size_t e = s.begin[i]; e < s.begin[i + 1]; ++e) {
      const std::size_t j = s.column_of(i, e);
      const double x = s.value[e];
      total += w[j] * x;
      for (std::size_t f = 0; f < k; ++f) {
        const double t = v[j * k + f] * x;
        sum[f] += t;
        squares += t * t;
      }
    }
    double all = 0;
    for (const double t : sum) all += t * t;
    return total + (all - squares) / 2;
  }
};

void work(int argc, char** argv) {
  const serial::arguments given(argc, argv);
  const double alpha = given.number("alpha", .05);
  const auto seed = static_cast<std::uint64_t>(given.number("seed", 0));
  const auto batch = static_cast<std::size_t>(given.number("batch", 1000));
  const auto train = serial::load(given.file());
  const auto rows = train.rows();
  const auto k = static_cast<std::size_t>(given.number("k", 8));
  machine m{.k = k,
            .w = std::vector<double>(train.columns),
            .v = std::vector<double>(train.columns * k),
            .sum = std::vector<double>(k)};
  for (std::size_t j = 0; j < train.columns; ++j) {
    serial::counter_random random(seed, 1, j + 1);
    for (std::size_t f = 0; f < k; ++f) m.v[j * k + f] = given.number("start", .01) * random.normal();
  }
  m.bias = std::accumulate(train.label.begin(), train.label.end(), 0.0) / static_cast<double>(rows);

  const auto step = [alpha](double& value, double& state, double gradient) {
    state += gradient * gradient;
    value -= alpha * gradient / (std::sqrt(state) + 1e-8);
  };
  double bias_state = 0;
  auto w_state = m.w;
  std::vector<double> v_state(m.v.size());
  const std::size_t batches = (rows + batch - 1) / batch;
  std::vector<std::size_t> order(rows);
  std::vector<double> gradient(train.columns * (k + 1));  // w and the factors of a feature
  std::vector<bool> is_touched(train.columns);
  std::vector<std::size_t> touched;
  for (int round = 0; round < static_cast<int>(given.number("rounds", 20)); ++round) {
    std::iota(order.begin(), order.end(), std::size_t{0});
    serial::counter_random random(seed, 2, static_cast<std::uint64_t>(round));
    for (std::size_t i = rows; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (std::size_t b = 0; b < batches; ++b) {
      double bias_gradient = 0;
      touched.clear();
      for (std::size_t p = rows * b / batches; p < rows * (b + 1) / batches; ++p) {
        const auto i = order[p];
        const double slope = m.margin(train, i) - train.label[i];
        bias_gradient += slope;
        for (std::size_t e = train.begin[i]; e < train.begin[i + 1]; ++e) {
          const std::size_t j = train.column_of(i, e);
          const double x = train.value[e];
          double* g = &gradient[j * (k + 1)];
          if (!is_touched[j]) touched.push_back(j);
          is_touched[j] = true;
          g[0] += slope * x;
          for (std::size_t f = 0; f < k; ++f) g[f + 1] += slope * x * (m.sum[f] - m.v[j * k + f] * x);
        }
      }
      step(m.bias, bias_state, bias_gradient);
      for (const auto j : touched) {
        double* g = &gradient[j * (k + 1)];
        step(m.w[j], w_state[j], g[0]);
        for (std::size_t f = 0; f < k; ++f) step(m.v[j * k + f], v_state[j * k + f], g[f + 1]);
        std::fill(g, g + k + 1, 0.0);
        is_touched[j] = false;
      }
    }
  }
  double squares = 0;
  for (std::size_t i = 0; i < rows; ++i) squares += std::pow(m.margin(train, i) - train.label[i], 2);
  std::printf("train_rmse %.17g\n", std::sqrt(squares / static_cast<double>(rows)));
}

}  // namespace

int main(int argc, char** argv) { return serial::run("fm_serial", argc, argv, work); }
