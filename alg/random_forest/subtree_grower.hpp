// SPDX-License-Identifier: BSD-3-Clause
//
// Growing the part of a tree below a node with few rows, all of which are on this worker. Nothing is sent, and the work
// is proportional to the rows: only nonempty bins are visited.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "forest_splits.hpp"

namespace paracel::alg {

/// The rows of a node, of all workers.
struct node_rows {
  std::size_t rows = 0;
  std::vector<std::uint8_t> by_column;  ///< bins: columns * rows
  std::vector<std::int64_t> value;      ///< two a row: its number of draws; its class, or draws times target
};

/// A node that one worker splits.
struct small_node {
  std::size_t node = 0;   ///< within the tree
  std::uint64_t key = 1;  ///< of forest_splits
  std::size_t begin = 0;  ///< its rows of this worker
  std::size_t end = 0;
  std::size_t depth = 0;
  std::vector<std::int64_t> sums;  ///< over all workers
};

/// Encodes nodes as numbers: depth first, the left child before the right one. A leaf is -1; a split is its feature,
/// last bin on the left and side of missing values, its gain, for a category the bins on the left, and the sums on the
/// left.
/// Thread-safety: none. Lifetime: bins and search must outlive it.
class subtree_grower {
 public:
  subtree_grower(const std::vector<feature_bins>& bins, forest_splits& search, bool classes);

  /// Appends the nodes of the subtree at `from`. Cost: O(rows of a node times its features) for each node
  void grow(const small_node& from, const node_rows& rows, std::uint64_t tree, std::vector<std::int64_t>& nodes);

 private:
  struct part {
    std::uint64_t key = 1;
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t depth = 0;
  };

  /// The best split of the rows order_[begin, end), whose sums are in sums_.
  void look_at_all(const part& n, const node_rows& rows, std::uint64_t tree);
  void build_histogram(const part& n, const std::uint8_t* bin, const std::vector<std::int64_t>& value);

  const std::vector<feature_bins>& bins_;
  forest_splits& search_;
  bool classes_;
  std::size_t lanes_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> room_;
  std::vector<part> open_;
  std::vector<std::int64_t> open_sums_;  // of the nodes in open_
  std::vector<std::int64_t> sums_;
  std::vector<std::uint32_t> features_;
  // State of a feature: all 0 between features.
  std::vector<std::int64_t> histogram_;
  std::vector<std::int64_t> drawn_;    // by bin
  std::vector<std::uint8_t> touched_;  // bins with rows, `touched_count_` of them
  std::size_t touched_count_ = 0;
  std::vector<std::uint8_t> present_;
};

/// Appends a split to `nodes`.
void write_split(std::vector<std::int64_t>& nodes, const tree_split& split, const std::vector<feature_bins>& bins,
                 std::span<const std::int64_t> left_sums);
/// Reads a node from the front of `nodes`, and removes it. `feature` is -1 for a leaf.
tree_split read_split(std::span<const std::int64_t>& nodes, const std::vector<feature_bins>& bins,
                      std::span<std::int64_t> left_sums);

}  // namespace paracel::alg
