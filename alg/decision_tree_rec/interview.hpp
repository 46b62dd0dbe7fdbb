// SPDX-License-Identifier: BSD-3-Clause
//
// The interview of a new user: from the root of a tree on his answers lead to a node, whose users' mean is his
// estimated p.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace paracel::alg {

/// A tree as dtr wrote it, with the means of its nodes.
struct interview_tree {
  std::vector<std::string> item;  ///< of each node, breadth first, like before hate; empty: it asks nothing
  std::vector<double> mean;       ///< k of each node
  std::size_t k = 0;

  /// Whether the answer at this node leads on: those of the last level have no children.
  [[nodiscard]] bool asks(std::size_t node) const { return 2 * node + 2 < item.size() && !item[node].empty(); }
};

/// Reads tree `number` from tree_0 and average_user_factor_<number> of a folder.
/// Throws: data_error; where a number is wrong, file:line:column.
interview_tree read_tree(const std::string& folder, std::uint64_t number);

/// The node at which somebody ends: the first one whose question he has no answer to, or that asks nothing.
/// `likes(node)`: his answer there.
std::size_t interview(const interview_tree& tree, const std::function<std::optional<bool>(std::size_t node)>& likes);

}  // namespace paracel::alg
