// SPDX-License-Identifier: BSD-3-Clause
//
// Growing one tree from gradients, on all workers at once. Each worker sums its rows' gradients by feature and bin; the
// sums are reduce-scattered, so that each worker has those of its features over all rows and finds their best split;
// every worker then applies the best split of all workers to its own rows. Of two children only the one with fewer rows
// is summed; the other is the parent minus that one. Traffic does not grow with the rows.
//
// The first and second derivatives of a row are integers, in units that are powers of two, the same on every worker: a
// gradient has 30 bits, a second derivative as many as its sum over all rows leaves room for, 30 at most (23 for a
// million rows). Sums of integers are exact, so a tree is bit-identical for any number of workers, and a parent minus a
// child is exactly the other child.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <paracel/collectives.hpp>

#include "forest.hpp"
#include "tree_bins.hpp"

namespace paracel::alg {

/// The sum of all workers' values, bit-identical for any number of workers: each value is rounded to a multiple of
/// about 2^-60 n max|v|. `rows_total`: n, values of all workers. A collective.
double exact_sum(collectives& all, std::span<const double> values, std::uint64_t rows_total, const char* name);
/// The greatest absolute value of all workers; 0 without any. A collective.
double greatest_value(collectives& all, std::span<const double> values, const char* name);

struct grower_settings {
  bool leaf_wise = true;        ///< the leaf with the greatest gain is split next; otherwise level by level
  std::size_t max_leaves = 31;  ///< 0: no limit
  std::size_t max_depth = 0;    ///< splits between root and leaf; 0: no limit
  double lambda = 1;            ///< added to each sum of second derivatives
  double gamma = 0;             ///< a split must gain more than this
  double min_child_weight = 1e-3;
  std::int64_t min_child_rows = 20;
  std::size_t one_hot_at_most = 4;  ///< up to this many categories, one against all others
};

/// A split of the rows of a node.
struct tree_split {
  double gain = 0;
  std::int32_t feature = -1;   ///< -1: none
  std::int32_t last_left = 0;  ///< of a number: the last bin on the left
  bool missing_left = true;
  std::array<std::uint64_t, 4> left{};  ///< bins on the left
  std::int64_t left_grad = 0;           ///< sums on the left
  std::int64_t left_hess = 0;

  static constexpr std::size_t words = 8;
  void pack(std::int64_t* to) const noexcept;
  void unpack(const std::int64_t* from) noexcept;
  void go_left(std::size_t bin) noexcept { left[bin / 64] |= std::uint64_t{1} << (bin % 64); }
  [[nodiscard]] bool goes_left(std::size_t bin) const noexcept { return (left[bin / 64] >> (bin % 64) & 1U) != 0; }
  /// Whether this split is preferred to the other: by gain, then by the lesser feature.
  [[nodiscard]] bool before(const tree_split& other) const noexcept {
    if (feature < 0 || other.feature < 0) return feature >= 0;
    return gain > other.gain || (gain == other.gain && feature < other.feature);
  }
};

/// Where the sums of the features are: each worker owns contiguous features, and all parts have the same length.
struct histogram_layout {
  std::vector<std::uint32_t> feature;  ///< ascending
  std::vector<std::uint32_t> place;    ///< of its first bin within its worker's part
  std::vector<std::uint32_t> worker;   ///< that owns it
  std::size_t part = 0;                ///< bins of each worker's part

  histogram_layout() = default;
  histogram_layout(std::vector<std::uint32_t> features, const std::vector<feature_bins>& bins, std::size_t workers);
};

/// Stable partition: rows for which `is_left(row)` is true come first. `room`: at least as many numbers. Returns: how
/// many are on the left.
template <class IsLeft>
std::size_t partition_stably(std::span<std::uint32_t> rows, std::span<std::uint32_t> room, const IsLeft& is_left) {
  std::size_t stays = 0;
  std::size_t goes = 0;
  for (const auto r : rows) {
    const std::size_t left = is_left(r) ? 1 : 0;
    rows[stays] = r;
    room[goes] = r;
    stays += left;
    goes += 1 - left;
  }
  std::copy_n(room.begin(), goes, rows.begin() + static_cast<std::ptrdiff_t>(stays));
  return stays;
}

/// Moves the rows that `split` sends left to the front, stably. Returns: how many.
std::size_t partition_rows(std::span<std::uint32_t> rows, const binned_rows& data, const tree_split& split,
                           std::vector<std::uint32_t>& room);
/// Fills in a node of the forest's last tree, which begins at node `tree`, from a split, and gives it two children;
/// `split_of`: the splits of the tree's nodes. Returns: the left child's number within the tree; the right one's is the
/// next.
std::size_t set_split(forest& to, std::size_t tree, std::size_t node, const tree_split& split,
                      const std::vector<feature_bins>& bins, std::vector<tree_split>& split_of);
/// The leaf of a row in that tree, as a node of the tree.
std::size_t leaf_of_bins(const forest& of, std::size_t tree, const std::vector<tree_split>& split_of,
                         const std::uint8_t* row) noexcept;

/// A row's derivatives, in the units of the grower.
struct row_gradient {
  std::int32_t grad = 0;
  std::int32_t hess = 0;
};

/// Thread-safety: none. Lifetime: rows and bins must outlive it.
class tree_grower {
 public:
  tree_grower(const binned_rows& rows, const std::vector<feature_bins>& bins, std::uint64_t rows_total,
              grower_settings settings);

