// SPDX-License-Identifier: BSD-3-Clause
//
// Logistic regression for tool/bench/cost.py: `rounds` steps of size alpha along the exact gradient, from theta = 0.
// One process, no framework, its own parser and its own mathematics; lines `x,x,...,label`, the label is 1 if positive.
//
//     J(theta) = (1/n) sum_i log(1 + exp(-y_i theta.x_i)) + beta |theta|^2
//
//     lr_serial TRAINING [--alpha 1] [--beta 0.001] [--rounds 100]
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

struct sample {
  double label = 0;
  std::vector<std::pair<std::size_t, double>> features;
};

double number(const std::string& text) {
  std::size_t used = 0;
  const double v = std::stod(text, &used);
  if (used != text.size() || !std::isfinite(v)) throw std::runtime_error("not a number: " + text);
  return v;
}

/// Feature j of the file becomes coordinate j + 1; coordinate 0 is 1.
std::vector<sample> load(const std::string& file, std::size_t& dimension) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error("cannot read " + file);
  std::vector<sample> samples;
  std::string line;
  while (std::getline(in, line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::istringstream words(line);
    std::string word;
    std::vector<double> values;
    while (std::getline(words, word, ',')) values.push_back(number(word));
    sample s;
    s.label = values.back() > 0 ? 1 : -1;
    s.features.emplace_back(0, 1.0);
    for (std::size_t j = 0; j + 1 < values.size(); ++j) s.features.emplace_back(j + 1, values[j]);
    dimension = std::max(dimension, s.features.size());
    samples.push_back(std::move(s));
  }
  if (samples.empty()) throw std::runtime_error("no samples in " + file);
  return samples;
}

double margin(const sample& s, const std::vector<double>& theta) {
  double sum = 0;
  for (const auto& [j, x] : s.features) sum += theta[j] * x;
  return sum;
}

double objective(const std::vector<sample>& samples, double beta, const std::vector<double>& theta) {
  double sum = 0;
  for (const auto& s : samples) {
    const double z = s.label * margin(s, theta);
    sum += z > 0 ? std::log1p(std::exp(-z)) : std::log1p(std::exp(z)) - z;
  }
  sum /= static_cast<double>(samples.size());
  for (const double t : theta) sum += beta * t * t;
  return sum;
}

std::vector<double> gradient(const std::vector<sample>& samples, double beta, const std::vector<double>& theta) {
  std::vector<double> g(theta.size());
  for (const auto& s : samples) {
    const double slope = -s.label / (1 + std::exp(s.label * margin(s, theta)));
    for (const auto& [j, x] : s.features) g[j] += slope * x;
  }
  for (std::size_t j = 0; j < g.size(); ++j) g[j] = g[j] / static_cast<double>(samples.size()) + 2 * beta * theta[j];
  return g;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::map<std::string, double> o{{"--alpha", 1}, {"--beta", 0.001}, {"--rounds", 100}};
    if (argc < 2) throw std::runtime_error("usage: lr_serial TRAINING [--alpha A] [--beta B] [--rounds N]");
    for (int i = 2; i + 1 < argc; i += 2) o.at(argv[i]) = number(argv[i + 1]);
    std::size_t dimension = 0;
    const auto samples = load(argv[1], dimension);
    std::vector<double> theta(dimension);
    for (int k = 0; k < static_cast<int>(o["--rounds"]); ++k) {
      const auto g = gradient(samples, o["--beta"], theta);
      for (std::size_t j = 0; j < dimension; ++j) theta[j] -= o["--alpha"] * g[j];
    }
    std::printf("objective %.17g\n", objective(samples, o["--beta"], theta));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "lr_serial: error: %s\n", e.what());
    return 1;
  }
}
