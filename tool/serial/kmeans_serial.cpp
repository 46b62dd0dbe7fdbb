// SPDX-License-Identifier: BSD-3-Clause
//
// The serial oracle of k-means: k-means++ and Lloyd's algorithm, every distance computed in every round, until no point
// changes its centre.
//
//     kmeans_serial POINTS [--k K] [--seed S] [--n_init N] [--rounds R] [--start CENTRES] [--cosine]
//         [--labels FILE to write]
//
// CENTRES: one centre a line, `number<tab>x|x|...`, as kmeans writes them; then k and seed are ignored. --rounds 0 only
// assigns.
#include <limits>
#include <random>

#include "samples.hpp"

namespace {

struct clustering {
  std::vector<double> centres;
  std::vector<unsigned> label;
  double inertia = std::numeric_limits<double>::infinity();
  int rounds = 0;
};

double distance(const double* x, const double* c, std::size_t d) {
  double sum = 0;
  for (std::size_t j = 0; j < d; ++j) sum += (x[j] - c[j]) * (x[j] - c[j]);
  return sum;
}

void normalise(double* x, std::size_t d) {
  double norm = 0;
  for (std::size_t j = 0; j < d; ++j) norm += x[j] * x[j];
  if (norm == 0) return;
  for (std::size_t j = 0; j < d; ++j) x[j] /= std::sqrt(norm);
}

std::vector<double> seeds(const std::vector<double>& x, std::size_t d, std::size_t k, std::mt19937_64& random) {
  const std::size_t n = x.size() / d;
  std::vector<double> square(n, std::numeric_limits<double>::infinity());
  std::vector<double> centres;
  std::size_t next = random() % n;
  for (std::size_t c = 0; c < k; ++c) {
    centres.insert(centres.end(), x.begin() + static_cast<std::ptrdiff_t>(next * d),
                   x.begin() + static_cast<std::ptrdiff_t>((next + 1) * d));
    double total = 0;
    for (std::size_t i = 0; i < n; ++i) {
      square[i] = std::min(square[i], distance(x.data() + i * d, centres.data() + c * d, d));
      total += square[i];
    }
    double left = std::uniform_real_distribution<double>(0, total)(random);
    for (next = 0; next + 1 < n && (left -= square[next]) >= 0;) ++next;
  }
  return centres;
}

/// Returns whether a point has changed its centre.
bool assign(const std::vector<double>& x, std::size_t d, clustering& c) {
  const std::size_t n = x.size() / d;
  const bool first = c.label.empty();
  c.label.resize(n);
  c.inertia = 0;
  bool changed = first;
  for (std::size_t i = 0; i < n; ++i) {
    unsigned best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < c.centres.size() / d; ++k) {
      const double square = distance(x.data() + i * d, c.centres.data() + k * d, d);
      if (square >= least) continue;
      least = square;
      best = static_cast<unsigned>(k);
    }
    changed = changed || c.label[i] != best;
    c.label[i] = best;
    c.inertia += least;
  }
  return changed;
}

clustering lloyd(const std::vector<double>& x, std::size_t d, std::vector<double> start, int rounds, bool cosine) {
  clustering c;
  c.centres = std::move(start);
  const std::size_t n = x.size() / d;
  const std::size_t k = c.centres.size() / d;
  while (assign(x, d, c) && c.rounds < rounds) {
    ++c.rounds;
    std::vector<double> sum(k * d);
    std::vector<std::size_t> count(k);
    for (std::size_t i = 0; i < n; ++i) {
      ++count[c.label[i]];
      for (std::size_t j = 0; j < d; ++j) sum[c.label[i] * d + j] += x[i * d + j];
    }
    for (std::size_t a = 0; a < k; ++a) {
      for (std::size_t j = 0; j < d && count[a] > 0; ++j) {
        c.centres[a * d + j] = sum[a * d + j] / static_cast<double>(count[a]);
      }
      if (cosine && count[a] > 0) normalise(c.centres.data() + a * d, d);
    }
  }
  return c;
}

void work(int argc, char** argv) {
  const serial::arguments o(argc, argv, {"cosine"});
  const auto s = serial::load(o.file(), false);
  const std::size_t d = s.columns;
  auto x = serial::dense_rows(s);
  if (o.has("cosine")) {
    for (std::size_t i = 0; i < s.rows(); ++i) normalise(x.data() + i * d, d);
  }
  const int rounds = static_cast<int>(o.number("rounds", 1000));
  clustering best;
  if (o.has("start")) {
    std::vector<double> centres;
    const auto text = serial::whole(o.text("start"));
    for (const auto& line : serial::split(text, '\n')) {
      if (line.empty()) continue;
      for (const auto& v : serial::split(line.substr(line.find('\t') + 1), '|')) centres.push_back(std::stod(v));
    }
    best = lloyd(x, d, std::move(centres), rounds, o.has("cosine"));
  } else {
    std::mt19937_64 random(static_cast<unsigned long>(o.number("seed", 0)));
    for (int run = 0; run < static_cast<int>(o.number("n_init", 1)); ++run) {
      auto c = lloyd(x, d, seeds(x, d, static_cast<std::size_t>(o.number("k", 8)), random), rounds, o.has("cosine"));
      if (c.inertia < best.inertia) best = std::move(c);
    }
  }
  std::printf("inertia %.17g\nrounds %d\n", best.inertia, best.rounds);
  if (!o.has("labels")) return;
  std::FILE* out = std::fopen(o.text("labels").c_str(), "w");
  if (out == nullptr) throw std::runtime_error("cannot write " + o.text("labels"));
  for (const auto l : best.label) std::fprintf(out, "%u\n", l);
  std::fclose(out);
}

}  // namespace

int main(int argc, char** argv) { return serial::run("kmeans_serial", argc, argv, work); }
