// SPDX-License-Identifier: BSD-3-Clause
#include "tree_grower.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

namespace paracel::alg {

namespace {

// Limit of the sums that are sent at once.
constexpr std::size_t grower_buffer_bytes = std::size_t{64} << 20U;
// How many rows ahead bins are prefetched. With a million rows of 28 features, 8 to 32 made no difference.
constexpr std::size_t rows_ahead = 16;
constexpr int gradient_bits = 30;

// Both sums of a bin, added in one instruction.
using sum_pair [[gnu::vector_size(16), gnu::may_alias]] = std::int64_t;

unsigned bits_of(std::uint64_t v) noexcept { return static_cast<unsigned>(std::bit_width(v)); }

}  // namespace

double greatest_value(collectives& all, std::span<const double> values, const char* name) {
  double most = 0;
  for (const double v : values) most = std::max(most, std::abs(v));
  all.all_reduce(std::span(&most, 1), reduce_op::max, name);
  return most;
}

double exact_sum(collectives& all, std::span<const double> values, std::uint64_t rows_total, const char* name) {
  const double most = greatest_value(all, values, name);
  if (most == 0 || !std::isfinite(most)) return most;
  const int shift = 61 - static_cast<int>(bits_of(rows_total)) - std::ilogb(most);
  std::int64_t sum = 0;
  for (const double v : values) sum += std::llrint(std::scalbn(v, shift));
  all.all_reduce(std::span(&sum, 1), reduce_op::sum, name);
  return std::scalbn(static_cast<double>(sum), -shift);
}

void tree_split::pack(std::int64_t* to) const noexcept {
  to[0] = std::bit_cast<std::int64_t>(gain);
  to[1] = static_cast<std::int64_t>(feature) * 1024 + last_left * 2 + (missing_left ? 1 : 0);
  for (std::size_t i = 0; i < left.size(); ++i) to[2 + i] = std::bit_cast<std::int64_t>(left[i]);
  to[6] = left_grad;
  to[7] = left_hess;
}

void tree_split::unpack(const std::int64_t* from) noexcept {
  gain = std::bit_cast<double>(from[0]);
  feature = static_cast<std::int32_t>(from[1] < 0 ? -1 : from[1] / 1024);
  last_left = static_cast<std::int32_t>(from[1] < 0 ? 0 : from[1] % 1024 / 2);
  missing_left = from[1] % 2 != 0;
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = std::bit_cast<std::uint64_t>(from[2 + i]);
  left_grad = from[6];
  left_hess = from[7];
}

histogram_layout::histogram_layout(std::vector<std::uint32_t> features, const std::vector<feature_bins>& bins,
                                   std::size_t workers)
    : feature(std::move(features)) {
  std::size_t total = 0;
  for (const auto f : feature) total += bins[f].bins();
  std::size_t before = 0;
  std::size_t of = 0;
  std::size_t at = 0;
  for (const auto f : feature) {
    const auto n = bins[f].bins();
    // The worker whose equal share of all bins contains the middle of the feature.
    const auto owner = total == 0 ? 0 : (2 * before + n) * workers / (2 * total);
    if (owner != of) {
      of = owner;
      at = 0;
    }
    place.push_back(static_cast<std::uint32_t>(at));
    worker.push_back(static_cast<std::uint32_t>(of));
    at += n;
    before += n;
    part = std::max(part, at);
  }
}

std::size_t partition_rows(std::span<std::uint32_t> rows, const binned_rows& data, const tree_split& split,
                           std::vector<std::uint32_t>& room) {
  if (room.size() < rows.size()) room.resize(rows.size());
  std::array<std::uint8_t, 256> left{};
  for (std::size_t b = 0; b < left.size(); ++b) left[b] = split.goes_left(b) ? 1 : 0;
  const std::uint8_t* const bin = data.by_column.data() + static_cast<std::size_t>(split.feature) * data.rows;
  return partition_stably(rows, room, [&](std::uint32_t r) { return left[bin[r]]; });
}

namespace {

void describe_split(forest& to, tree_node& n, const tree_split& split, const std::vector<feature_bins>& bins) {
  const auto& b = bins[static_cast<std::size_t>(split.feature)];
  n.feature = split.feature;
  n.gain = split.gain;
  n.missing_left = split.missing_left;
  if (b.categorical) {
    n.category_begin = static_cast<std::uint32_t>(to.category.size());
    for (std::size_t c = 0; c < b.category.size(); ++c) {
      if (!split.goes_left(c)) to.category.push_back(b.category[c]);
    }
    n.category_count = static_cast<std::uint32_t>(to.category.size()) - n.category_begin;
    return;
  }
  // All values on the left, and those that are missing on the right.
  const auto last = static_cast<std::size_t>(split.last_left);
  n.threshold = last < b.threshold.size() ? b.threshold[last] : std::numeric_limits<float>::max();
}

}  // namespace

std::size_t set_split(forest& to, std::size_t tree, std::size_t node, const tree_split& split,
                      const std::vector<feature_bins>& bins, std::vector<tree_split>& split_of) {
  auto& n = to.node[tree + node];
  describe_split(to, n, split, bins);
  const auto left = to.node.size() - tree;
  n.left = static_cast<std::int32_t>(left);
  n.right = static_cast<std::int32_t>(left + 1);
  to.node.resize(to.node.size() + 2);
  split_of[node] = split;
  split_of.resize(split_of.size() + 2);
  return left;
}

std::size_t leaf_of_bins(const forest& of, std::size_t tree, const std::vector<tree_split>& split_of,
                         const std::uint8_t* row) noexcept {
  std::size_t at = 0;
  while (!of.node[tree + at].is_leaf()) {
    const auto& n = of.node[tree + at];
    at = static_cast<std::size_t>(split_of[at].goes_left(row[n.feature]) ? n.left : n.right);
  }
  return at;
}

tree_grower::tree_grower(const binned_rows& rows, const std::vector<feature_bins>& bins, std::uint64_t rows_total,
                         grower_settings settings)
    : rows_(rows), bins_(bins), rows_total_(rows_total), settings_(settings), gradient_(rows.rows) {
  count_shift_ = 63 - bits_of(rows_total);
}

void tree_grower::set_gradients(collectives& all, std::span<const double> grad, std::span<const double> hess) {
  std::array<double, 2> most{};
  for (const double v : grad) most[0] = std::max(most[0], std::abs(v));
  for (const double v : hess) most[1] = std::max(most[1], v);
  all.all_reduce(std::span<double>(most), reduce_op::max, "gradients");
  const int room = std::min(gradient_bits, static_cast<int>(count_shift_ - bits_of(rows_total_)));
  const int up_grad = most[0] > 0 ? gradient_bits - 1 - std::ilogb(most[0]) : 0;
  const int up_hess = most[1] > 0 ? room - 1 - std::ilogb(most[1]) : 0;
  grad_unit_ = std::scalbn(1.0, -up_grad);
  hess_unit_ = std::scalbn(1.0, -up_hess);
  // Powers of two: multiplying by them is exact.
  const double grad_scale = std::scalbn(1.0, up_grad);
  const double hess_scale = std::scalbn(1.0, up_hess);
  for (std::size_t i = 0; i < gradient_.size(); ++i) {
    gradient_[i].grad = static_cast<std::int32_t>(std::lrint(grad[i] * grad_scale));
    gradient_[i].hess = static_cast<std::int32_t>(std::lrint(hess[i] * hess_scale));
  }
}

double tree_grower::score(std::int64_t grad, std::int64_t hess) const noexcept {
  const double h = hess_of(hess) + settings_.lambda;
  const double g = grad_of(grad);
  return h > 0 ? g * g / h : 0;
}

bool tree_grower::may_split(const open_node& n) const noexcept {
  return (settings_.max_depth == 0 || n.depth < settings_.max_depth) &&
         count_of(n.hess) >= 2 * settings_.min_child_rows;
}

/// sums[offset of the feature + bin] += the row's gradient, for these rows.
void tree_grower::build_histogram(std::span<const std::uint32_t> rows, const std::vector<std::uint32_t>& offset,
                                  std::int64_t* sums) const {
  auto* const pair = reinterpret_cast<sum_pair*>(sums);
  const auto* const feature = layout_.feature.data();
  const auto* const at = offset.data();
  const std::size_t count = layout_.feature.size();
  const std::size_t columns = rows_.columns;
  const std::uint8_t* const bin = rows_.bin.data();
  const std::int64_t one = std::int64_t{1} << count_shift_;
  const bool every = count == columns;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i + rows_ahead < rows.size()) {
      const auto ahead = std::size_t{rows[i + rows_ahead]};
      __builtin_prefetch(bin + ahead * columns);
      __builtin_prefetch(bin + ahead * columns + columns - 1);
      __builtin_prefetch(&gradient_[ahead]);
    }
    const auto r = std::size_t{rows[i]};
    const std::uint8_t* const b = bin + r * columns;
    const sum_pair v{gradient_[r].grad, gradient_[r].hess + one};
    if (every) {
      for (std::size_t j = 0; j < count; ++j) pair[at[j] + b[j]] += v;
    } else {
      for (std::size_t j = 0; j < count; ++j) pair[at[j] + b[feature[j]]] += v;
    }
  }
}

