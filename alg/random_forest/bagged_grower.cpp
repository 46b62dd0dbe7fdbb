// SPDX-License-Identifier: BSD-3-Clause
#include "bagged_grower.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include <paracel/random.hpp>

namespace paracel::alg {

namespace {

// The sums of the nodes that are looked at together, at most, of all workers' parts.
constexpr std::size_t bagging_buffer_bytes = std::size_t{32} << 20U;
constexpr std::uint64_t node_stream = 0x6e6f6465;
constexpr double least_visible_gain = 1e-12;  // relative: less is rounding

}  // namespace

bagged_grower::bagged_grower(collectives& all, const binned_rows& rows, const std::vector<feature_bins>& bins,
                             std::span<const double> label, std::uint64_t most_draws, bagging_settings settings)
    : rows_(rows), bins_(bins), settings_(settings), lanes_(settings.classes > 0 ? settings.classes : 2) {
  if (settings_.classes > 0) {
    for (const double y : label) class_.push_back(static_cast<std::uint32_t>(y));
    return;
  }
  // As many bits as the sum leaves. Draws add up to about what is expected; of very few rows to more.
  const double most = greatest_value(all, label, "targets");
  const int up = most > 0 ? 57 - static_cast<int>(std::bit_width(most_draws)) - std::ilogb(most) : 0;
  unit_ = std::scalbn(1.0, -up);
  for (const double y : label) target_.push_back(std::llrint(std::scalbn(y, up)));
}

std::int64_t bagged_grower::count_of(const std::int64_t* sums) const noexcept {
  if (settings_.classes == 0) return sums[0];
  std::int64_t n = 0;
  for (std::size_t k = 0; k < lanes_; ++k) n += sums[k];
  return n;
}

double bagged_grower::score(const std::int64_t* sums) const noexcept {
  const auto n = static_cast<double>(count_of(sums));
  if (n == 0) return 0;
  if (settings_.classes == 0) {
    const double y = static_cast<double>(sums[1]) * unit_;
    return y * y / n;
  }
  double squares = 0;
  for (std::size_t k = 0; k < lanes_; ++k) squares += static_cast<double>(sums[k]) * static_cast<double>(sums[k]);
  return squares / n;
}

bool bagged_grower::may_split(const open_node& n) const noexcept {
  const auto count = count_of(n.sums.data());
  if (count < settings_.min_split || count < 2 * settings_.min_leaf) return false;
  if (settings_.max_depth != 0 && n.depth >= settings_.max_depth) return false;
  // Of one class: there is nothing to gain.
  return settings_.classes == 0 || std::ranges::find(n.sums, count) == n.sums.end();
}

/// The features of a node: a function of seed, tree and node. If they do not split it, it is a leaf.
void bagged_grower::sample_features(collectives& all, open_node& n, std::uint64_t tree) const {
  std::vector<std::uint32_t> features(bins_.size());
  std::iota(features.begin(), features.end(), 0U);
  const auto count = std::min(settings_.features, features.size());
  counter_random random(settings_.seed, node_stream + tree, n.node);
  std::vector<std::uint32_t> chosen;
  // Constant features are not drawn.
  for (std::size_t i = 0; i < features.size() && chosen.size() < count; ++i) {
    std::swap(features[i], features[i + random.below(features.size() - i)]);
    if (bins_[features[i]].bins() > 1) chosen.push_back(features[i]);
  }
  std::ranges::sort(chosen);
  n.layout = histogram_layout(std::move(chosen), bins_, all.size());
}

/// Looks at a feature of a node: numbers by the order of bins, categories by that of their mean, or of their share of
/// the node's most frequent class.
void bagged_grower::look_at(open_node& n, std::size_t feature, const std::int64_t* sums) const {
  const auto& bins = bins_[feature];
  const auto values = bins.values();
  const auto at = [&](std::size_t bin) { return sums + bin * lanes_; };
  const double parent = score(n.sums.data());
  const auto total = count_of(n.sums.data());
  std::vector<std::size_t> order;
  std::vector<std::int64_t> counts(values);
  for (std::size_t b = 0; b < values; ++b) {
    counts[b] = count_of(at(b));
    if (counts[b] > 0 && !(bins.others && b + 1 == values)) order.push_back(b);
  }
  if (bins.categorical) {
    const auto most = settings_.classes == 0
                          ? std::size_t{1}
                          : static_cast<std::size_t>(std::ranges::max_element(n.sums) - n.sums.begin());
    std::vector<double> share(values);
    for (const auto b : order) share[b] = static_cast<double>(at(b)[most]) / static_cast<double>(counts[b]);
    std::ranges::stable_sort(order, [&](auto a, auto b) { return share[a] < share[b]; });
  }
  const bool some_missing = bins.missing && count_of(at(values)) > 0;
  // What is always left: categories without a bin of their own.
  std::vector<std::int64_t> others(lanes_);
  if (bins.others) others.assign(at(values - 1), at(values - 1) + lanes_);
  double best = std::max(n.best.feature < 0 ? 0.0 : n.best.gain, least_visible_gain * std::abs(parent));
  std::size_t taken = 0;
  bool missing_left = true;
  std::vector<std::int64_t> left_sums;
  std::vector<std::int64_t> left(lanes_);
  std::vector<std::int64_t> right(lanes_);
  for (const bool to_left : {true, false}) {
    if (!to_left && !some_missing) break;
    left = others;
    if (to_left && some_missing) {
      for (std::size_t k = 0; k < lanes_; ++k) left[k] += at(values)[k];
    }
    for (std::size_t i = 0; i < order.size(); ++i) {
      for (std::size_t k = 0; k < lanes_; ++k) left[k] += at(order[i])[k];
      // A category needs one on the right, as a set without any is a number.
      if (i + 1 == order.size() && (to_left || bins.categorical)) break;
      const auto count = count_of(left.data());
      if (count < settings_.min_leaf || total - count < settings_.min_leaf) continue;
      for (std::size_t k = 0; k < lanes_; ++k) right[k] = n.sums[k] - left[k];
      const double gain = score(left.data()) + score(right.data()) - parent;
      if (!(gain > best)) continue;
      best = gain;
      taken = i + 1;
      missing_left = to_left;
      left_sums = left;
    }
  }
  if (taken == 0) return;
  n.best = {};
  n.best.gain = best;
  n.best.feature = static_cast<std::int32_t>(feature);
  n.best.missing_left = missing_left;
  n.left_sums = std::move(left_sums);
  if (bins.categorical) {
    std::vector<bool> right_side(values);
    for (std::size_t i = taken; i < order.size(); ++i) right_side[order[i]] = true;
    for (std::size_t b = 0; b < values; ++b) {
      if (!right_side[b]) n.best.go_left(b);
    }
  } else {
    n.best.last_left = static_cast<std::int32_t>(order[taken - 1]);
    for (std::size_t b = 0; b <= order[taken - 1]; ++b) n.best.go_left(b);
  }
  if (bins.missing && missing_left) n.best.go_left(values);
}

/// The best splits of nodes, as many at a time as the buffer holds.
void bagged_grower::find_splits(collectives& all, std::span<open_node> nodes) {
  const auto words = tree_split::words + lanes_;
  std::size_t begin = 0;
  while (begin < nodes.size()) {
    std::size_t part = 0;
    std::size_t end = begin;
    while (end < nodes.size() &&
           (end == begin || (part + nodes[end].layout.part) * lanes_ * all.size() * 8 <= bagging_buffer_bytes))
      part += nodes[end++].layout.part;
    const auto batch = nodes.subspan(begin, end - begin);
    begin = end;
    buffer_.assign(part * lanes_ * all.size(), 0);
    std::size_t base = 0;
    std::vector<std::size_t> offset;
    for (const auto& n : batch) {
      const auto& l = n.layout;
      offset.clear();
      for (std::size_t j = 0; j < l.feature.size(); ++j)
        offset.push_back((l.worker[j] * part + base + l.place[j]) * lanes_);
      for (std::size_t i = n.begin; i < n.end; ++i) {
        const auto r = std::size_t{order_[i]};
        const auto* const bin = rows_.row(r);
        for (std::size_t j = 0; j < offset.size(); ++j)
          add_row(buffer_.data() + offset[j] + std::size_t{bin[l.feature[j]]} * lanes_, r);
      }
      base += l.part;
    }
    const auto own = all.reduce_scatter(std::span(buffer_), reduce_op::sum, "histograms");
    std::vector<std::int64_t> mine(batch.size() * words);
    base = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      auto& n = batch[i];
      n.best = {};
      n.left_sums.assign(lanes_, 0);
      for (std::size_t j = 0; j < n.layout.feature.size(); ++j) {
        if (n.layout.worker[j] == all.rank())
          look_at(n, n.layout.feature[j], own.data() + (base + n.layout.place[j]) * lanes_);
      }
      base += n.layout.part;
      n.best.pack(&mine[i * words]);
      std::ranges::copy(n.left_sums, mine.begin() + static_cast<std::ptrdiff_t>(i * words + tree_split::words));
    }
    const auto found = all.all_gather(std::span<const std::int64_t>(mine), "splits");
    for (std::size_t i = 0; i < batch.size(); ++i) {
      for (std::size_t r = 0; r < all.size(); ++r) {
        const auto* const from = &found[(r * batch.size() + i) * words];
        tree_split other;
        other.unpack(from);
        if (!other.before(batch[i].best)) continue;
        batch[i].best = other;
        batch[i].left_sums.assign(from + tree_split::words, from + words);
      }
    }
  }
}

