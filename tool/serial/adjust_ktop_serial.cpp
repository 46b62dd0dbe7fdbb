// SPDX-License-Identifier: BSD-3-Clause
//
// Serial adjust_ktop_sparse: one process, no framework, every prediction from its definition.
//
//     adjust_ktop_serial RATINGS SIMILARITIES [--lower K]
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

int main(int argc, char** argv) {
  try {
    std::vector<std::string> files;
    std::size_t lower = 1;
    for (int i = 1; i < argc; ++i) {
      const std::string name = argv[i];
      if (name.rfind("--", 0) != 0) files.push_back(name);
      else if (++i == argc) throw std::runtime_error("no value after " + name);
      else if (name == "--lower") lower = std::strtoul(argv[i], nullptr, 10);
      else throw std::runtime_error("unknown option " + name);
    }
    if (files.size() != 2) throw std::runtime_error("usage: adjust_ktop_serial RATINGS SIMILARITIES [--lower K]");
    std::ifstream ratings(files[0]);
    std::ifstream lists(files[1]);
    if (!ratings || !lists) throw std::runtime_error("cannot read the input");
    std::unordered_map<std::uint64_t, std::map<std::uint64_t, double>> rated;
    for (std::string line; std::getline(ratings, line);) {
      char* at = line.data();
      const auto u = std::strtoull(at, &at, 10);
      const auto i = std::strtoull(at + 1, &at, 10);
      rated[u][i] = std::strtod(at + 1, &at);
    }

    double n = 0, squares = 0, base = 0;
    unsigned long long sum_k = 0;
    for (std::string line; std::getline(lists, line);) {
      char* at = line.data();
      const auto u = std::strtoull(at, &at, 10);
      std::vector<std::pair<std::uint64_t, double>> neighbours;
      while (*at != '\0') {
        const auto v = std::strtoull(at + 1, &at, 10);
        if (*at != ':') break;
        neighbours.emplace_back(v, std::strtod(at + 1, &at));
      }
      const auto& mine = rated[u];
      double mean = 0;
      for (const auto& [i, r] : mine) mean += r;
      mean /= std::max<double>(1, static_cast<double>(mine.size()));
      // Sums of s r and of s for each item, as neighbours are added.
      std::vector<double> above(mine.size()), below(mine.size());
      double best = 0, error = 0;
      std::size_t best_k = 0;
      const auto first = std::min(lower, neighbours.size());
      for (std::size_t k = 0; k <= neighbours.size(); ++k) {
        error = 0;
        std::size_t j = 0;
        for (const auto& [i, r] : mine) {
          if (k > 0) {
            const auto& theirs = rated[neighbours[k - 1].first];
            if (const auto it = theirs.find(i); it != theirs.end()) {
              above[j] += neighbours[k - 1].second * it->second;
              below[j] += neighbours[k - 1].second;
            }
          }
          const double e = r - (below[j] != 0 ? above[j] / below[j] : mean);
          error += e * e;
          ++j;
        }
        if (k == first || (k > first && error < best)) {
          best = error;
          best_k = k;
        }
      }
      n += static_cast<double>(mine.size());
      squares += best;
      base += error;
      sum_k += best_k;
    }
    std::printf("ratings %.0f\nbase_rmse %.17g\nrmse %.17g\nsum_k %llu\n", n, std::sqrt(base / n),
                std::sqrt(squares / n), sum_k);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "adjust_ktop_serial: error: %s\n", e.what());
    return 1;
  }
}
