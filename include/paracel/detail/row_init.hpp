// SPDX-License-Identifier: BSD-3-Clause
//
// Initial values of the rows of a typed table. Number j of row `id` is a pure function of (seed, id, j), so a row has
// the same values whichever worker touches it first, however many servers there are, and after removal.
//
// Source: the counter-based use of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
// OOPSLA 2014): the state is not stepped from draw to draw but computed from (seed, id) and advanced to draw j.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>

namespace paracel {

/// The initial values of a row: `row_init::uniform(-0.1, 0.1, seed)`.
/// Thread-safety: const-concurrent.
class row_init {
 public:
  /// The numbers are part of the wire format.
  enum class kind : std::uint8_t { zeros = 0, constant = 1, uniform = 2, normal = 3 };

  row_init() = default;
  static row_init zeros() noexcept { return {}; }
  static row_init constant(double c) noexcept { return {kind::constant, c, 0, 0}; }
  /// In [a, b).
  static row_init uniform(double a, double b, std::uint64_t seed) noexcept { return {kind::uniform, a, b, seed}; }
  /// Mean and standard deviation, by Box and Muller: numbers 2i and 2i + 1 share their two draws.
  static row_init normal(double mean, double sd, std::uint64_t seed) noexcept { return {kind::normal, mean, sd, seed}; }

  [[nodiscard]] kind what() const noexcept { return kind_; }
  [[nodiscard]] double a() const noexcept { return a_; }
  [[nodiscard]] double b() const noexcept { return b_; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
  friend bool operator==(const row_init&, const row_init&) = default;

  /// Writes the row's initial values. Cost: 2 ns a number for uniform, some 20 for normal.
  template <class T>
  void fill(std::uint64_t id, std::span<T> row) const noexcept {
    switch (kind_) {
      case kind::zeros:
        for (auto& v : row) v = T{0};
        return;
      case kind::constant:
        for (auto& v : row) v = static_cast<T>(a_);
        return;
      case kind::uniform: {
        const auto base = base_of(id);
        for (std::size_t j = 0; j < row.size(); ++j) row[j] = static_cast<T>(a_ + (b_ - a_) * unit(base, j));
        return;
      }
      case kind::normal: {
        const auto base = base_of(id);
        for (std::size_t j = 0; j < row.size(); j += 2) {
          const double radius = b_ * std::sqrt(-2 * std::log(1 - unit(base, j)));
          const double angle = 2 * std::numbers::pi * unit(base, j + 1);
          row[j] = static_cast<T>(a_ + radius * std::cos(angle));
          if (j + 1 < row.size()) row[j + 1] = static_cast<T>(a_ + radius * std::sin(angle));
        }
        return;
      }
    }
  }

 private:
  static constexpr std::uint64_t golden = 0x9e3779b97f4a7c15U;

  row_init(kind what, double a, double b, std::uint64_t seed) noexcept : kind_(what), a_(a), b_(b), seed_(seed) {}

  static constexpr std::uint64_t mix(std::uint64_t z) noexcept {
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  [[nodiscard]] std::uint64_t base_of(std::uint64_t id) const noexcept { return mix(mix(seed_ + golden) ^ id); }
  /// Draw j, in [0, 1), with 53 bits.
  static double unit(std::uint64_t base, std::size_t j) noexcept {
    return static_cast<double>(mix(base + (j + 1) * golden) >> 11U) * 0x1.0p-53;
  }

  kind kind_ = kind::zeros;
  double a_ = 0;
  double b_ = 0;
  std::uint64_t seed_ = 0;
};

}  // namespace paracel
