// SPDX-License-Identifier: BSD-3-Clause
#include "subtree_grower.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

namespace paracel::alg {

namespace {

constexpr std::size_t most_bins = 256;

}  // namespace

subtree_grower::subtree_grower(const std::vector<feature_bins>& bins, forest_splits& search, bool classes)
    : bins_(bins),
      search_(search),
      classes_(classes),
      lanes_(search.lanes()),
      sums_(lanes_),
      histogram_(most_bins * lanes_),
      drawn_(most_bins),
      touched_(most_bins + 1) {}

void subtree_grower::grow(const small_node& from, const node_rows& rows, std::uint64_t tree,
                          std::vector<std::int64_t>& nodes) {
  order_.resize(rows.rows);
  std::iota(order_.begin(), order_.end(), 0U);
  room_.resize(rows.rows);
  open_.assign(1, {from.key, 0, rows.rows, from.depth});
  open_sums_ = from.sums;
  while (!open_.empty()) {
    const auto n = open_.back();
    open_.pop_back();
    const auto kept = open_sums_.size() - lanes_;
    std::copy_n(open_sums_.begin() + static_cast<std::ptrdiff_t>(kept), lanes_, sums_.begin());
    open_sums_.resize(kept);
    tree_split split;
    if (search_.may_split(sums_, n.depth)) {
      look_at_all(n, rows, tree);
      split = search_.best();
    }
    if (split.feature < 0) {
      nodes.push_back(-1);
      continue;
    }
    const auto feature = static_cast<std::size_t>(split.feature);
    if (!bins_[feature].categorical) set_left_bins(split, bins_[feature]);
    const auto& left = search_.left_sums();
    write_split(nodes, split, bins_, left);
    const std::uint8_t* const bin = rows.by_column.data() + feature * rows.rows;
    const auto middle = n.begin + partition_stably(std::span(order_).subspan(n.begin, n.end - n.begin), room_,
                                                   [&](std::uint32_t r) { return split.goes_left(bin[r]); });
    for (std::size_t k = 0; k < lanes_; ++k) open_sums_.push_back(sums_[k] - left[k]);
    open_sums_.insert(open_sums_.end(), left.begin(), left.end());
    open_.push_back({forest_splits::key_of_child(n.key, true), middle, n.end, n.depth + 1});
    open_.push_back({forest_splits::key_of_child(n.key, false), n.begin, middle, n.depth + 1});
  }
}

void subtree_grower::look_at_all(const part& n, const node_rows& rows, std::uint64_t tree) {
  search_.sample_features(tree, n.key, features_);
  search_.begin(sums_);
  for (const auto f : features_) {
    build_histogram(n, rows.by_column.data() + std::size_t{f} * rows.rows, rows.value);
    std::array<std::uint64_t, most_bins / 64> marks{};
    for (std::size_t i = 0; i < touched_count_; ++i) marks[touched_[i] / 64] |= std::uint64_t{1} << touched_[i] % 64;
    present_.clear();
    for (std::size_t i = 0; i < marks.size(); ++i) {
      for (auto m = marks[i]; m != 0; m &= m - 1)
        present_.push_back(static_cast<std::uint8_t>(i * 64 + static_cast<std::size_t>(std::countr_zero(m))));
    }
    if (present_.size() > 1) search_.evaluate_splits(f, histogram_.data(), present_);
    for (std::size_t i = 0; i < touched_count_; ++i) {
      drawn_[touched_[i]] = 0;
      std::fill_n(histogram_.begin() + static_cast<std::ptrdiff_t>(touched_[i] * lanes_), lanes_, 0);
    }
  }
}

void subtree_grower::build_histogram(const part& n, const std::uint8_t* bin, const std::vector<std::int64_t>& value) {
  touched_count_ = 0;
  for (std::size_t i = n.begin; i < n.end; ++i) {
    const auto r = std::size_t{order_[i]};
    const std::size_t b = bin[r];
    const auto times = value[2 * r];
    touched_[touched_count_] = static_cast<std::uint8_t>(b);
    if (classes_) {
      touched_count_ += drawn_[b] == 0 ? 1 : 0;
      drawn_[b] += times;
      histogram_[b * lanes_ + static_cast<std::size_t>(value[2 * r + 1])] += times;
    } else {
      auto* const sums = histogram_.data() + b * 2;
      touched_count_ += sums[0] == 0 ? 1 : 0;
      sums[0] += times;
      sums[1] += value[2 * r + 1];
    }
  }
}

void write_split(std::vector<std::int64_t>& nodes, const tree_split& split, const std::vector<feature_bins>& bins,
                 std::span<const std::int64_t> left_sums) {
  std::array<std::int64_t, tree_split::words> words{};
  split.pack(words.data());
  nodes.push_back(words[1]);
  nodes.push_back(words[0]);
  if (bins[static_cast<std::size_t>(split.feature)].categorical)
    nodes.insert(nodes.end(), words.begin() + 2, words.begin() + 6);
  nodes.insert(nodes.end(), left_sums.begin(), left_sums.end());
}

tree_split read_split(std::span<const std::int64_t>& nodes, const std::vector<feature_bins>& bins,
                      std::span<std::int64_t> left_sums) {
  std::array<std::int64_t, tree_split::words> words{0, nodes[0]};
  tree_split split;
  if (nodes[0] < 0) {
    nodes = nodes.subspan(1);
    return split;
  }
  words[0] = nodes[1];
  nodes = nodes.subspan(2);
  split.unpack(words.data());
  const auto& b = bins[static_cast<std::size_t>(split.feature)];
  if (b.categorical) {
    std::copy_n(nodes.begin(), 4, words.begin() + 2);
    split.unpack(words.data());
    nodes = nodes.subspan(4);
  } else {
    set_left_bins(split, b);
  }
  std::copy_n(nodes.begin(), left_sums.size(), left_sums.begin());
  nodes = nodes.subspan(left_sums.size());
  return split;
}

}  // namespace paracel::alg