/// The sums of nodes, over all workers.
void tree_grower::build(collectives& all, const std::vector<open_node*>& nodes) {
  const auto workers = all.size();
  const auto part = std::max<std::size_t>(1, layout_.part);
  const auto at_once = std::max<std::size_t>(1, grower_buffer_bytes / (16 * part * workers));
  std::vector<std::uint32_t> offset(layout_.feature.size());
  for (std::size_t begin = 0; begin < nodes.size(); begin += at_once) {
    const auto count = std::min(at_once, nodes.size() - begin);
    buffer_.assign(workers * count * part * 2, 0);
    for (std::size_t k = 0; k < count; ++k) {
      const auto& n = *nodes[begin + k];
      for (std::size_t j = 0; j < offset.size(); ++j)
        offset[j] = static_cast<std::uint32_t>((layout_.worker[j] * count + k) * part + layout_.place[j]);
      build_histogram(std::span(order_).subspan(n.begin, n.end - n.begin), offset, buffer_.data());
    }
    const auto own = all.reduce_scatter(std::span(buffer_), reduce_op::sum, "histograms");
    for (std::size_t k = 0; k < count; ++k) {
      const auto of = own.subspan(k * part * 2, part * 2);
      nodes[begin + k]->sums.assign(of.begin(), of.end());
    }
  }
}

