// SPDX-License-Identifier: BSD-3-Clause
#include "forest_splits.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace paracel::alg {

namespace {

constexpr std::uint64_t node_stream = 0x6e6f6465;
constexpr double least_visible_gain = 1e-12;  // relative to the node's score: less is rounding

}  // namespace

forest_splits::forest_splits(const std::vector<feature_bins>& bins, const bagging_settings& settings, double unit)
    : bins_(bins),
      settings_(settings),
      lanes_(settings.classes > 0 ? settings.classes : 2),
      unit_(unit),
      features_(bins.size()),
      left_sums_(lanes_),
      share_(256),
      first_(lanes_),
      left_(lanes_) {
  std::iota(features_.begin(), features_.end(), 0U);
}

std::int64_t forest_splits::count_of(const std::int64_t* sums) const noexcept {
  return settings_.classes == 0 ? sums[0] : std::accumulate(sums, sums + lanes_, std::int64_t{0});
}

double forest_splits::score(const std::int64_t* sums) const noexcept {
  const auto n = static_cast<double>(count_of(sums));
  if (n == 0) return 0;
  if (settings_.classes == 0) {
    const double y = static_cast<double>(sums[1] - sums[0] * centre_) * unit_;
    return y * y / n;
  }
  double squares = 0;
  for (std::size_t k = 0; k < lanes_; ++k) squares += static_cast<double>(sums[k]) * static_cast<double>(sums[k]);
  return squares / n;
}

bool forest_splits::may_split(std::span<const std::int64_t> sums, std::size_t depth) const noexcept {
  const auto count = count_of(sums.data());
  if (count < settings_.min_split || count < 2 * settings_.min_leaf) return false;
  if (settings_.max_depth != 0 && depth >= settings_.max_depth) return false;
  // A node of a single class has nothing to gain.
  return settings_.classes == 0 || std::ranges::find(sums, count) == sums.end();
}

void forest_splits::sample_features(std::uint64_t tree, std::uint64_t key, std::vector<std::uint32_t>& chosen) {
  const auto count = std::min(settings_.features, features_.size());
  counter_random random(settings_.seed, node_stream + tree, key);
  chosen.clear();
  swapped_.clear();
  for (std::size_t i = 0; i < features_.size() && chosen.size() < count; ++i) {
    const auto other = i + random.below(features_.size() - i);
    std::swap(features_[i], features_[other]);
    swapped_.push_back(static_cast<std::uint32_t>(other));
    if (bins_[features_[i]].bins() > 1) chosen.push_back(features_[i]);
  }
  for (auto i = swapped_.size(); i-- > 0;) std::swap(features_[i], features_[swapped_[i]]);
  std::ranges::sort(chosen);
}

void forest_splits::begin(std::span<const std::int64_t> sums) {
  node_ = sums;
  // With the node's mean as the origin, to a unit, a gain is no small difference of large numbers.
  if (settings_.classes == 0) centre_ = sums[0] > 0 ? sums[1] / sums[0] : 0;
  total_ = count_of(sums.data());
  parent_ = score(sums.data());
  best_ = {};
}

