// SPDX-License-Identifier: BSD-3-Clause
//
// Decision trees as a model: what gbdt and random_forest train, write, read and predict with.
//
// A node tests one feature of a row, as a float. Missing (NaN): to the side learned in training. A number: left if x <
// threshold. A category: right if it is in the node's set, else left, so that a category not seen in training goes
// left. This is XGBoost's rule, so that its JSON model predicts the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <paracel/codec.hpp>

#include "alg/common/output/model_file.hpp"

namespace paracel::alg {

struct tree_node {
  std::int32_t feature = -1;         ///< -1: a leaf
  float threshold = 0;               ///< of a number
  std::int32_t left = -1;            ///< within its tree; both children have greater numbers than their parent
  std::int32_t right = -1;           ///< within its tree
  std::uint32_t leaf = 0;            ///< of a leaf: its place in forest::value, in rows of forest::width
  std::uint32_t category_begin = 0;  ///< of a category: its set is a part of forest::category, ascending
  std::uint32_t category_count = 0;  ///< 0: the feature is a number
  bool missing_left = false;
  double gain = 0;   ///< what the split adds to the objective
  double cover = 0;  ///< sum of the second derivatives, or weight of the rows
  double rows = 0;   ///< training rows
  MSGPACK_DEFINE(feature, threshold, left, right, leaf, category_begin, category_count, missing_left, gain, cover, rows)

  [[nodiscard]] bool is_leaf() const noexcept { return feature < 0; }
};

struct forest {
  std::size_t features = 0;                  ///< columns of a row
  std::size_t width = 1;                     ///< numbers of a leaf
  std::size_t outputs = 1;                   ///< tree t adds to output t % outputs, if width is 1
  std::vector<std::uint32_t> tree_begin{0};  ///< nodes of tree t: [tree_begin[t], tree_begin[t + 1])
  std::vector<tree_node> node;
  std::vector<float> value;             ///< of the leaves
  std::vector<std::uint32_t> category;  ///< sets of nodes
  MSGPACK_DEFINE(features, width, outputs, tree_begin, node, value, category)

  [[nodiscard]] std::size_t trees() const noexcept { return tree_begin.size() - 1; }
  /// The leaf of a row in a tree, as a node of the tree. `x`: `features` numbers, NaN where missing. Cost: O(depth)
  [[nodiscard]] std::uint32_t leaf_of(std::size_t tree, std::span<const float> x) const noexcept;
  /// Adds the trees' values to `out`, which has `outputs` numbers, or `width` if that is more than 1.
  void add_to(std::span<const float> x, std::span<double> out) const noexcept;
  /// Only the first `count` trees remain.
  void keep_trees(std::size_t count);
  /// Sums of gain, and number of splits, by feature.
  void importance(std::vector<double>& gain, std::vector<double>& splits) const;

  /// Throws: data_error `where: ...` unless every number is in its range: then leaf_of terminates, and stays within the
  /// arrays, for every row.
  void verify(const std::string& where) const;
  /// The arrays of a model: tree_begin, feature, threshold, left, right, ... one element a node.
  void write(model_writer& to) const;
  /// Throws: data_error.
  static forest read(const model_reader& from, const std::string& where);
};

/// What XGBoost's JSON form of a forest of width 1 needs besides the trees.
struct xgboost_form {
  std::string objective;           ///< reg:squarederror, binary:logistic, multi:softprob, rank:ndcg
  double base_score = 0;           ///< in the objective's own unit: a probability for binary:logistic
  std::size_t classes = 0;         ///< of multi:softprob
  std::vector<std::string> names;  ///< of the features, or empty
  std::vector<bool> categorical;   ///< by feature
  std::vector<double> offset{};    ///< by feature: added to thresholds; empty: none
};
/// The text of XGBoost's model.json (its version 2.0). Source: "Introduction to Model IO" in XGBoost's documentation,
/// and its doc/model.schema.
[[nodiscard]] std::string xgboost_json(const forest& trees, const xgboost_form& form);

}  // namespace paracel::alg
