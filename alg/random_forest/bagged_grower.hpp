// SPDX-License-Identifier: BSD-3-Clause
//
// Growing one tree of a random forest on all workers at once. Nodes with many rows are split level by level: each tests
// its own sample of features; only these have histograms, summed over all workers, and no child's is obtained by
// subtraction from its parent, which sampled others. A node with few rows has more bins than rows, so all of its rows
// are sent to one worker, which grows the whole subtree below it (subtree_grower.hpp) and sends it to the others. Sums
// are integers and therefore exact, and which worker grows what depends on global counts, so the tree is bit-identical
// for any number of workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <paracel/collectives.hpp>

#include "alg/gbdt/forest.hpp"
#include "alg/gbdt/tree_bins.hpp"
#include "alg/gbdt/tree_grower.hpp"
#include "forest_splits.hpp"
#include "subtree_grower.hpp"

namespace paracel::alg {

/// Thread-safety: none. Lifetime: rows, bins and labels must outlive it.
class bagged_grower {
 public:
  /// `label`: classes, or numbers. `most_draws`: an upper bound of the expected draws of a tree, over all workers. A
  /// collective.
  bagged_grower(collectives& all, const binned_rows& rows, const std::vector<feature_bins>& bins,
                std::span<const double> label, std::uint64_t most_draws, bagging_settings settings);

  /// Adds a tree to the forest: its leaves have the shares of the classes, or the mean. `draws`: how often each of this
  /// worker's rows was drawn. A collective. Cost: for a node with many rows 8 bytes a bin, class and tested feature, of
  /// which (p - 1) / p are sent and received; once in a tree d + 16 bytes to one worker for each of the other rows, and
  /// 16 bytes and 8 a class to all for each node below.
  void grow(collectives& all, forest& to, std::span<const std::uint16_t> draws, std::uint64_t tree);
  /// The leaf of one of this worker's rows, drawn or not, as a node of the tree just grown.
  [[nodiscard]] std::size_t leaf_of_row(const forest& of, std::size_t row) const noexcept {
    return leaf_of_bins(of, tree_, split_of_, rows_.row(row));
  }

 private:
  struct open_node : small_node {
    histogram_layout layout;
    tree_split best;
    std::vector<std::int64_t> left_sums;
  };

  void find_splits(collectives& all, std::span<open_node> nodes);
  /// Tries the features whose sums this worker has.
  void look_at_own(open_node& n, std::size_t rank, const std::int64_t* own);
  /// Grows the subtrees below the nodes with few rows, as many at a time as the buffer holds.
  void grow_small(collectives& all, forest& to, std::uint64_t tree);
  /// Sends the rows of each of `nodes` to its `owner`, grows the own ones and gathers the results. Returns: nodes of
  /// subtree_grower, of all workers.
  std::vector<std::int64_t> grow_own(collectives& all, std::span<const small_node> nodes,
                                     std::span<const std::size_t> owner, std::uint64_t tree);
  void pack_rows(const small_node& n, std::vector<std::int64_t>& to) const;
  /// Moves the subtree at the front of `from` to the forest.
  void add_nodes(forest& to, const small_node& n, std::span<const std::int64_t>& from);
  void describe(forest& to, std::size_t node, const std::int64_t* sums) const;
  void finish_leaf(forest& to, std::size_t node, const std::int64_t* sums) const;
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
  std::vector<std::uint32_t> class_;
  std::vector<std::int64_t> target_;  // multiples of search_->unit()
  std::optional<forest_splits> search_;
  std::optional<subtree_grower> below_;
  std::size_t lanes_ = 2;
  std::span<const std::uint16_t> draws_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> room_;
  std::vector<std::int64_t> buffer_;
  std::vector<small_node> small_;
  std::vector<std::uint8_t> present_;
  std::size_t tree_ = 0;
  std::vector<tree_split> split_of_;
};

}  // namespace paracel::alg