tree_grower::candidates tree_grower::begin_candidates(const open_node& n, std::size_t feature,
                                                      const std::int64_t* sums) const {
  const auto& bins = bins_[feature];
  candidates a;
  a.values = bins.values();
  a.sums = sums;
  if (bins.missing && count_of(sums[2 * a.values + 1]) > 0) a.missing = sums + 2 * a.values;
  a.parent = score(n.grad, n.hess);
  a.best = std::max(settings_.gamma, n.best.feature < 0 ? 0 : n.best.gain);
  return a;
}

/// Whether a split with these sums on the left is better than the best one, which it then becomes.
bool tree_grower::update_best(const open_node& n, std::int64_t grad, std::int64_t hess, bool missing_left,
                              candidates& a) const {
  const auto right_hess = n.hess - hess;
  if (count_of(hess) < settings_.min_child_rows || count_of(right_hess) < settings_.min_child_rows) return false;
  if (hess_of(hess) < settings_.min_child_weight || hess_of(right_hess) < settings_.min_child_weight) return false;
  const double gain = score(grad, hess) + score(n.grad - grad, right_hess) - a.parent;
  if (!(gain > a.best)) return false;
  a.best = gain;
  a.missing_left = missing_left;
  a.left_grad = grad;
  a.left_hess = hess;
  return true;
}

