// SPDX-License-Identifier: BSD-3-Clause
//
// The serial oracle of logistic regression: one process, no framework, its own parser and its own mathematics.
//
//     J(theta) = (1/n) sum_i log(1 + exp(-y_i theta.x_i)) + beta |theta|^2
//
// `newton` (default) minimises J to the last digits: Newton's method, with conjugate gradients on the exact Hessian and
// steps halved until J decreases. `dgd` takes `rounds` steps of size alpha along the exact gradient, from theta = 0.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
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

struct options {
  std::string training;
  std::string test;
  std::string method = "newton";
  std::string theta_file;
  double alpha = 1;
  double beta = -1;  // below zero: 1/(2n)
  int rounds = 100;
  bool bias = true;
  bool penalize_bias = true;
};

double number(const std::string& text) {
  std::size_t used = 0;
  const double v = std::stod(text, &used);
  if (used != text.size() || !std::isfinite(v)) throw std::runtime_error("not a number: " + text);
  return v;
}

/// Feature j of the file becomes coordinate j + 1 with a bias (coordinate 0 is 1), else j.
std::vector<sample> load(const std::string& file, bool bias, std::size_t& dimension) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error("cannot read " + file);
  std::vector<sample> samples;
  std::string line;
  const std::size_t shift = bias ? 1 : 0;
  while (std::getline(in, line)) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    sample s;
    if (bias) s.features.emplace_back(0, 1.0);
    if (line.find(',') != std::string::npos && line.find(':') == std::string::npos) {
      std::istringstream words(line);
      std::string word;
      std::vector<double> values;
      while (std::getline(words, word, ',')) values.push_back(number(word));
      s.label = values.back();
      values.pop_back();
      for (std::size_t j = 0; j < values.size(); ++j) s.features.emplace_back(j + shift, values[j]);
    } else {
      std::istringstream words(line);
      std::string word;
      words >> word;
      s.label = number(word);
      while (words >> word) {
        const auto colon = word.find(':');
        if (colon == std::string::npos) throw std::runtime_error("not index:value: " + word);
        s.features.emplace_back(std::stoul(word.substr(0, colon)) - 1 + shift, number(word.substr(colon + 1)));
      }
    }
    s.label = s.label > 0 ? 1 : -1;
    for (const auto& [j, x] : s.features) dimension = std::max(dimension, j + 1);
    samples.push_back(std::move(s));
  }
  if (samples.empty()) throw std::runtime_error("no samples in " + file);
  return samples;
}

double margin(const sample& s, const std::vector<double>& theta) {
  double sum = 0;
  for (const auto& [j, x] : s.features) {
    if (j < theta.size()) sum += theta[j] * x;
  }
  return sum;
}

double inner(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t j = 0; j < a.size(); ++j) sum += a[j] * b[j];
  return sum;
}

class objective {
 public:
  objective(const std::vector<sample>& samples, std::size_t dimension, const options& o)
      : samples_(samples), weight_(dimension, o.beta) {
    if (o.bias && !o.penalize_bias) weight_[0] = 0;
  }

  [[nodiscard]] double value(const std::vector<double>& theta) const {
    double sum = 0;
    for (const auto& s : samples_) {
      const double z = s.label * margin(s, theta);
      sum += z > 0 ? std::log1p(std::exp(-z)) : std::log1p(std::exp(z)) - z;
    }
    sum /= static_cast<double>(samples_.size());
    for (std::size_t j = 0; j < theta.size(); ++j) sum += weight_[j] * theta[j] * theta[j];
    return sum;
  }

  [[nodiscard]] std::vector<double> gradient(const std::vector<double>& theta) const {
    std::vector<double> g(theta.size());
    for (const auto& s : samples_) {
      const double z = s.label * margin(s, theta);
      const double slope = -s.label / (1 + std::exp(z));
      for (const auto& [j, x] : s.features) g[j] += slope * x;
    }
    for (std::size_t j = 0; j < g.size(); ++j) {
      g[j] = g[j] / static_cast<double>(samples_.size()) + 2 * weight_[j] * theta[j];
    }
    return g;
  }

  /// The second derivative of each sample's loss at theta, for `times_hessian`.
  [[nodiscard]] std::vector<double> curvature(const std::vector<double>& theta) const {
    std::vector<double> c;
    c.reserve(samples_.size());
    for (const auto& s : samples_) {
      const double p = 1 / (1 + std::exp(-margin(s, theta)));
      c.push_back(p * (1 - p) / static_cast<double>(samples_.size()));
    }
    return c;
  }
  [[nodiscard]] std::vector<double> times_hessian(const std::vector<double>& curvature,
                                                  const std::vector<double>& v) const {
    std::vector<double> out(v.size());
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      const double t = curvature[i] * margin(samples_[i], v);
      for (const auto& [j, x] : samples_[i].features) out[j] += t * x;
    }
    for (std::size_t j = 0; j < v.size(); ++j) out[j] += 2 * weight_[j] * v[j];
    return out;
  }

 private:
  const std::vector<sample>& samples_;
  std::vector<double> weight_;
};

