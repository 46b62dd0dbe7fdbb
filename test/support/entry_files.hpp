// SPDX-License-Identifier: BSD-3-Clause
//
// Input of matrices and graphs: entries, files of them, ids of every kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <paracel/random.hpp>

#include "test/support/paths.hpp"

namespace paracel::test::entries {

inline constexpr std::size_t worker_counts[] = {1, 2, 3, 5};

struct entry {
  std::string row, column;
  double value = 1;
};

inline std::string text_of(const std::vector<entry>& entries, const std::string& separator = "\t") {
  std::string text;
  for (const auto& e : entries) {
    char value[40];
    std::snprintf(value, sizeof value, "%.17g", e.value);
    text += e.row + separator + e.column + separator + value + "\n";
  }
  return text;
}

/// The order of ids: numbers by value, names by bytes.
struct id_less {
  bool numeric = true;
  bool operator()(const std::string& a, const std::string& b) const {
    if (!numeric) return a < b;
    return std::stoull(a) < std::stoull(b);
  }
};
inline std::vector<entry> random_entries(std::uint64_t seed, std::size_t n, std::uint64_t rows, std::uint64_t columns,
                                         const std::function<std::string(std::uint64_t)>& id) {
  counter_random r(seed);
  std::vector<entry> out;
  for (std::size_t k = 0; k < n; ++k) {
    // Skewed: low numbers more often.
    const auto a = static_cast<std::uint64_t>(r.uniform() * r.uniform() * static_cast<double>(rows));
    const auto b = r.below(columns);
    out.push_back({id(a), id(b), r.normal()});
  }
  return out;
}

inline std::string scattered(std::uint64_t n) { return std::to_string(mix64(n + 17)); }
inline std::string plain(std::uint64_t n) { return std::to_string(n); }
inline std::string named(std::uint64_t n) {
  return "n" + std::to_string(n % 7) + std::string(n % 23, 'x') + std::to_string(n);
}

inline std::string shared_data(const std::string& name) {
  const char* where = std::getenv("PARACEL_SHARED_DATA");
  const std::string folder = where != nullptr ? where : test::source_folder() + "/../shared/data";
  return folder + "/" + name;
}

}  // namespace paracel::test::entries
