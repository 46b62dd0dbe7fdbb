// SPDX-License-Identifier: BSD-3-Clause
//
// The interview of a new user: the answers lead from the root of a tree to a node, whose users' mean is the estimate of
// p.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace paracel::alg {

/// A tree as written by dtr, with the means of its nodes.
struct interview_tree {
  std::vector<std::string> item;  ///< of each node, breadth first, like before hate; empty: a leaf
  std::vector<double> mean;       ///< k of each node
  std::size_t k = 0;

  /// Whether this node asks a question: those of the last level have no children.
  [[nodiscard]] bool asks(std::size_t node) const { return 2 * node + 2 < item.size() && !item[node].empty(); }
};

/// Reads tree `number` from tree_0 and average_user_factor_<number> in a folder.
/// Throws: data_error; for a malformed number, file:line:column.
interview_tree read_tree(const std::string& folder, std::uint64_t number);

/// The node at which the interview ends: the first leaf, or the first node whose question has no answer.
/// `likes(node)`: the user's answer.
std::size_t interview(const interview_tree& tree, const std::function<std::optional<bool>(std::size_t node)>& likes);

}  // namespace paracel::alg