void bagged_grower::finish_leaf(forest& to, const open_node& n) const {
  to.node[tree_ + n.node].leaf = static_cast<std::uint32_t>(to.value.size() / to.width);
  const auto count = static_cast<double>(std::max<std::int64_t>(1, count_of(n.sums.data())));
  if (settings_.classes == 0) {
    to.value.push_back(static_cast<float>(static_cast<double>(n.sums[1]) * unit_ / count));
    return;
  }
  for (const auto s : n.sums) to.value.push_back(static_cast<float>(static_cast<double>(s) / count));
}

void bagged_grower::grow(collectives& all, forest& to, std::span<const std::uint16_t> draws, std::uint64_t tree) {
  draws_ = draws;
  order_.clear();
  for (std::size_t i = 0; i < draws.size(); ++i) {
    if (draws[i] > 0) order_.push_back(static_cast<std::uint32_t>(i));
  }
  tree_ = to.node.size();
  to.node.emplace_back();
  split_of_.assign(1, {});
  std::vector<open_node> level(1);
  level[0].end = order_.size();
  level[0].sums.assign(lanes_, 0);
  for (const auto r : order_) add_row(level[0].sums.data(), r);
  all.all_reduce(std::span<std::int64_t>(level[0].sums), reduce_op::sum, "root");
  while (!level.empty()) {
    std::vector<open_node> open;
    for (auto& n : level) {
      auto& made = to.node[tree_ + n.node];
      made.cover = made.rows = static_cast<double>(count_of(n.sums.data()));
      if (!may_split(n)) {
        finish_leaf(to, n);
        continue;
      }
      sample_features(all, n, tree);
      open.push_back(std::move(n));
    }
    find_splits(all, open);
    level.clear();
    for (auto& n : open) {
      if (n.best.feature < 0) {
        finish_leaf(to, n);
        continue;
      }
      const auto middle =
          n.begin + partition_rows(std::span(order_).subspan(n.begin, n.end - n.begin), rows_, n.best, room_);
      const auto left = set_split(to, tree_, n.node, n.best, bins_, split_of_);
      auto right_sums = n.sums;
      for (std::size_t k = 0; k < lanes_; ++k) right_sums[k] -= n.left_sums[k];
      level.push_back({left, n.begin, middle, n.depth + 1, std::move(n.left_sums), {}, {}, {}});
      level.push_back({left + 1, middle, n.end, n.depth + 1, std::move(right_sums), {}, {}, {}});
    }
  }
  to.tree_begin.push_back(static_cast<std::uint32_t>(to.node.size()));
}

}  // namespace paracel::alg