bool tree_grower::enumerate_numeric_splits(const open_node& n, candidates& a, tree_split& found) const {
  std::int32_t at = -1;
  for (const bool to_left : {true, false}) {
    if (!to_left && a.missing == nullptr) break;
    std::int64_t grad = to_left && a.missing != nullptr ? a.missing[0] : 0;
    std::int64_t hess = to_left && a.missing != nullptr ? a.missing[1] : 0;
    for (std::size_t b = 0; b + (to_left ? 1 : 0) < a.values; ++b) {
      if (a.sums[2 * b + 1] == 0) continue;
      grad += a.sums[2 * b];
      hess += a.sums[2 * b + 1];
      if (count_of(n.hess - hess) < settings_.min_child_rows) break;
      if (update_best(n, grad, hess, to_left, a)) at = static_cast<std::int32_t>(b);
    }
  }
  found.last_left = at;
  for (std::int32_t b = 0; b <= at; ++b) found.go_left(static_cast<std::size_t>(b));
  return at >= 0;
}

/// The categories on the right: one, or the first or last few by the ratio of their sums, among which is the best of
/// all sets. Categories without a bin of their own stay on the left.
/// Source: W. Fisher, "On grouping for maximum homogeneity", JASA 53, 1958.
bool tree_grower::enumerate_categorical_splits(const open_node& n, std::size_t feature, candidates& a,
                                               tree_split& found) const {
  const auto* const sums = a.sums;
  std::vector<std::size_t> order;
  std::vector<double> ratio(bins_[feature].category.size());
  for (std::size_t c = 0; c < ratio.size(); ++c) {
    if (sums[2 * c + 1] == 0) continue;
    order.push_back(c);
    const double h = hess_of(sums[2 * c + 1]) + settings_.lambda;
    ratio[c] = h > 0 ? grad_of(sums[2 * c]) / h : 0;
  }
  const bool single = order.size() <= settings_.one_hot_at_most;
  if (!single)
    std::ranges::sort(order, [&](auto x, auto y) { return ratio[x] < ratio[y] || (ratio[x] == ratio[y] && x < y); });
  std::size_t from = 0;
  std::size_t count = 0;
  // A set on the right: order[begin, begin + length).
  const auto try_split = [&](std::size_t begin, std::size_t length, std::int64_t grad, std::int64_t hess) {
    for (const bool to_left : {true, false}) {
      if (!to_left && a.missing == nullptr) break;
      const auto left_grad = n.grad - grad - (to_left ? 0 : a.missing[0]);
      const auto left_hess = n.hess - hess - (to_left ? 0 : a.missing[1]);
      if (!update_best(n, left_grad, left_hess, to_left, a)) continue;
      from = begin;
      count = length;
    }
  };
  for (const bool forward : {true, false}) {
    std::int64_t grad = 0;
    std::int64_t hess = 0;
    for (std::size_t k = 0; k < order.size(); ++k) {
      const auto c = order[forward ? k : order.size() - 1 - k];
      if (single) grad = hess = 0;
      grad += sums[2 * c];
      hess += sums[2 * c + 1];
      if (single) try_split(k, 1, grad, hess);
      else try_split(forward ? 0 : order.size() - 1 - k, k + 1, grad, hess);
    }
    if (single) break;
  }
  std::vector<bool> right(a.values);
  for (std::size_t k = from; k < from + count; ++k) right[order[k]] = true;
  // A category without rows in this node is treated like one not seen in training.
  for (std::size_t b = 0; b < a.values; ++b) {
    if (!right[b]) found.go_left(b);
  }
  return count > 0;
}

