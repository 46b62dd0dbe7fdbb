// SPDX-License-Identifier: BSD-3-Clause
//
// Disjoint sets of 0 ... n - 1. Source: R. Tarjan, "Efficiency of a good but not linear set union algorithm", JACM
// 1975; with path halving, and the smaller element becomes the root, so a set's root is its least element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace paracel::alg {

/// Thread-safety: none. Cost: 4 bytes an element; nearly constant time a call.
class union_find {
 public:
  explicit union_find(std::size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), std::uint32_t{0}); }

  /// The least element of the set of x.
  std::uint32_t find(std::uint32_t x) noexcept {
    while (parent_[x] != x) {
      parent_[x] = parent_[parent_[x]];
      x = parent_[x];
    }
    return x;
  }
  void unite(std::uint32_t a, std::uint32_t b) noexcept {
    // Both paths are followed upwards in lockstep and stop where they meet: in one large set after a step or two.
    while (parent_[a] != parent_[b]) {
      if (parent_[a] < parent_[b]) std::swap(a, b);
      if (parent_[a] == a) {
        parent_[a] = parent_[b];
        return;
      }
      const auto up = parent_[a];
      parent_[a] = parent_[b];
      a = up;
    }
  }

 private:
  std::vector<std::uint32_t> parent_;
};

}  // namespace paracel::alg
