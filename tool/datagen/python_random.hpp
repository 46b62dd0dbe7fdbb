// SPDX-License-Identifier: BSD-3-Clause
//
// Python's random.Random, bit for bit: random() and gauss() after random.Random(seed) with an integer seed. So the
// program generates the same data as datagen.py, which is used where the program is not built. The generator is
// std::mt19937; Python adds its own seeding and conversion of words to numbers.
//
// Source: Python's documentation of random.gauss (Box-Muller, caching the second number); M. Matsumoto, T. Nishimura:
// init_by_array of mt19937ar.c, 2002.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <random>
#include <vector>

namespace datagen {

class python_random {
 public:
  /// `seed`: the absolute value of the seed in Python.
  explicit python_random(std::uint64_t seed) {
    init_by_array key{{static_cast<std::uint32_t>(seed)}};
    if (seed >> 32U != 0) key.words.push_back(static_cast<std::uint32_t>(seed >> 32U));
    words_.seed(key);
  }

  double random() {
    const std::uint64_t a = words_() >> 5U;
    const std::uint64_t b = words_() >> 6U;
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
  /// Skips one result of gauss(). Cost: a sixth of it.
  void skip_gauss() {
    kept_ = !kept_;
    if (!kept_) return;
    turn_ = random();
    left_ = random();
  }

 private:
  /// A seed sequence for std::mersenne_twister_engine that generates the complete state.
  struct init_by_array {
    using result_type = std::uint32_t;
    std::vector<std::uint32_t> words;

    template <class Iterator>
    void generate(Iterator state, Iterator end) const {
      const auto n = end - state;
      state[0] = 19650218U;
      const auto mixed = [&](auto i, std::uint32_t by) { return (state[i - 1] ^ (state[i - 1] >> 30U)) * by; };
      for (auto i = n - n + 1; i < n; ++i) state[i] = mixed(i, 1812433253U) + static_cast<std::uint32_t>(i);
      auto i = n - n + 1;
      const auto step = [&] {
        if (++i < n) return;
        state[0] = state[n - 1];
        i = 1;
      };
      for (std::size_t k = 0; k < static_cast<std::size_t>(n); ++k, step()) {
        const auto j = k % words.size();
        state[i] = (state[i] ^ mixed(i, 1664525U)) + words[j] + static_cast<std::uint32_t>(j);
      }
      for (auto k = n; k > 1; --k, step())
        state[i] = (state[i] ^ mixed(i, 1566083941U)) - static_cast<std::uint32_t>(i);
      state[0] = 0x80000000U;
    }
  };

  [[nodiscard]] double radius() const { return std::sqrt(-2.0 * std::log(1.0 - left_)); }

  std::mt19937 words_;
  // A pair of numbers is computed from these two; the second one is stored in this form.
  double turn_ = 0;
  double left_ = 0;
  bool kept_ = false;
};

}  // namespace datagen
