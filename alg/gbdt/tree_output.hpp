// SPDX-License-Identifier: BSD-3-Clause
//
// What gbdt and random_forest write in the same form.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "forest.hpp"
#include "tree_table.hpp"

namespace paracel::alg {

inline constexpr std::size_t most_classes = 1000;

/// A JSON list.
std::string json_strings(const std::vector<std::string>& items);
/// A line a feature, the most important one first: name or number, tab, sum of gains, tab, number of splits.
std::string importance_text(const forest& trees, const std::vector<std::string>& names);
/// The most probable class, a tab, and the probabilities of all, separated by |.
std::string class_line(const std::vector<std::string>& classes, std::span<const double> probability);
/// Of each row the leaves, as nodes of their trees, separated by |.
std::vector<std::string> leaf_lines(const forest& trees, const table_rows& rows);

}  // namespace paracel::alg