void tree_grower::evaluate_splits(open_node& n, std::size_t feature, const std::int64_t* sums) const {
  const auto& bins = bins_[feature];
  auto a = begin_candidates(n, feature, sums);
  tree_split found;
  if (!(bins.categorical ? enumerate_categorical_splits(n, feature, a, found) : enumerate_numeric_splits(n, a, found)))
    return;
  found.gain = a.best;
  found.feature = static_cast<std::int32_t>(feature);
  found.missing_left = a.missing_left;
  found.left_grad = a.left_grad;
  found.left_hess = a.left_hess;
  if (bins.missing && a.missing_left) found.go_left(a.values);
  n.best = found;
}

/// Finds the best splits, over all features, of nodes whose sums are built.
void tree_grower::find_splits(collectives& all, const std::vector<open_node*>& nodes) {
  if (nodes.empty()) return;
  std::vector<std::int64_t> mine(nodes.size() * tree_split::words);
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    auto& n = *nodes[k];
    n.best = {};
    for (std::size_t j = 0; j < layout_.feature.size(); ++j) {
      if (layout_.worker[j] == all.rank())
        evaluate_splits(n, layout_.feature[j], n.sums.data() + 2 * std::size_t{layout_.place[j]});
    }
    n.best.pack(&mine[k * tree_split::words]);
  }
  const auto found = all.all_gather(std::span<const std::int64_t>(mine), "splits");
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    for (std::size_t r = 0; r < all.size(); ++r) {
      tree_split other;
      other.unpack(&found[(r * nodes.size() + k) * tree_split::words]);
      if (other.before(nodes[k]->best)) nodes[k]->best = other;
    }
  }
}

std::vector<tree_grower::open_node> tree_grower::split(collectives& all, forest& to, std::vector<open_node> nodes,
                                                       bool last) {
  std::vector<open_node> children;
  std::vector<open_node*> build_these;
  std::vector<open_node*> find_these;
  children.reserve(nodes.size() * 2);
  for (auto& n : nodes) {
    const auto rows = std::span(order_).subspan(n.begin, n.end - n.begin);
    const auto middle = n.begin + partition_rows(rows, rows_, n.best, room_);
    const auto left = set_split(to, tree_, n.node, n.best, bins_, split_of_);
    children.push_back({left, n.begin, middle, n.depth + 1, n.best.left_grad, n.best.left_hess, {}, {}});
    children.push_back(
        {left + 1, middle, n.end, n.depth + 1, n.grad - n.best.left_grad, n.hess - n.best.left_hess, {}, {}});
    for (std::size_t k = children.size() - 2; k < children.size(); ++k) {
      auto& made = to.node[tree_ + children[k].node];
      made.cover = hess_of(children[k].hess);
      made.rows = static_cast<double>(count_of(children[k].hess));
    }
  }
  if (!last) {
    // Of two siblings, the one with fewer rows on all workers.
    for (std::size_t k = 0; k < nodes.size(); ++k) {
      auto& a = children[2 * k];
      auto& b = children[2 * k + 1];
      if (!may_split(a) && !may_split(b)) continue;
      build_these.push_back(count_of(a.hess) <= count_of(b.hess) ? &a : &b);
    }
    build(all, build_these);
    for (std::size_t k = 0; k < nodes.size(); ++k) {
      auto& a = children[2 * k];
      auto& b = children[2 * k + 1];
      if (!may_split(a) && !may_split(b)) continue;
      auto& small = count_of(a.hess) <= count_of(b.hess) ? a : b;
      auto& large = &small == &a ? b : a;
      large.sums = std::move(nodes[k].sums);
      for (std::size_t i = 0; i < large.sums.size(); ++i) large.sums[i] -= small.sums[i];
      for (auto* c : {&a, &b}) {
        if (may_split(*c)) find_these.push_back(c);
      }
    }
    find_splits(all, find_these);
  }
  return children;
}