void forest_splits::evaluate_splits(std::size_t feature, const std::int64_t* sums, std::vector<std::uint8_t>& present) {
  const auto& bins = bins_[feature];
  const auto values = bins.values();
  // Always on the left: categories without a bin of their own.
  std::ranges::fill(first_, 0);
  const auto add = [&](std::size_t bin) {
    for (std::size_t k = 0; k < lanes_; ++k) first_[k] += sums[bin * lanes_ + k];
  };
  const bool some_missing = bins.missing && !present.empty() && present.back() == values;
  if (some_missing) present.pop_back();
  if (bins.others && !present.empty() && present.back() + 1U == values) {
    present.pop_back();
    add(values - 1);
  }
  order_.swap(present);
  if (bins.categorical) {
    const auto most = settings_.classes == 0
                          ? std::size_t{1}
                          : static_cast<std::size_t>(std::ranges::max_element(node_) - node_.begin());
    for (const auto b : order_) {
      const auto* const at = sums + b * lanes_;
      share_[b] = static_cast<double>(at[most]) / static_cast<double>(count_of(at));
    }
    std::ranges::stable_sort(order_, [&](auto a, auto b) { return share_[a] < share_[b]; });
  }
  gain_ = std::max(best_.feature < 0 ? 0.0 : best_.gain, least_visible_gain * std::abs(parent_));
  taken_ = 0;
  missing_left_ = true;
  // A split by categories needs one on the right: a node without any would be read as a split of numbers.
  const auto inner = order_.empty() ? 0 : order_.size() - 1;
  if (some_missing) add(values);
  try_all(sums, inner, true);
  if (some_missing) {
    for (std::size_t k = 0; k < lanes_; ++k) first_[k] -= sums[values * lanes_ + k];
    try_all(sums, bins.categorical ? inner : order_.size(), false);
    if (missing_left_) add(values);
  }
  if (taken_ == 0) return;
  best_ = {};
  best_.gain = gain_;
  best_.feature = static_cast<std::int32_t>(feature);
  best_.missing_left = missing_left_;
  for (std::size_t i = 0; i < taken_; ++i) add(order_[i]);
  left_sums_ = first_;
  if (bins.categorical) {
    std::vector<bool> right_side(values);
    for (std::size_t i = taken_; i < order_.size(); ++i) right_side[order_[i]] = true;
    for (std::size_t b = 0; b < values; ++b) {
      if (!right_side[b]) best_.go_left(b);
    }
    if (bins.missing && missing_left_) best_.go_left(values);
  } else {
    best_.last_left = order_[taken_ - 1];
  }
}

void forest_splits::try_all(const std::int64_t* sums, std::size_t splits, bool missing_left) {
  if (settings_.classes == 0) try_numbers(sums, splits, missing_left);
  else try_classes(sums, splits, missing_left);
}

void forest_splits::try_numbers(const std::int64_t* sums, std::size_t splits, bool missing_left) {
  auto count = first_[0];
  auto target = first_[1] - first_[0] * centre_;
  const auto all = node_[1] - node_[0] * centre_;
  for (std::size_t i = 0; i < splits; ++i) {
    const auto* const at = sums + std::size_t{order_[i]} * 2;
    count += at[0];
    target += at[1] - at[0] * centre_;
    if (count < settings_.min_leaf || total_ - count < settings_.min_leaf) continue;
    const double left = static_cast<double>(target) * unit_;
    const double right = static_cast<double>(all - target) * unit_;
    const double gain =
        left * left / static_cast<double>(count) + right * right / static_cast<double>(total_ - count) - parent_;
    if (!(gain > gain_)) continue;
    gain_ = gain;
    taken_ = i + 1;
    missing_left_ = missing_left;
  }
}

/// Sums of squares are updated from bin to bin, which is exact as long as they are below 2^53.
void forest_splits::try_classes(const std::int64_t* sums, std::size_t splits, bool missing_left) {
  std::int64_t count = 0;
  double left = 0;
  double right = 0;
  for (std::size_t k = 0; k < lanes_; ++k) {
    left_[k] = first_[k];
    count += first_[k];
    left += static_cast<double>(first_[k]) * static_cast<double>(first_[k]);
    right += static_cast<double>(node_[k] - first_[k]) * static_cast<double>(node_[k] - first_[k]);
  }
  for (std::size_t i = 0; i < splits; ++i) {
    const auto* const at = sums + std::size_t{order_[i]} * lanes_;
    for (std::size_t k = 0; k < lanes_; ++k) {
      const auto n = at[k];
      if (n == 0) continue;
      const auto more = static_cast<double>(n);
      left += more * (2 * static_cast<double>(left_[k]) + more);
      right -= more * (2 * static_cast<double>(node_[k] - left_[k]) - more);
      left_[k] += n;
      count += n;
    }
    if (count < settings_.min_leaf || total_ - count < settings_.min_leaf) continue;
    const double gain = left / static_cast<double>(count) + right / static_cast<double>(total_ - count) - parent_;
    if (!(gain > gain_)) continue;
    gain_ = gain;
    taken_ = i + 1;
    missing_left_ = missing_left;
  }
}

void set_left_bins(tree_split& split, const feature_bins& bins) noexcept {
  for (std::size_t b = 0; b <= static_cast<std::size_t>(split.last_left); ++b) split.go_left(b);
  if (bins.missing && split.missing_left) split.go_left(bins.values());
}

}  // namespace paracel::alg
