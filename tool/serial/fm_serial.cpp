// SPDX-License-Identifier: BSD-3-Clause
//
// The serial oracle of fm: one process, one thread, its own parser. Initial values, order, batches and steps are those
// of fm with one worker; with --pairs 1 pairs of features are summed one by one. als solves for one feature after the
// other, in the order of a greedy colouring, by Gaussian elimination.
//
//     fm_serial TRAIN [--test FILE] [--loss squared|log] [--method adagrad|sgd|als] [--k 8] [--rounds 20]
//               [--batch 1000] [--alpha .05] [--beta_w 0] [--beta_v 0] [--start .01] [--seed 0] [--pairs 0]
#include <cstdint>
#include <map>
#include <numeric>
#include <set>

#include "samples.hpp"

namespace {

/// The same numbers as the framework's counter_random: SplitMix64 from a state that hashes seed, stream and row.
class counter_random {
 public:
  counter_random(std::uint64_t seed, std::uint64_t stream, std::uint64_t row)
      : state_(
            mix(mix(mix(seed + 0x9e3779b97f4a7c15U) ^ (stream + 0xd1b54a32d192ed03U)) ^ (row + 0x8cb92ba72f3d8dd7U))) {}
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
  }
  std::uint64_t bits() { return mix(state_ += 0x9e3779b97f4a7c15U); }
  double normal() {
    const double radius = std::sqrt(-2 * std::log((static_cast<double>(bits() >> 11U) + 1) * 0x1p-53));
    return radius * std::cos(2 * 3.141592653589793238 * (static_cast<double>(bits() >> 11U) * 0x1p-53));
  }
  std::uint64_t below(std::uint64_t bound) {
    __extension__ using wide = unsigned __int128;
    auto product = static_cast<wide>(bits()) * bound;
    while (static_cast<std::uint64_t>(product) < bound && static_cast<std::uint64_t>(product) < -bound % bound) {
      product = static_cast<wide>(bits()) * bound;
    }
    return static_cast<std::uint64_t>(product >> 64U);
  }

 private:
  std::uint64_t state_;
};

struct machine {
  std::size_t k = 8;
  bool log = false;
  bool pairs = false;  // sums over pairs of features
  double bias = 0;
  double bias_state = 0;
  std::vector<double> w, w_state;
  std::vector<double> v, v_state;  // k a feature

  /// Also sets `entries` and `sum`.
  double margin(const serial::samples& s, std::size_t i) {
    entries.clear();
    for (std::size_t e = s.begin[i]; e < s.begin[i + 1]; ++e) {
      const std::size_t j = s.dense ? e - s.begin[i] : s.column[e];
      if (s.value[e] != 0 && j < w.size()) entries.emplace_back(j, s.value[e]);
    }
    double total = bias;
    std::fill(sum.begin(), sum.end(), 0.0);
    std::fill(squares.begin(), squares.end(), 0.0);
    for (const auto& [j, x] : entries) {
      total += w[j] * x;
      for (std::size_t f = 0; f < k; ++f) {
        const double t = v[j * k + f] * x;
        sum[f] += t;
        squares[f] += t * t;
      }
    }
    if (!pairs) {
      for (std::size_t f = 0; f < k; ++f) total += (sum[f] * sum[f] - squares[f]) / 2;
      return total;
    }
    for (std::size_t a = 0; a < entries.size(); ++a) {
      for (std::size_t b = a + 1; b < entries.size(); ++b) {
        const auto [j, x] = entries[a];
        const auto [l, y] = entries[b];
        for (std::size_t f = 0; f < k; ++f) total += x * y * v[j * k + f] * v[l * k + f];
      }
    }
    return total;
  }

  std::vector<std::pair<std::size_t, double>> entries;
  std::vector<double> sum, squares;
};

double loss_of(const machine& m, double margin, double label) {
  if (!m.log) return (margin - label) * (margin - label) / 2;
  return std::log1p(std::exp(-std::abs(label * margin))) + std::max(-label * margin, 0.0);
}

double slope_of(const machine& m, double margin, double label) {
  return m.log ? -label / (1 + std::exp(label * margin)) : margin - label;
}

/// Solves a x = b by Gaussian elimination with partial pivoting. a: n rows of n + 1, the last column b.
std::vector<double> eliminate(std::vector<std::vector<double>> a) {
  const std::size_t n = a.size();
  for (std::size_t c = 0; c < n; ++c) {
    std::size_t best = c;
    for (std::size_t r = c; r < n; ++r) best = std::abs(a[r][c]) > std::abs(a[best][c]) ? r : best;
    std::swap(a[c], a[best]);
    for (std::size_t r = 0; r < n; ++r) {
      if (r == c) continue;
      const double times = a[r][c] / a[c][c];
      for (std::size_t l = c; l <= n; ++l) a[r][l] -= times * a[c][l];
    }
  }
  std::vector<double> x(n);
  for (std::size_t c = 0; c < n; ++c) x[c] = a[c][n] / a[c][c];
  return x;
}