void tree_grower::finish_leaf(forest& to, const open_node& n, double rate) const {
  auto& leaf = to.node[tree_ + n.node];
  leaf.leaf = static_cast<std::uint32_t>(to.value.size());
  const double h = hess_of(n.hess) + settings_.lambda;
  to.value.push_back(static_cast<float>(h > 0 ? -grad_of(n.grad) / h * rate : 0));
}

void tree_grower::grow(collectives& all, forest& to, std::span<const std::uint32_t> sample, bool all_rows,
                       std::span<const std::uint32_t> features, double rate) {
  all_rows_ = all_rows;
  if (all_rows) {
    order_.resize(rows_.rows);
    for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<std::uint32_t>(i);
  } else {
    order_.assign(sample.begin(), sample.end());
  }
  layout_ = histogram_layout({features.begin(), features.end()}, bins_, all.size());
  tree_ = to.node.size();
  to.node.emplace_back();
  split_of_.assign(1, {});
  leaves_.clear();

  open_node root;
  root.end = order_.size();
  std::array<std::int64_t, 2> sums{};
  for (const auto r : order_) {
    sums[0] += gradient_[r].grad;
    sums[1] += gradient_[r].hess + (std::int64_t{1} << count_shift_);
  }
  all.all_reduce(std::span<std::int64_t>(sums), reduce_op::sum, "root");
  root.grad = sums[0];
  root.hess = sums[1];
  to.node[tree_].cover = hess_of(root.hess);
  to.node[tree_].rows = static_cast<double>(count_of(root.hess));
  if (may_split(root)) {
    build(all, {&root});
    find_splits(all, {&root});
  }
  std::vector<open_node> open;
  open.push_back(std::move(root));
  std::size_t leaves = 1;
  const auto most = settings_.max_leaves == 0 ? std::numeric_limits<std::size_t>::max() : settings_.max_leaves;
  while (!open.empty()) {
    // The nodes to be split next come first.
    std::ranges::sort(open, [](const auto& a, const auto& b) {
      const bool one = a.best.feature >= 0;
      const bool other = b.best.feature >= 0;
      if (one != other) return one;
      return one && a.best.gain != b.best.gain ? a.best.gain > b.best.gain : a.node < b.node;
    });
    std::size_t count = 0;
    while (count < open.size() && open[count].best.feature >= 0 && leaves + count < most &&
           (count == 0 || !settings_.leaf_wise))
      ++count;
    std::vector<open_node> next(std::make_move_iterator(open.begin()),
                                std::make_move_iterator(open.begin() + static_cast<std::ptrdiff_t>(count)));
    open.erase(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(count));
    if (!settings_.leaf_wise || count == 0) {
      for (auto& n : open) leaves_.push_back(std::move(n));
      open.clear();
    }
    if (count == 0) break;
    leaves += count;
    for (auto& c : split(all, to, std::move(next), leaves >= most)) open.push_back(std::move(c));
  }
  std::ranges::sort(leaves_, {}, &open_node::node);
  for (const auto& n : leaves_) finish_leaf(to, n, rate);
  to.tree_begin.push_back(static_cast<std::uint32_t>(to.node.size()));
}

void tree_grower::add_values(const forest& of, std::span<double> margin, std::size_t stride) const {
  const auto value_at = [&](std::size_t node) { return static_cast<double>(of.value[of.node[tree_ + node].leaf]); };
  if (all_rows_) {
    for (const auto& n : leaves_) {
      const double v = value_at(n.node);
      for (std::size_t i = n.begin; i < n.end; ++i) margin[order_[i] * stride] += v;
    }
    return;
  }
  for (std::size_t i = 0; i < rows_.rows; ++i)
    margin[i * stride] += value_at(leaf_of_bins(of, tree_, split_of_, rows_.row(i)));
}

}  // namespace paracel::alg
