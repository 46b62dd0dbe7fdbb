// SPDX-License-Identifier: BSD-3-Clause
//
// Paracel's patterns: which worker owns which entries. The workers are a grid of npx times npy; worker x * npy + y has
// the entries whose row hashes to x and whose column hashes to y.
//
//     pattern                            grid
//     fmap, fset, fvec, linesplit        n x 1    whole rows
//     smap                               1 x n    whole columns
//     fsmap                              npx is the greatest divisor of n up to its square root; if that is 1, n x 1
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "core/hash.hpp"

namespace paracel {

struct process_grid {
  std::size_t npx = 1;
  std::size_t npy = 1;

  /// Throws: usage_error, which lists the patterns, for an unknown one.
  static process_grid of(const std::string& pattern, std::size_t workers);

  template <class Id>
  [[nodiscard]] std::size_t owner(const Id& row, const Id& column) const noexcept {
    const auto x = npx == 1 ? 0 : hash(row) % npx;
    const auto y = npy == 1 ? 0 : hash(column) % npy;
    return x * npy + y;
  }
  [[nodiscard]] bool same_rows(std::size_t a, std::size_t b) const noexcept { return a / npy == b / npy; }
  [[nodiscard]] bool same_columns(std::size_t a, std::size_t b) const noexcept { return a % npy == b % npy; }

 private:
  static std::uint64_t hash(std::string_view name) noexcept { return hash_key(name); }
  static std::uint64_t hash(std::uint64_t number) noexcept {
    char bytes[sizeof(number)];
    std::memcpy(bytes, &number, sizeof(number));
    return hash_key({bytes, sizeof(bytes)});
  }
};

}  // namespace paracel
