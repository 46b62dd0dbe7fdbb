// SPDX-License-Identifier: BSD-3-Clause
//
// Python's random.Random, number for number: random() and gauss() after random.Random(seed) with an integer seed. So the
// program makes what datagen.py makes where the program is not built.
//
// Source: M. Matsumoto, T. Nishimura, "Mersenne Twister", ACM TOMACS 1998, with its initialisation by an array; Python's
// documentation of random.gauss (Box-Muller, the second number is kept).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

namespace datagen {

class python_random {
 public:
  /// `seed`: the absolute value of Python's.
  explicit python_random(std::uint64_t seed) {
    std::vector<std::uint32_t> key{static_cast<std::uint32_t>(seed)};
    if (seed >> 32U != 0) key.push_back(static_cast<std::uint32_t>(seed >> 32U));
    constexpr std::size_t n = 624;
    state_.resize(n);
    state_[0] = 19650218U;
    for (std::size_t i = 1; i < n; ++i) {
      state_[i] = 1812433253U * (state_[i - 1] ^ (state_[i - 1] >> 30U)) + static_cast<std::uint32_t>(i);
    }
    std::size_t i = 1;
    std::size_t j = 0;
    const auto next = [&] {
      if (++i == n) {
        state_[0] = state_[n - 1];
        i = 1;
      }
    };
    for (std::size_t k = n; k > 0; --k) {
      state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30U)) * 1664525U)) + key[j] +
                  static_cast<std::uint32_t>(j);
      next();
      j = (j + 1) % key.size();
    }
    for (std::size_t k = n - 1; k > 0; --k) {
      state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30U)) * 1566083941U)) - static_cast<std::uint32_t>(i);
      next();
    }
    state_[0] = 0x80000000U;
  }

  double random() {
    const std::uint64_t a = word() >> 5U;
    const std::uint64_t b = word() >> 6U;
    return static_cast<double>(a * 67108864 + b) * (1.0 / 9007199254740992.0);
  }
  double gauss(double mu, double sigma) {
    if (kept_) {
      kept_ = false;
      return mu + std::sin(turn_ * (2 * std::numbers::pi)) * radius() * sigma;
    }
    turn_ = random();
    left_ = random();
    kept_ = true;
    return mu + std::cos(turn_ * (2 * std::numbers::pi)) * radius() * sigma;
  }
  /// Passes over what gauss() would return. Cost: a sixth of it.
  void skip_gauss() {
    kept_ = !kept_;
    if (!kept_) return;
    turn_ = random();
    left_ = random();
  }

 private:
  [[nodiscard]] double radius() const { return std::sqrt(-2.0 * std::log(1.0 - left_)); }

  std::uint32_t word() {
    if (at_ == state_.size()) turn_over();
    std::uint32_t y = state_[at_++];
    y ^= y >> 11U;
    y ^= (y << 7U) & 0x9d2c5680U;
    y ^= (y << 15U) & 0xefc60000U;
    return y ^ (y >> 18U);
  }
  void turn_over() {
    constexpr std::size_t n = 624;
    constexpr std::size_t m = 397;
    const auto mix = [](std::uint32_t upper, std::uint32_t lower) {
      const std::uint32_t y = (upper & 0x80000000U) | (lower & 0x7fffffffU);
      return (y >> 1U) ^ ((y & 1U) != 0 ? 0x9908b0dfU : 0U);
    };
    for (std::size_t i = 0; i < n - m; ++i) state_[i] = state_[i + m] ^ mix(state_[i], state_[i + 1]);
    for (std::size_t i = n - m; i < n - 1; ++i) state_[i] = state_[i + m - n] ^ mix(state_[i], state_[i + 1]);
    state_[n - 1] = state_[m - 1] ^ mix(state_[n - 1], state_[0]);
    at_ = 0;
  }

  std::vector<std::uint32_t> state_;
  std::size_t at_ = 624;
  // A pair of numbers is made of these two; the second one is kept in this form.
  double turn_ = 0;
  double left_ = 0;
  bool kept_ = false;
};

}  // namespace datagen
