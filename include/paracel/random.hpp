// SPDX-License-Identifier: BSD-3-Clause
//
// Random numbers that are a function of (seed, stream, row, draw) and of nothing else: neither of the worker that asks,
// nor of earlier draws. So an algorithm starts from the same numbers whatever the number of workers.
//
//   counter_random r(seed, stream, row);   // stream: the purpose of the numbers; row: a global number or id_list::key
//   r.uniform(); r.normal(); r.below(n);
//
// Source: SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014) from a state
// that hashes the three numbers.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <utility>
#include <vector>

namespace paracel {

/// A 64-bit mix with full avalanche: every output bit depends on every bit of x.
constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// An independent sequence of random numbers for each (seed, stream, row). Cost: 8 bytes; about 1 ns a draw.
class counter_random {
 public:
  explicit counter_random(std::uint64_t seed, std::uint64_t stream = 0, std::uint64_t row = 0) noexcept
      : state_(mix64(mix64(mix64(seed + 0x9e3779b97f4a7c15U) ^ (stream + 0xd1b54a32d192ed03U)) ^
                     (row + 0x8cb92ba72f3d8dd7U))) {}

  std::uint64_t bits() noexcept {
    state_ += 0x9e3779b97f4a7c15U;
    return mix64(state_);
  }
  /// In [0, 1), a multiple of 2^-53.
  double uniform() noexcept { return static_cast<double>(bits() >> 11U) * 0x1p-53; }
  /// In (0, 1].
  double uniform_above_zero() noexcept { return (static_cast<double>(bits() >> 11U) + 1) * 0x1p-53; }
  /// In [0, bound), exactly uniform. bound > 0. Source: Lemire, "Fast random integer generation in an interval", 2019.
  std::uint64_t below(std::uint64_t bound) noexcept {
    auto product = static_cast<wide>(bits()) * bound;
    if (static_cast<std::uint64_t>(product) < bound) {
      const std::uint64_t reject = -bound % bound;
      while (static_cast<std::uint64_t>(product) < reject) product = static_cast<wide>(bits()) * bound;
    }
    return static_cast<std::uint64_t>(product >> 64U);
  }
  /// Standard normal (Box-Muller, cosine only, so that the n-th draw does not depend on a saved one). Two draws.
  double normal() noexcept {
    const double radius = std::sqrt(-2 * std::log(uniform_above_zero()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  /// Shuffles in place; the same on every machine, unlike std::shuffle.
  template <class T>
  void shuffle(std::vector<T>& items) noexcept {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  __extension__ typedef unsigned __int128 wide;  // no warning from -Wpedantic: both compilers have it
  std::uint64_t state_;
};

}  // namespace paracel