std::vector<double> newton(const objective& J, std::size_t dimension) {
  std::vector<double> theta(dimension);
  double value = J.value(theta);
  for (int step = 0; step < 100; ++step) {
    const auto g = J.gradient(theta);
    const double norm = std::sqrt(inner(g, g));
    if (norm < 1e-13) break;
    // Conjugate gradients for H p = -g, with increasing accuracy.
    const auto curvature = J.curvature(theta);
    std::vector<double> p(dimension);
    auto r = g;
    for (auto& x : r) x = -x;
    auto d = r;
    double rr = inner(r, r);
    const double enough = std::min(0.1, norm) * norm;
    for (std::size_t k = 0; k < 20 * dimension && std::sqrt(rr) > enough; ++k) {
      const auto Hd = J.times_hessian(curvature, d);
      const double bend = inner(d, Hd);
      if (bend <= 0) break;
      const double a = rr / bend;
      for (std::size_t j = 0; j < dimension; ++j) {
        p[j] += a * d[j];
        r[j] -= a * Hd[j];
      }
      const double next = inner(r, r);
      for (std::size_t j = 0; j < dimension; ++j) d[j] = r[j] + next / rr * d[j];
      rr = next;
    }
    double size = 1;
    auto candidate = theta;
    double reached = value;
    for (; size > 1e-10; size /= 2) {
      for (std::size_t j = 0; j < dimension; ++j) candidate[j] = theta[j] + size * p[j];
      reached = J.value(candidate);
      if (reached <= value) break;
    }
    if (size <= 1e-10) break;  // converged to the last digit of J
    theta = candidate;
    value = reached;
  }
  return theta;
}

std::vector<double> descend(const objective& J, std::size_t dimension, double alpha, int rounds) {
  std::vector<double> theta(dimension);
  for (int k = 0; k < rounds; ++k) {
    const auto g = J.gradient(theta);
    for (std::size_t j = 0; j < dimension; ++j) theta[j] -= alpha * g[j];
  }
  return theta;
}

void measure(const std::vector<sample>& samples, const std::vector<double>& theta) {
  std::vector<std::pair<double, double>> scored;
  double right = 0;
  double loss = 0;
  for (const auto& s : samples) {
    const double m = margin(s, theta);
    scored.emplace_back(m, s.label);
    right += (m >= 0) == (s.label > 0) ? 1 : 0;
    const double z = s.label * m;
    loss += z > 0 ? std::log1p(std::exp(-z)) : std::log1p(std::exp(z)) - z;
  }
  // By definition: for each +1 the number of -1 with a smaller score, and half of those with an equal one.
  std::sort(scored.begin(), scored.end());
  double pairs = 0;
  double below = 0;
  double positives = 0;
  for (std::size_t i = 0; i < scored.size();) {
    double negatives_here = 0;
    double positives_here = 0;
    std::size_t j = i;
    for (; j < scored.size() && scored[j].first == scored[i].first; ++j) {
      (scored[j].second > 0 ? positives_here : negatives_here) += 1;
    }
    pairs += positives_here * (below + negatives_here / 2);
    below += negatives_here;
    positives += positives_here;
    i = j;
  }
  const auto n = static_cast<double>(samples.size());
  std::printf("accuracy %.10g\nauc %.10g\nlog_loss %.10g\n", right / n, pairs / (positives * below), loss / n);
}

options parse(int argc, char** argv) {
  options o;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--no_bias") {
      o.bias = false;
      continue;
    }
    if (name == "--free_bias") {
      o.penalize_bias = false;
      continue;
    }
    if (name.rfind("--", 0) != 0) {
      if (!o.training.empty()) throw std::runtime_error("more than one training file: " + name);
      o.training = name;
      continue;
    }
    if (++i == argc) throw std::runtime_error("no value after " + name);
    const std::string value = argv[i];
    if (name == "--test") o.test = value;
    else if (name == "--method") o.method = value;
    else if (name == "--theta") o.theta_file = value;
    else if (name == "--alpha") o.alpha = number(value);
    else if (name == "--beta") o.beta = number(value);
    else if (name == "--rounds") o.rounds = std::stoi(value);
    else throw std::runtime_error("unknown option " + name);
  }
  if (o.training.empty() || (o.method != "newton" && o.method != "dgd")) {
    throw std::runtime_error(
        "usage: lr_serial TRAINING [--test FILE] [--method newton|dgd] [--alpha A] [--rounds N]"
        " [--beta B (default 1/(2n))] [--no_bias] [--free_bias] [--theta FILE to write]");
  }
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto o = parse(argc, argv);
    std::size_t dimension = 0;
    const auto samples = load(o.training, o.bias, dimension);
    if (o.beta < 0) o.beta = 1 / (2 * static_cast<double>(samples.size()));
    const objective J(samples, dimension, o);
    const auto theta = o.method == "dgd" ? descend(J, dimension, o.alpha, o.rounds) : newton(J, dimension);
    const auto g = J.gradient(theta);
    std::printf("objective %.17g\ngradient_norm %.3g\n", J.value(theta), std::sqrt(inner(g, g)));
    if (!o.test.empty()) {
      std::size_t ignored = 0;
      measure(load(o.test, o.bias, ignored), theta);
    }
    if (!o.theta_file.empty()) {
      std::ofstream out(o.theta_file);
      out.precision(17);
      for (std::size_t j = 0; j < theta.size(); ++j) out << (j == 0 ? "" : "|") << theta[j];
      out << '\n';
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "lr_serial: error: %s\n", e.what());
    return 1;
  }
}
