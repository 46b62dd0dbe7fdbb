// SPDX-License-Identifier: BSD-3-Clause
//
// Growing one tree of a random forest on all workers at once, level by level. Each node tests features of its own
// sample; only these are added up by bin, and nothing is subtracted from a parent, which has sampled others. A bin has
// the weights of its rows by class, or of numbers the weights, and the sum of weight times target, as integers: so sums
// are exact, and the tree has the same bits for any number of workers.
//
// A split maximises sum_k L_k^2 / L + sum_k R_k^2 / R, L_k and L being the sums by class and over all: the decrease of
// the Gini impurity. Of numbers it maximises L_y^2 / L + R_y^2 / R: the decrease of the squared error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <paracel/collectives.hpp>

#include "alg/gbdt/forest.hpp"
#include "alg/gbdt/tree_bins.hpp"
#include "alg/gbdt/tree_grower.hpp"

namespace paracel::alg {

struct bagging_settings {
  std::size_t classes = 0;     ///< 0: of numbers
  std::size_t features = 1;    ///< tested in a node
  std::size_t max_depth = 0;   ///< 0: no limit
  std::int64_t min_split = 2;  ///< rows of a node that is split, a row that was drawn twice counting twice
  std::int64_t min_leaf = 1;   ///< the same of a child
  std::uint64_t seed = 0;
};

/// Thread-safety: none. Lifetime: rows, bins and labels must outlive it.
class bagged_grower {
 public:
  /// `label`: classes, or numbers. `most_draws`: expected draws of a tree, over all workers, at most. A collective.
  bagged_grower(collectives& all, const binned_rows& rows, const std::vector<feature_bins>& bins,
                std::span<const double> label, std::uint64_t most_draws, bagging_settings settings);

  /// Adds a tree to the forest: its leaves have the shares of the classes, or the mean. `draws`: how often each of this
  /// worker's rows was drawn. A collective. Cost: 8 bytes a bin, class and tested feature of each node, (p - 1) / p of
  /// these out and in; 64 bytes a node and worker.
  void grow(collectives& all, forest& to, std::span<const std::uint16_t> draws, std::uint64_t tree);
  /// The leaf of one of this worker's rows, drawn or not, as a node of the tree just grown.
  [[nodiscard]] std::size_t leaf_of_row(const forest& of, std::size_t row) const noexcept {
    return leaf_of_bins(of, tree_, split_of_, rows_.row(row));
  }

 private:
  struct open_node {
    std::size_t node = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t depth = 0;
    std::vector<std::int64_t> sums;  // over all workers, `lanes_` numbers
    histogram_layout layout;
    tree_split best;
    std::vector<std::int64_t> left_sums;
  };

  [[nodiscard]] std::int64_t count_of(const std::int64_t* sums) const noexcept;
  [[nodiscard]] double score(const std::int64_t* sums) const noexcept;
  [[nodiscard]] bool may_split(const open_node& n) const noexcept;
  void sample_features(collectives& all, open_node& n, std::uint64_t tree) const;
  void find_splits(collectives& all, std::span<open_node> nodes);
  void look_at(open_node& n, std::size_t feature, const std::int64_t* sums) const;
  void finish_leaf(forest& to, const open_node& n) const;
  void add_row(std::int64_t* sums, std::size_t row) const noexcept {
    const auto w = static_cast<std::int64_t>(draws_[row]);
    if (settings_.classes > 0) {
      sums[class_[row]] += w;
    } else {
      sums[0] += w;
      sums[1] += w * target_[row];
    }
  }

  const binned_rows& rows_;
  const std::vector<feature_bins>& bins_;
  bagging_settings settings_;
  std::size_t lanes_;
  std::vector<std::uint32_t> class_;
  std::vector<std::int64_t> target_;  // in `unit_`
  double unit_ = 1;
  std::span<const std::uint16_t> draws_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> room_;
  std::vector<std::int64_t> buffer_;
  std::size_t tree_ = 0;
  std::vector<tree_split> split_of_;
};

}  // namespace paracel::alg