/// Rounds of alternating least squares: w_0, then one feature after the other by (colour, number). A feature's colour
/// is the least that no earlier feature has which shares a sample with it.
void alternate(machine& m, const serial::samples& train, int rounds, double beta_w, double beta_v) {
  std::vector<std::vector<std::pair<std::size_t, double>>> samples_of(m.w.size());  // of a feature
  std::vector<std::set<std::size_t>> near(m.w.size());
  for (std::size_t i = 0; i < train.rows(); ++i) {
    m.margin(train, i);
    for (const auto& [j, x] : m.entries) {
      samples_of[j].emplace_back(i, x);
      for (const auto& [l, y] : m.entries) near[j].insert(l);
    }
  }
  std::map<std::size_t, std::vector<std::size_t>> colours;
  std::vector<std::size_t> colour(m.w.size());
  for (std::size_t j = 0; j < m.w.size(); ++j) {
    if (samples_of[j].empty()) continue;
    std::set<std::size_t> taken;
    for (const auto l : near[j]) {
      if (l < j) taken.insert(colour[l]);
    }
    while (taken.count(colour[j]) > 0) ++colour[j];
    colours[colour[j]].push_back(j);
  }
  std::printf("colours %zu\n", colours.size());
  const auto curvature_of = [&](double margin) {
    if (!m.log) return 1.0;
    return margin == 0 ? 0.25 : (1 / (1 + std::exp(-margin)) - 0.5) / margin;  // the bound of Jaakkola and Jordan
  };
  for (int round = 0; round < rounds; ++round) {
    double slopes = 0;
    double curvatures = 0;
    for (std::size_t i = 0; i < train.rows(); ++i) {
      const double margin = m.margin(train, i);
      slopes += slope_of(m, margin, train.label[i]);
      curvatures += curvature_of(margin);
    }
    m.bias -= slopes / curvatures;
    for (const auto& [c, features] : colours) {
      for (const auto j : features) {
        // The k + 1 numbers themselves: sum c h h' z = sum h (c h . old - slope), and the penalties.
        std::vector<std::vector<double>> a(m.k + 1, std::vector<double>(m.k + 2));
        std::vector<double> h(m.k + 1);
        for (const auto& [i, x] : samples_of[j]) {
          const double margin = m.margin(train, i);
          const double curvature = curvature_of(margin);
          h[0] = x;
          double now = x * m.w[j];
          for (std::size_t f = 0; f < m.k; ++f) {
            h[f + 1] = x * (m.sum[f] - m.v[j * m.k + f] * x);
            now += h[f + 1] * m.v[j * m.k + f];
          }
          for (std::size_t r = 0; r <= m.k; ++r) {
            for (std::size_t l = 0; l <= m.k; ++l) a[r][l] += curvature * h[r] * h[l];
            a[r][m.k + 1] += h[r] * (curvature * now - slope_of(m, margin, train.label[i]));
          }
        }
        const auto count = static_cast<double>(samples_of[j].size());
        for (std::size_t r = 0; r <= m.k; ++r) a[r][r] += count * (r == 0 ? beta_w : beta_v);
        const auto z = eliminate(std::move(a));
        m.w[j] = z[0];
        std::copy(z.begin() + 1, z.end(), m.v.begin() + static_cast<std::ptrdiff_t>(j * m.k));
      }
    }
  }
}