  /// Sets the units from the derivatives of all workers' rows, and the rows' integers. A collective.
  void set_gradients(collectives& all, std::span<const double> grad, std::span<const double> hess);
  /// Adds a tree to the forest. `sample`: rows to grow it from, ascending (empty with `all_rows`); `features`: those
  /// that may be tested, ascending. Leaf values are -G / (H + lambda) times `rate`. A collective.
  /// Cost: per split, (p - 1) / p of 16 bytes for each bin of the features, out and in, and 64 bytes for each of the p
  /// workers.
  void grow(collectives& all, forest& to, std::span<const std::uint32_t> sample, bool all_rows,
            std::span<const std::uint32_t> features, double rate);
  /// margin[i * stride] += the value of row i's leaf in the tree just grown, for all rows.
  void add_values(const forest& of, std::span<double> margin, std::size_t stride) const;

 private:
  struct open_node {
    std::size_t node = 0;   // within the tree
    std::size_t begin = 0;  // its rows: order_[begin, end)
    std::size_t end = 0;
    std::size_t depth = 0;
    std::int64_t grad = 0;  // sums over all workers
    std::int64_t hess = 0;
    std::vector<std::int64_t> sums;  // of the features that this worker owns
    tree_split best;
  };

  [[nodiscard]] double grad_of(std::int64_t v) const noexcept { return static_cast<double>(v) * grad_unit_; }
  [[nodiscard]] double hess_of(std::int64_t v) const noexcept {
    return static_cast<double>(v & ((std::int64_t{1} << count_shift_) - 1)) * hess_unit_;
  }
  [[nodiscard]] std::int64_t count_of(std::int64_t v) const noexcept { return v >> count_shift_; }
  [[nodiscard]] double score(std::int64_t grad, std::int64_t hess) const noexcept;
  [[nodiscard]] bool may_split(const open_node& n) const noexcept;
  void build_histogram(std::span<const std::uint32_t> rows, const std::vector<std::uint32_t>& offset,
                       std::int64_t* sums) const;
  void build(collectives& all, const std::vector<open_node*>& nodes);
  void find_splits(collectives& all, const std::vector<open_node*>& nodes);
  // The splits of a node by one feature: what they have in common, and the best one so far.
  struct candidates {
    std::size_t values = 0;                 // bins of values
    const std::int64_t* sums = nullptr;     // of bin b: [2 b] gradients, [2 b + 1] hessians and, above them, rows
    const std::int64_t* missing = nullptr;  // null: no row lacks a value
    double parent = 0;                      // the node's score
    double best = 0;                        // its gain
    bool missing_left = true;
    std::int64_t left_grad = 0;
    std::int64_t left_hess = 0;
  };
  [[nodiscard]] candidates begin_candidates(const open_node& n, std::size_t feature, const std::int64_t* sums) const;
  [[nodiscard]] bool update_best(const open_node& n, std::int64_t grad, std::int64_t hess, bool missing_left,
                                 candidates& a) const;
  void evaluate_splits(open_node& n, std::size_t feature, const std::int64_t* sums) const;
  /// Sets the bins on the left and last_left of `found`. Returns: whether there is a better split.
  [[nodiscard]] bool enumerate_numeric_splits(const open_node& n, candidates& a, tree_split& found) const;
  [[nodiscard]] bool enumerate_categorical_splits(const open_node& n, std::size_t feature, candidates& a,
                                                  tree_split& found) const;
  /// Splits these nodes. Returns: their children; unless `last`, those that may be split have their best splits.
  std::vector<open_node> split(collectives& all, forest& to, std::vector<open_node> nodes, bool last);
  void finish_leaf(forest& to, const open_node& n, double rate) const;

  const binned_rows& rows_;
  const std::vector<feature_bins>& bins_;
  std::uint64_t rows_total_;
  grower_settings settings_;
  double grad_unit_ = 1;
  double hess_unit_ = 1;
  unsigned count_shift_ = 32;
  std::vector<row_gradient> gradient_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> room_;
  std::vector<std::int64_t> buffer_;
  histogram_layout layout_;
  std::size_t tree_ = 0;  // its first node in the forest
  bool all_rows_ = true;
  std::vector<open_node> leaves_;
  std::vector<tree_split> split_of_;  // of the tree's nodes
};

}  // namespace paracel::alg
