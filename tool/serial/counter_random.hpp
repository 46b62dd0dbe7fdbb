// SPDX-License-Identifier: BSD-3-Clause
//
// The numbers of the framework's counter_random: SplitMix64 from a state that hashes seed, stream and row.
#pragma once

#include <cmath>
#include <cstdint>

namespace serial {

inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}
constexpr std::uint64_t golden = 0x9e3779b97f4a7c15U;

class counter_random {
 public:
  counter_random(std::uint64_t seed, std::uint64_t stream, std::uint64_t row)
      : state_(mix(mix(mix(seed + golden) ^ (stream + 0xd1b54a32d192ed03U)) ^ (row + 0x8cb92ba72f3d8dd7U))) {}
  std::uint64_t bits() { return mix(state_ += golden); }
  double uniform() { return static_cast<double>(bits() >> 11U) * 0x1p-53; }
  double normal() {
    const double radius = std::sqrt(-2 * std::log((static_cast<double>(bits() >> 11U) + 1) * 0x1p-53));
    return radius * std::cos(2 * 3.141592653589793238 * uniform());
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

}  // namespace serial