void work(int argc, char** argv) {
  std::map<std::string, std::string> given{{"--k", "8"},       {"--rounds", "20"},    {"--batch", "1000"},
                                           {"--alpha", ".05"}, {"--beta_w", "0"},     {"--beta_v", "0"},
                                           {"--start", ".01"}, {"--seed", "0"},       {"--pairs", "0"},
                                           {"--test", ""},     {"--loss", "squared"}, {"--method", "adagrad"}};
  if (argc < 2) throw std::runtime_error("usage: fm_serial TRAIN [--test FILE] [--loss squared|log] ...");
  for (int i = 2; i + 1 < argc; i += 2) {
    if (given.find(argv[i]) == given.end()) throw std::runtime_error(std::string("unknown option ") + argv[i]);
    given[argv[i]] = argv[i + 1];
  }
  const auto number = [&](const char* name) { return std::strtod(given[name].c_str(), nullptr); };
  auto train = serial::load(argv[1]);
  machine m;
  m.k = static_cast<std::size_t>(number("--k"));
  m.log = given["--loss"] == "log";
  m.pairs = number("--pairs") != 0;
  const bool adagrad = given["--method"] == "adagrad";
  const double alpha = number("--alpha");
  const double beta_w = number("--beta_w");
  const double beta_v = number("--beta_v");
  const auto seed = static_cast<std::uint64_t>(number("--seed"));
  const auto batch = static_cast<std::size_t>(number("--batch"));
  const auto rows = train.rows();
  const auto k = m.k;
  if (m.log) {
    for (auto& l : train.label) l = l > 0 ? 1 : -1;
  }
  m.w.assign(train.columns, 0.0);
  m.w_state = m.w;
  m.v.assign(train.columns * k, 0.0);
  m.v_state = m.v;
  m.sum.assign(k, 0.0);
  m.squares = m.sum;
  std::vector<bool> known(train.columns);
  double mean = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    m.margin(train, i);
    for (const auto& [j, x] : m.entries) {
      if (known[j]) continue;
      known[j] = true;
      counter_random random(seed, 1, j + 1);
      for (std::size_t f = 0; f < k; ++f) m.v[j * k + f] = number("--start") * random.normal();
    }
    mean += m.log ? (train.label[i] + 1) / 2 : train.label[i];
  }
  const auto n = static_cast<double>(rows);
  mean /= n;
  m.bias = m.log ? std::log(mean / (1 - mean)) : mean;

  const auto step = [&](double& value, double& state, double gradient) {
    if (!adagrad) {
      value -= alpha * gradient;
      return;
    }
    state += gradient * gradient;
    value -= alpha * gradient / (std::sqrt(state) + 1e-8);
  };
  const bool als = given["--method"] == "als";
  if (als) alternate(m, train, static_cast<int>(number("--rounds")), beta_w, beta_v);
  const std::size_t batches = (rows + batch - 1) / batch;
  std::vector<std::size_t> order(rows);
  std::vector<double> gradient(train.columns * (k + 2));  // w, the factors and the curvature of a feature
  std::vector<std::size_t> touched;
  for (int round = 0; !als && round < static_cast<int>(number("--rounds")); ++round) {
    std::iota(order.begin(), order.end(), std::size_t{0});
    counter_random random(seed, 2, static_cast<std::uint64_t>(round));
    for (std::size_t i = rows; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (std::size_t b = 0; b < batches; ++b) {
      double bias_gradient = 0;
      double bias_curvature = 0;
      touched.clear();
      for (std::size_t p = rows * b / batches; p < rows * (b + 1) / batches; ++p) {
        const auto i = order[p];
        const double y = train.label[i];
        const double margin = m.margin(train, i);
        const double slope = slope_of(m, margin, y);
        const double most = m.log ? 0.25 : 1;
        bias_gradient += slope;
        bias_curvature += most;
        for (const auto& [j, x] : m.entries) {
          double* g = &gradient[j * (k + 2)];
          if (g[k + 1] == 0) touched.push_back(j);
          g[0] += slope * x + beta_w * m.w[j];
          for (std::size_t f = 0; f < k; ++f) {
            g[f + 1] += slope * x * (m.sum[f] - m.v[j * k + f] * x) + beta_v * m.v[j * k + f];
          }
          double square = 1;
          for (std::size_t f = 0; f < k; ++f) square += std::pow(m.sum[f] - m.v[j * k + f] * x, 2);
          g[k + 1] += most * x * x * square;
        }
      }
      const auto share = [&](double curvature) {
        return adagrad || curvature == 0 ? 1 : (1 - std::exp(-alpha * curvature)) / (alpha * curvature);
      };
      step(m.bias, m.bias_state, share(bias_curvature) * bias_gradient);
      for (const auto j : touched) {
        double* g = &gradient[j * (k + 2)];
        const double s = share(g[k + 1]);
        step(m.w[j], m.w_state[j], s * g[0]);
        for (std::size_t f = 0; f < k; ++f) step(m.v[j * k + f], m.v_state[j * k + f], s * g[f + 1]);
        std::fill(g, g + k + 2, 0.0);
      }
    }
  }

  double loss = 0;
  double penalties = 0;
  double squares = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    const double margin = m.margin(train, i);
    loss += loss_of(m, margin, train.label[i]);
    squares += (margin - train.label[i]) * (margin - train.label[i]);
    for (const auto& [j, x] : m.entries) {
      penalties += beta_w / 2 * m.w[j] * m.w[j];
      for (std::size_t f = 0; f < k; ++f) penalties += beta_v / 2 * m.v[j * k + f] * m.v[j * k + f];
    }
  }
  std::printf("objective %.17g\nloss %.17g\n", loss + penalties, loss);
  if (!m.log) std::printf("train_rmse %.17g\n", std::sqrt(squares / n));
  if (given["--test"].empty()) return;
  const auto test = serial::load(given["--test"]);
  double sum = 0;
  double hits = 0;
  for (std::size_t i = 0; i < test.rows(); ++i) {
    const double margin = m.margin(test, i);
    const double y = m.log ? (test.label[i] > 0 ? 1 : -1) : test.label[i];
    sum += m.log ? loss_of(m, margin, y) : (margin - y) * (margin - y);
    hits += (margin > 0) == (y > 0) ? 1 : 0;
  }
  const auto tests = static_cast<double>(test.rows());
  if (m.log) std::printf("accuracy %.17g\nlog_loss %.17g\n", hits / tests, sum / tests);
  else std::printf("test_rmse %.17g\n", std::sqrt(sum / tests));
}

}  // namespace

int main(int argc, char** argv) { return serial::run("fm_serial", argc, argv, work); }
