// SPDX-License-Identifier: BSD-3-Clause
#include "tree_output.hpp"

#include <algorithm>
#include <numeric>

#include <paracel/text_output.hpp>

namespace paracel::alg {

std::string json_strings(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const auto& i : items) text += (text.size() > 1 ? "," : "") + json_quoted(i);
  return text + "]";
}

std::string importance_text(const forest& trees, const std::vector<std::string>& names) {
  std::vector<double> gain;
  std::vector<double> splits;
  trees.importance(gain, splits);
  std::vector<std::size_t> order(trees.features);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](auto a, auto b) { return gain[a] > gain[b]; });
  std::string text;
  for (const auto f : order) {
    text += names.empty() ? std::to_string(f) : names[f];
    text += '\t';
    append_text(text, gain[f]);
    text += '\t';
    append_text(text, splits[f]);
    text += '\n';
  }
  return text;
}

std::string class_line(const std::vector<std::string>& classes, std::span<const double> probability) {
  const auto most = std::ranges::max_element(probability) - probability.begin();
  std::string line = classes[static_cast<std::size_t>(most)] + '\t';
  for (std::size_t c = 0; c < probability.size(); ++c) {
    if (c > 0) line += '|';
    append_text(line, probability[c]);
  }
  return line;
}

std::vector<std::string> leaf_lines(const forest& trees, const table_rows& rows) {
  std::vector<std::string> lines(rows.rows);
  for (std::size_t i = 0; i < rows.rows; ++i) {
    for (std::size_t t = 0; t < trees.trees(); ++t) {
      if (t > 0) lines[i] += '|';
      append_text(lines[i], trees.leaf_of(t, rows.row(i)));
    }
  }
  return lines;
}

}  // namespace paracel::alg
