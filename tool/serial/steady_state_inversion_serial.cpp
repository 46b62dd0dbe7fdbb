// SPDX-License-Identifier: BSD-3-Clause
//
// Serial steady_state_inversion: one process, no framework; Newton's method for the roots, by definition.
//
//     steady_state_inversion_serial EDGES DISTRIBUTION [--epsilon E] [--rounds N]
//
// EDGES: iL,jR,weight; edges from right vertices are skipped. DISTRIBUTION: id,p.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

std::string read_all(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + file);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

double number(std::string_view text) {
  double v = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), v);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) {
    throw std::runtime_error("not a number: " + std::string(text));
  }
  return v;
}

/// Calls f with the fields of each line.
template <class F>
void each_line(std::string_view text, F&& f) {
  std::vector<std::string_view> fields;
  while (!text.empty()) {
    auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty()) continue;
    fields.clear();
    for (;;) {
      const auto end = line.find(',');
      fields.push_back(line.substr(0, end));
      if (end == std::string_view::npos) break;
      line.remove_prefix(end + 1);
    }
    f(fields);
  }
}

struct vertices {
  std::unordered_map<std::string_view, std::uint32_t> number;
  std::vector<std::string_view> name;
  std::vector<double> p;
};

struct edge {
  std::uint32_t to;
  double weight;
};

class inversion {
 public:
  inversion(const std::string& edges, const std::string& distribution)
      : edges_(read_all(edges)), distribution_(read_all(distribution)) {
    each_line(distribution_, [&](const auto& fields) {
      auto& side = fields[0].back() == 'L' ? left_ : right_;
      side.number.emplace(fields[0], static_cast<std::uint32_t>(side.name.size()));
      side.name.push_back(fields[0]);
      side.p.push_back(number(fields[1]));
    });
    of_left_.resize(left_.name.size());
    of_right_.resize(right_.name.size());
    each_line(edges_, [&](const auto& fields) {
      if (fields[0].back() == 'R') return;
      const auto i = left_.number.at(fields[0]);
      const auto j = right_.number.at(fields[1]);
      const double w = fields.size() > 2 ? number(fields[2]) : 1;
      of_left_[i].push_back({j, w});
      of_right_[j].push_back({i, w});
    });
    s_ = right_.p;
  }

  void solve(double epsilon, int rounds) {
    std::vector<double> sum;
    int round = 0;
    std::size_t lacking = 0;
    for (;; ++round) {
      row_sums(sum);
      lacking = 0;
      auto next = s_;
      for (std::size_t j = 0; j < s_.size(); ++j) {
        if (received(j, sum) >= right_.p[j] * (1 - epsilon)) continue;
        ++lacking;
        if (round < rounds) next[j] = root(j, sum, right_.p[j] * (1 - epsilon / 2));
      }
      if (lacking == 0 || round == rounds) break;
      s_ = std::move(next);
    }
    double distance = 0;
    for (std::size_t j = 0; j < s_.size(); ++j) distance += std::abs(received(j, sum) - right_.p[j]);
    std::printf("rounds %d\nshort %zu\nl1 %.17g\n", round, lacking, distance);
  }

 private:
  void row_sums(std::vector<double>& sum) const {
    sum.assign(of_left_.size(), 0);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      for (const auto& e : of_left_[i]) sum[i] += e.weight * s_[e.to];
    }
  }
  [[nodiscard]] double received(std::size_t j, const std::vector<double>& sum) const {
    double q = 0;
    for (const auto& e : of_right_[j]) q += left_.p[e.to] * e.weight * s_[j] / sum[e.to];
    return q;
  }
  /// The root of sum_i p_i w x / (w x + c_i) = target. The left side is concave: Newton steps from below do not pass
  /// the root.
  [[nodiscard]] double root(std::size_t j, const std::vector<double>& sum, double target) const {
    double x = s_[j];
    for (int step = 0; step < 1000; ++step) {
      double value = -target;
      double slope = 0;
      for (const auto& e : of_right_[j]) {
        const double c = sum[e.to] - e.weight * s_[j];
        const double d = e.weight * x + c;
        value += left_.p[e.to] * e.weight * x / d;
        slope += left_.p[e.to] * e.weight * c / (d * d);
      }
      const double to = x - value / slope;
      if (!(to > x * (1 + 1e-15)) || !std::isfinite(to)) break;
      x = to;
    }
    return x;
  }

  std::string edges_;
  std::string distribution_;
  vertices left_;
  vertices right_;
  std::vector<std::vector<edge>> of_left_;
  std::vector<std::vector<edge>> of_right_;
  std::vector<double> s_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<std::string> files;
    double epsilon = 1e-4;
    int rounds = 100;
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      if (word.rfind("--", 0) != 0) {
        files.push_back(word);
        continue;
      }
      if (++i == argc) throw std::runtime_error("no value after " + word);
      if (word == "--epsilon") epsilon = number(argv[i]);
      else if (word == "--rounds") rounds = std::stoi(argv[i]);
      else throw std::runtime_error("unknown option " + word);
    }
    if (files.size() != 2) {
      throw std::runtime_error("usage: steady_state_inversion_serial EDGES DISTRIBUTION [--epsilon E] [--rounds N]");
    }
    inversion problem(files[0], files[1]);
    problem.solve(epsilon, rounds);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "steady_state_inversion_serial: error: %s\n", e.what());
    return 1;
  }
}
