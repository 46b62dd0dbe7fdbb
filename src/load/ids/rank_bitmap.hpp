// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace paracel {

/// A set of numbers below a bound, with rank queries.
/// Cost: bound / 8 bytes, as many again after `count`; 1 to 3 ns per call.
class rank_bitmap {
 public:
  explicit rank_bitmap(std::uint64_t bound) : words_((bound + 63) / 64) {}

  void add(std::uint64_t n) noexcept { words_[n / 64] |= std::uint64_t{1} << (n % 64); }
  /// Removes all of [begin, end).
  void remove(std::uint64_t begin, std::uint64_t end) noexcept {
    for (auto n = begin; n < end;) {
      const auto low = n % 64;
      const auto count = std::min(64 - low, end - n);
      words_[n / 64] &= ~((~std::uint64_t{0} >> (64 - count)) << low);
      n += count;
    }
  }
  [[nodiscard]] bool contains(std::uint64_t n) const noexcept { return ((words_[n / 64] >> (n % 64)) & 1U) != 0; }

  /// Call it after the last `add` and before `rank` and `size`.
  void count() {
    before_.resize(words_.size());
    size_ = 0;
    for (std::size_t w = 0; w < words_.size(); ++w) {
      before_[w] = size_;
      size_ += ones(words_[w]);
    }
  }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// The number of members below n, a member or a number below the bound.
  [[nodiscard]] std::uint64_t rank(std::uint64_t n) const noexcept {
    return before_[n / 64] + ones(words_[n / 64] & ((std::uint64_t{1} << (n % 64)) - 1));
  }
  template <class F>
  void for_each(F&& f) const {
    for (std::size_t w = 0; w < words_.size(); ++w) {
      for (auto rest = words_[w]; rest != 0; rest &= rest - 1)
        f(w * 64 + static_cast<std::uint64_t>(std::countr_zero(rest)));
    }
  }

 private:
  /// As std::popcount, which calls a function unless the compiler may assume an instruction for it.
  static std::uint64_t ones(std::uint64_t w) noexcept {
    w -= (w >> 1U) & 0x5555555555555555U;
    w = (w & 0x3333333333333333U) + ((w >> 2U) & 0x3333333333333333U);
    w = (w + (w >> 4U)) & 0x0f0f0f0f0f0f0f0fU;
    return (w * 0x0101010101010101U) >> 56U;
  }

  std::vector<std::uint64_t> words_;
  std::vector<std::uint64_t> before_;
  std::uint64_t size_ = 0;
};

}  // namespace paracel
