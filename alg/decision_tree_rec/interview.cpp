// SPDX-License-Identifier: BSD-3-Clause
#include "interview.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <span>
#include <string_view>
#include <unordered_map>

#include <paracel/samples.hpp>
#include <paracel/sparse.hpp>
#include <paracel/text_input.hpp>

#include "alg/common/output/model_file.hpp"
#include "alg/common/solvers/recommend.hpp"
#include "dtr.hpp"

namespace paracel::alg {

namespace {

/// Calls f(field) for each field between bars.
template <class F>
void each_field(std::string_view line, F&& f) {
  for (;;) {
    const auto end = std::min(line.find('|'), line.size());
    f(line.substr(0, end));
    if (end == line.size()) return;
    line.remove_prefix(end + 1);
  }
}

void read_means(const std::string& file, interview_tree& tree) {
  const auto nodes = tree.item.size();
  std::size_t lines = 0;
  visit_text({file}, 0, 1, [&](std::string_view text, const text_failure& fail) {
    while (!text.empty()) {
      const auto end = std::min(text.find('\n'), text.size());
      const auto before = tree.mean.size();
      each_field(text.substr(0, end), [&](std::string_view field) {
        double v = 0;
        if (!parse_number(field, v)) fail(field.data(), "found " + quoted_text(field) + ", want a finite number");
        tree.mean.push_back(v);
      });
      const auto found = tree.mean.size() - before;
      if (lines++ == 0) tree.k = found;
      if (found != tree.k)
        fail(text.data(), "found " + std::to_string(found) + " numbers, want " + std::to_string(tree.k));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  });
  if (lines != nodes) {
    throw data_error(file + ": found " + std::to_string(lines) + " lines, want " + std::to_string(nodes) +
                     ", one for each node of the tree");
  }
}

/// The index in an ascending list of the id with this text.
std::optional<std::size_t> find_text(const id_list& ids, const std::string& text) {
  if (!ids.numeric()) return ids.find(std::string_view(text));
  std::uint64_t number = 0;
  return parse_id(text, number) ? ids.find(number) : std::nullopt;
}

}  // namespace

interview_tree read_tree(const std::string& folder, std::uint64_t number) {
  auto file = folder + "/tree_0";
  if (const auto one = folder + "/tree.txt"; !std::filesystem::exists(file) && std::filesystem::exists(one)) file = one;
  const auto name = "tree_" + std::to_string(number) + "\t";
  interview_tree tree;
  visit_lines(file, 0, 1, [&](std::string&& line) {
    if (!line.starts_with(name) || !tree.item.empty()) return;
    each_field(std::string_view(line).substr(name.size()), [&](std::string_view field) {
      tree.item.emplace_back(field == dtr_tree::no_item_text ? std::string_view() : field);
    });
  });
  const auto nodes = tree.item.size();
  if (nodes == 0)
    throw data_error(file + ": found no tree " + std::to_string(number) + ", want the one of tree_start_index");
  if (!std::has_single_bit(nodes + 1)) {
    throw data_error(file + ": found tree " + std::to_string(number) + " with " + std::to_string(nodes) +
                     " nodes, want 2^levels - 1");
  }
  read_means(folder + "/average_user_factor_" + std::to_string(number), tree);
  return tree;
}

std::size_t interview(const interview_tree& tree, const std::function<std::optional<bool>(std::size_t node)>& likes) {
  std::size_t node = 0;
  while (tree.asks(node)) {
    const auto answer = likes(node);
    if (!answer) break;
    node = 2 * node + (*answer ? 1 : 2);
  }
  return node;
}

/// Interviews the users of predict_input, each worker its share of them.
void decision_tree_rec::predict() {
  auto comm = get_comm();
  const auto tree = read_tree(settings_.model, settings_.tree_start_index);
  entry_options options;
  settings_.entries.apply(options);
  options.values = entry_options::value_rule::need;
  options.duplicates = duplicate_rule::last;
  const auto answers = load_some(comm, settings_.predict_input, options, "answer, want user,item,answer");
  if (settings_.recommend > 0) {
    load_items();
    if (items_.columns != tree.k) {
      throw data_error(settings_.item_fac_input.front() + ": found " + std::to_string(items_.columns) +
                       " factors per item, want " + std::to_string(tree.k) + " as the tree has");
    }
  }
  // For each item answered here: the node that asks about it, and its index among the items that can be recommended.
  constexpr auto none = std::numeric_limits<std::size_t>::max();
  std::unordered_map<std::string, std::size_t> asked;
  for (std::size_t j = 0; j < tree.item.size(); ++j) {
    if (tree.asks(j)) asked.emplace(tree.item[j], j);
  }
  std::vector<std::size_t> node_of;
  std::vector<std::size_t> place_of;
  for (std::size_t c = 0; c < answers.column_ids.size(); ++c) {
    const auto text = answers.column_ids.text(c);
    const auto found = asked.find(text);
    node_of.push_back(found == asked.end() ? none : found->second);
    place_of.push_back(find_text(items_.ids, text).value_or(none));
  }

  std::vector<double> factors;
  std::vector<std::string> questions;
  std::vector<std::string> lists;
  std::vector<bool> known(items_.rows());
  std::int64_t unfinished = 0;
  for (std::size_t i = 0; i < answers.rows(); ++i) {
    const auto columns = answers.columns_of(i);
    const auto values = answers.values_of(i);
    const auto node = interview(tree, [&](std::size_t asking) -> std::optional<bool> {
      for (std::size_t e = 0; e < columns.size(); ++e) {
        if (node_of[columns[e]] == asking) return values[e] >= 0;
      }
      return std::nullopt;
    });
    const auto p = std::span(tree.mean).subspan(node * tree.k, tree.k);
    factors.insert(factors.end(), p.begin(), p.end());
    unfinished += tree.asks(node) ? 1 : 0;
    questions.push_back(answers.row_ids.text(i) + '\t' + std::to_string(node) + '\t' +
                        (tree.asks(node) ? tree.item[node] : std::string()));
    if (settings_.recommend == 0) continue;
    const auto mark = [&](bool on) {
      for (const auto c : columns) {
        if (place_of[c] != none) known[place_of[c]] = on;
      }
    };
    mark(true);
    best_items best(settings_.recommend);
    for (std::size_t j = 0; j < items_.rows(); ++j) {
      if (!known[j]) best.add(dot(p.data(), items_.row(j).data(), tree.k), static_cast<std::uint32_t>(j));
    }
    mark(false);
    auto& line = lists.emplace_back(answers.row_ids.text(i) + '\t');
    for (const auto& [score, item] : best.take()) {
      if (line.back() != '\t') line += '|';
      line += items_.ids.text(item) + ':';
      append_text(line, score);
    }
  }
  model_writer out(*this, "dtr_predictions", settings_.format);
  out.add_rows<double>("predictions", factors, {tree.k}, &answers.row_ids);
  out.finish();
  paracel_dump_vector(questions, "interview_", "\n");
  if (settings_.recommend > 0) paracel_dump_vector(lists, "recommend_", "\n");
  comm.allreduce(unfinished);
  log_.result("users", answers.rows_total());
  log_.result("unfinished", static_cast<std::uint64_t>(unfinished));
  log_.result("output", get_output());
}

}  // namespace paracel::alg
