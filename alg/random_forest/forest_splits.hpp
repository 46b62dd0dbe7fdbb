// SPDX-License-Identifier: BSD-3-Clause
//
// The best split of a node of a random forest by one feature, from sums of its rows by bin. Sums are integers: for
// classes, the weight of each one's rows; for numbers, the weight of the rows, and the sum of weight times target.
//
// A split maximises sum_k L_k^2 / L + sum_k R_k^2 / R, L_k and L being the sums by class and over all: the decrease of
// the Gini impurity. For numbers it maximises L_y^2 / L + R_y^2 / R: the decrease of the squared error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <paracel/random.hpp>

#include "alg/gbdt/tree_bins.hpp"
#include "alg/gbdt/tree_grower.hpp"

namespace paracel::alg {

struct bagging_settings {
  std::size_t classes = 0;     ///< 0: numbers
  std::size_t features = 1;    ///< tested in a node
  std::size_t max_depth = 0;   ///< 0: no limit
  std::int64_t min_split = 2;  ///< rows of a node that is split, a row that was drawn twice counting twice
  std::int64_t min_leaf = 1;   ///< the same for a child
  std::uint64_t seed = 0;
  std::int64_t most_of_one = 0;  ///< a node of at most this many rows is split by one worker
};

/// Thread-safety: none, because of its buffers. Lifetime: bins must outlive it.
class forest_splits {
 public:
  /// `unit`: of targets.
  forest_splits(const std::vector<feature_bins>& bins, const bagging_settings& settings, double unit);

  /// Number of sums of a bin or node.
  [[nodiscard]] std::size_t lanes() const noexcept { return lanes_; }
  [[nodiscard]] std::int64_t count_of(const std::int64_t* sums) const noexcept;
  [[nodiscard]] double unit() const noexcept { return unit_; }
  /// Whether a node with these sums is split, provided that some feature can split it.
  [[nodiscard]] bool may_split(std::span<const std::int64_t> sums, std::size_t depth) const noexcept;
  /// The features that a node tests, ascending: a function of seed, tree and the node's key. Constant ones are not
  /// drawn. Cost: O(features that are drawn)
  void sample_features(std::uint64_t tree, std::uint64_t key, std::vector<std::uint32_t>& chosen);
  /// The key of a child: a function of the path from the root, whose key is 1.
  [[nodiscard]] static std::uint64_t key_of_child(std::uint64_t key, bool right) noexcept {
    return mix64(2 * key + (right ? 1 : 0));
  }

  /// Begins a node. Lifetime: `sums` until the last evaluate_splits.
  void begin(std::span<const std::int64_t> sums);
  /// Tries the splits of the node by a feature: numbers in the order of bins, categories in that of their mean, or of
  /// their share of the node's most frequent class. `sums`: by bin; `present`: the bins with rows, ascending
  /// (modified).
  void evaluate_splits(std::size_t feature, const std::int64_t* sums, std::vector<std::uint8_t>& present);
  /// The best split by all features tried; `feature` is -1 if none gains anything.
  [[nodiscard]] const tree_split& best() const noexcept { return best_; }
  [[nodiscard]] const std::vector<std::int64_t>& left_sums() const noexcept { return left_sums_; }

 private:
  [[nodiscard]] double score(const std::int64_t* sums) const noexcept;
  /// Tries a split after each of the first `splits` bins of order_; the sums in first_ are always on the left.
  void try_all(const std::int64_t* sums, std::size_t splits, bool missing_left);
  void try_numbers(const std::int64_t* sums, std::size_t splits, bool missing_left);
  void try_classes(const std::int64_t* sums, std::size_t splits, bool missing_left);

  const std::vector<feature_bins>& bins_;
  bagging_settings settings_;
  std::size_t lanes_;
  double unit_;
  std::vector<std::uint32_t> features_;  // a permutation
  std::vector<std::uint32_t> swapped_;
  // State of the node.
  std::span<const std::int64_t> node_;
  std::int64_t total_ = 0;
  std::int64_t centre_ = 0;  // of targets
  double parent_ = 0;
  tree_split best_;
  std::vector<std::int64_t> left_sums_;
  // State of a feature.
  std::vector<std::uint8_t> order_;
  std::vector<double> share_;
  std::vector<std::int64_t> first_;
  std::vector<std::int64_t> left_;
  double gain_ = 0;
  std::size_t taken_ = 0;
  bool missing_left_ = true;
};

/// Sets the bins on the left of a split of numbers from last_left and missing_left.
void set_left_bins(tree_split& split, const feature_bins& bins) noexcept;

}  // namespace paracel::alg
