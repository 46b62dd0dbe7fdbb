// SPDX-License-Identifier: BSD-3-Clause
#include "forest.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include <paracel/samples.hpp>
#include <paracel/text_output.hpp>

namespace paracel::alg {

namespace {

bool in_set(std::span<const std::uint32_t> set, float x) noexcept {
  if (!(x >= 0) || x > static_cast<float>(sample_options::greatest_category)) return false;
  return std::ranges::binary_search(set, static_cast<std::uint32_t>(x));
}

template <class T, class F>
std::vector<T> column_of(const forest& f, F&& of) {
  std::vector<T> out;
  out.reserve(f.node.size());
  for (const auto& n : f.node) out.push_back(static_cast<T>(of(n)));
  return out;
}

}  // namespace

std::uint32_t forest::leaf_of(std::size_t tree, std::span<const float> x) const noexcept {
  const auto* const root = node.data() + tree_begin[tree];
  const auto* at = root;
  while (!at->is_leaf()) {
    const float v = x[static_cast<std::size_t>(at->feature)];
    bool goes_left = at->missing_left;
    if (!std::isnan(v)) {
      goes_left = at->category_count == 0
                      ? v < at->threshold
                      : !in_set(std::span(category).subspan(at->category_begin, at->category_count), v);
    }
    at = root + (goes_left ? at->left : at->right);
  }
  return static_cast<std::uint32_t>(at - root);
}

void forest::add_to(std::span<const float> x, std::span<double> out) const noexcept {
  for (std::size_t t = 0; t < trees(); ++t) {
    const auto at = std::size_t{node[tree_begin[t] + leaf_of(t, x)].leaf} * width;
    if (width == 1) out[t % outputs] += static_cast<double>(value[at]);
    else
      for (std::size_t k = 0; k < width; ++k) out[k] += static_cast<double>(value[at + k]);
  }
}

void forest::keep_trees(std::size_t count) {
  if (count >= trees()) return;
  tree_begin.resize(count + 1);
  node.resize(tree_begin.back());
  std::size_t leaves = 0;
  std::size_t categories = 0;
  for (const auto& n : node) {
    if (n.is_leaf()) leaves = std::max(leaves, std::size_t{n.leaf} + 1);
    categories = std::max(categories, std::size_t{n.category_begin} + n.category_count);
  }
  value.resize(leaves * width);
  category.resize(categories);
}

void forest::importance(std::vector<double>& gain, std::vector<double>& splits) const {
  gain.assign(features, 0);
  splits.assign(features, 0);
  for (const auto& n : node) {
    if (n.is_leaf()) continue;
    gain[static_cast<std::size_t>(n.feature)] += n.gain;
    splits[static_cast<std::size_t>(n.feature)] += 1;
  }
}

void forest::verify(const std::string& where) const {
  const auto refuse = [&](std::size_t at, const std::string& what) {
    throw data_error(where + ": node " + std::to_string(at) + ": " + what);
  };
  if (width == 0 || outputs == 0 || value.size() % width != 0 || tree_begin.empty() || tree_begin.front() != 0 ||
      tree_begin.back() != node.size())
    throw data_error(where + ": found arrays of inconsistent lengths, want a forest");
  for (std::size_t t = 0; t < trees(); ++t) {
    if (tree_begin[t + 1] <= tree_begin[t])
      throw data_error(where + ": found a tree without nodes, tree " + std::to_string(t) + ", want at least one node");
    if (tree_begin[t + 1] > node.size())
      throw data_error(where + ": found nodes beyond the last one in tree " + std::to_string(t));
    const auto size = static_cast<std::int64_t>(tree_begin[t + 1] - tree_begin[t]);
    for (std::int64_t i = 0; i < size; ++i) {
      const auto at = tree_begin[t] + static_cast<std::size_t>(i);
      const auto& n = node[at];
      if (n.is_leaf()) {
        if (std::size_t{n.leaf} >= value.size() / width)
          refuse(at,
                 "found leaf " + std::to_string(n.leaf) + ", want less than " + std::to_string(value.size() / width));
        continue;
      }
      if (static_cast<std::size_t>(n.feature) >= features)
        refuse(at, "found feature " + std::to_string(n.feature) + ", want less than " + std::to_string(features));
      // Greater than the parent's, so there is no cycle.
      for (const auto child : {n.left, n.right}) {
        if (child <= i || child >= size)
          refuse(at, "found child " + std::to_string(child) + ", want one from " + std::to_string(i + 1) + " to " +
                         std::to_string(size - 1));
      }
      if (n.category_begin > category.size() || n.category_count > category.size() - n.category_begin)
        refuse(at, "found a set of categories beyond the last one");
      const auto set = std::span(category).subspan(n.category_begin, n.category_count);
      if (!std::ranges::is_sorted(set)) refuse(at, "found categories that are not in ascending order");
      if (std::isnan(n.threshold)) refuse(at, "found threshold nan, want a number");
    }
  }
}

void forest::write(model_writer& to) const {
  const std::vector<std::int64_t> begins(tree_begin.begin(), tree_begin.end());
  to.add("tree_begin", begins);
  to.add("feature", column_of<std::int64_t>(*this, [](const auto& n) { return n.feature; }));
  to.add("threshold", column_of<double>(*this, [](const auto& n) { return n.threshold; }));
  to.add("left", column_of<std::int64_t>(*this, [](const auto& n) { return n.left; }));
  to.add("right", column_of<std::int64_t>(*this, [](const auto& n) { return n.right; }));
  to.add("leaf", column_of<std::int64_t>(*this, [](const auto& n) { return n.leaf; }));
  to.add("missing_left", column_of<std::int64_t>(*this, [](const auto& n) { return n.missing_left ? 1 : 0; }));
  to.add("category_begin", column_of<std::int64_t>(*this, [](const auto& n) { return n.category_begin; }));
  to.add("category_count", column_of<std::int64_t>(*this, [](const auto& n) { return n.category_count; }));
  to.add("gain", column_of<double>(*this, [](const auto& n) { return n.gain; }));
  to.add("cover", column_of<double>(*this, [](const auto& n) { return n.cover; }));
  to.add("node_rows", column_of<double>(*this, [](const auto& n) { return n.rows; }));
  const std::vector<double> values(value.begin(), value.end());
  to.add("value", values);
  const std::vector<std::int64_t> categories(category.begin(), category.end());
  to.add("category", categories);
  to.fields()
      .add("features", std::uint64_t{features})
      .add("width", std::uint64_t{width})
      .add("outputs", std::uint64_t{outputs})
      .add("trees", std::uint64_t{trees()});
}

forest forest::read(const model_reader& from, const std::string& where) {
  forest f;
  f.features = from.field<std::size_t>("features");
  f.width = from.field<std::size_t>("width");
  f.outputs = from.field<std::size_t>("outputs");
  // Sizes first: what refers to them is verified afterwards.
  const auto small = [&](const char* name, std::int64_t least) {
    auto v = from.read<std::int64_t>(name);
    for (const auto x : v) {
      if (x < least || x > INT32_MAX)
        throw data_error(where + ": found " + std::to_string(x) + " in " + name + ", want a number from " +
                         std::to_string(least) + " to 2^31 - 1");
    }
    return v;
  };
  const auto begins = small("tree_begin", 0);
  f.tree_begin.assign(begins.begin(), begins.end());
  const auto feature = small("feature", -1);
  const auto threshold = from.read<double>("threshold");
  const auto left = small("left", -1);
  const auto right = small("right", -1);
  const auto leaf = small("leaf", 0);
  const auto missing_left = small("missing_left", 0);
  const auto category_begin = small("category_begin", 0);
  const auto category_count = small("category_count", 0);
  const auto gain = from.read<double>("gain");
  const auto cover = from.read<double>("cover");
  const auto rows = from.read<double>("node_rows");
  const auto n = feature.size();
  for (const auto size : {threshold.size(), left.size(), right.size(), leaf.size(), missing_left.size(),
                          category_begin.size(), category_count.size(), gain.size(), cover.size(), rows.size()}) {
    if (size != n) throw data_error(where + ": found arrays of different lengths, want one element per node");
  }
  for (std::size_t i = 0; i < n; ++i) {
    tree_node t;
    t.feature = static_cast<std::int32_t>(feature[i]);
    t.threshold = static_cast<float>(threshold[i]);
    t.left = static_cast<std::int32_t>(left[i]);
    t.right = static_cast<std::int32_t>(right[i]);
    t.leaf = static_cast<std::uint32_t>(leaf[i]);
    t.category_begin = static_cast<std::uint32_t>(category_begin[i]);
    t.category_count = static_cast<std::uint32_t>(category_count[i]);
    t.missing_left = missing_left[i] != 0;
    t.gain = gain[i];
    t.cover = cover[i];
    t.rows = rows[i];
    f.node.push_back(t);
  }
  for (const double v : from.read<double>("value")) f.value.push_back(static_cast<float>(v));
  for (const auto c : small("category", 0)) f.category.push_back(static_cast<std::uint32_t>(c));
  f.verify(where);
  return f;
}

namespace {

/// Elements separated by commas, as a JSON list. Floats have a point or an exponent: XGBoost refuses integers there.
template <class T, class F>
std::string json_list(std::size_t n, F&& element) {
  std::string text = "[";
  for (std::size_t i = 0; i < n; ++i) {
    if (i > 0) text += ',';
    const auto begin = text.size();
    append_text(text, static_cast<T>(element(i)));
    if (std::is_floating_point_v<T> && text.find_first_of(".e", begin) == std::string::npos) text += ".0";
  }
  return text + "]";
}

std::string xgboost_tree(const forest& f, std::size_t t, bool category_of_some, const xgboost_form& form) {
  const auto begin = f.tree_begin[t];
  const std::size_t n = f.tree_begin[t + 1] - begin;
  const auto* const node = f.node.data() + begin;
  std::vector<std::int64_t> parent(n, INT32_MAX);
  std::vector<std::int64_t> set_node;
  std::vector<std::int64_t> set_begin;
  std::vector<std::int64_t> set_size;
  std::vector<std::int64_t> sets;
  for (std::size_t i = 0; i < n; ++i) {
    if (node[i].is_leaf()) continue;
    for (const auto c : {node[i].left, node[i].right})
      parent[static_cast<std::size_t>(c)] = static_cast<std::int64_t>(i);
    if (node[i].category_count == 0) continue;
    set_node.push_back(static_cast<std::int64_t>(i));
    set_begin.push_back(static_cast<std::int64_t>(sets.size()));
    set_size.push_back(node[i].category_count);
    const auto set = std::span(f.category).subspan(node[i].category_begin, node[i].category_count);
    sets.insert(sets.end(), set.begin(), set.end());
  }
  const auto numbers = [&](const std::vector<std::int64_t>& v) {
    return json_list<std::int64_t>(v.size(), [&](std::size_t i) { return v[i]; });
  };
  const auto value = [&](std::size_t i) { return node[i].is_leaf() ? f.value[node[i].leaf] : 0.0F; };
  const auto threshold = [&](std::size_t i) {
    if (form.offset.empty()) return node[i].threshold;
    return static_cast<float>(static_cast<double>(node[i].threshold) +
                              form.offset[static_cast<std::size_t>(node[i].feature)]);
  };
  json_object o;
  o.raw("base_weights", json_list<float>(n, value))
      .raw("categories", numbers(sets))
      .raw("categories_nodes", numbers(set_node))
      .raw("categories_segments", numbers(set_begin))
      .raw("categories_sizes", numbers(set_size))
      .raw("default_left", json_list<int>(n, [&](std::size_t i) { return node[i].missing_left ? 1 : 0; }))
      .add("id", std::uint64_t{t})
      .raw("left_children", json_list<std::int32_t>(n, [&](std::size_t i) { return node[i].left; }))
      .raw("loss_changes", json_list<float>(n, [&](std::size_t i) { return node[i].gain; }))
      .raw("parents", numbers(parent))
      .raw("right_children", json_list<std::int32_t>(n, [&](std::size_t i) { return node[i].right; }))
      .raw("split_conditions",
           json_list<float>(n, [&](std::size_t i) { return node[i].is_leaf() ? value(i) : threshold(i); }))
      .raw("split_indices", json_list<std::int32_t>(n, [&](std::size_t i) { return std::max(0, node[i].feature); }))
      .raw("split_type",
           json_list<int>(n, [&](std::size_t i) { return category_of_some && node[i].category_count > 0 ? 1 : 0; }))
      .raw("sum_hessian", json_list<float>(n, [&](std::size_t i) { return node[i].cover; }));
  json_object shape;
  shape.add("num_deleted", "0")
      .add("num_feature", std::to_string(f.features))
      .add("num_nodes", std::to_string(n))
      .add("size_leaf_vector", "1");
  o.raw("tree_param", shape.text());
  return o.text();
}

}  // namespace

std::string xgboost_json(const forest& f, const xgboost_form& form) {
  const bool categories = std::ranges::find(form.categorical, true) != form.categorical.end();
  std::string trees = "[";
  for (std::size_t t = 0; t < f.trees(); ++t)
    trees.append(t > 0 ? "," : "").append(xgboost_tree(f, t, categories, form));
  trees += "]";
  json_object shape;
  shape.add("num_parallel_tree", "1").add("num_trees", std::to_string(f.trees()));
  json_object trees_of;
  trees_of.raw("gbtree_model_param", shape.text())
      .raw("iteration_indptr",
           json_list<std::uint64_t>(f.trees() / f.outputs + 1, [&](std::size_t i) { return i * f.outputs; }))
      .raw("tree_info", json_list<std::uint64_t>(f.trees(), [&](std::size_t t) { return t % f.outputs; }))
      .raw("trees", trees);
  json_object booster;
  booster.raw("model", trees_of.text()).add("name", "gbtree");
  json_object objective;
  objective.add("name", form.objective);
  if (form.objective == "multi:softprob") {
    json_object classes;
    classes.add("num_class", std::to_string(form.classes));
    objective.raw("softmax_multiclass_param", classes.text());
  } else if (form.objective == "rank:ndcg") {
    objective.raw("lambdarank_param", "{}");
  } else {
    json_object loss;
    loss.add("scale_pos_weight", "1");
    objective.raw("reg_loss_param", loss.text());
  }
  std::string base;
  append_text(base, static_cast<float>(form.base_score));
  json_object model;
  model.add("base_score", base)
      .add("boost_from_average", "1")
      .add("num_class", std::to_string(form.classes))
      .add("num_feature", std::to_string(f.features))
      .add("num_target", "1");
  std::string names = "[";
  for (const auto& n : form.names) names.append(names.size() > 1 ? "," : "").append(json_quoted(n));
  std::string types = "[";
  for (const bool c : form.categorical) types += std::string(types.size() > 1 ? "," : "") + (c ? "\"c\"" : "\"float\"");
  json_object learner;
  learner.raw("attributes", "{}")
      .raw("feature_names", names + "]")
      .raw("feature_types", categories ? types + "]" : "[]")
      .raw("gradient_booster", booster.text())
      .raw("learner_model_param", model.text())
      .raw("objective", objective.text());
  json_object all;
  all.raw("learner", learner.text()).raw("version", "[2,0,0]");
  return all.text();
}

}  // namespace paracel::alg
