// SPDX-License-Identifier: BSD-3-Clause
#include "bagged_grower.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

namespace paracel::alg {

namespace {

// Limit of the sums, of all workers' parts, of the nodes that are searched together; and of the rows of the small nodes
// that a worker has at once.
constexpr std::size_t bagging_buffer_bytes = std::size_t{32} << 20U;
// A node of at most an eighth of all rows, clamped to these limits, is grown by one worker: an eighth, so that each
// worker gets some nodes; at most many_rows, because the bins of so few fit in the processor's second-level cache.
constexpr std::int64_t few_rows = 256;
constexpr std::int64_t many_rows = 4096;

}  // namespace

bagged_grower::bagged_grower(collectives& all, const binned_rows& rows, const std::vector<feature_bins>& bins,
                             std::span<const double> label, std::uint64_t most_draws, bagging_settings settings)
    : rows_(rows), bins_(bins), settings_(settings) {
  double unit = 1;
  if (settings_.most_of_one == 0)
    settings_.most_of_one = std::clamp(static_cast<std::int64_t>(most_draws / 8), few_rows, many_rows);
  if (settings_.classes > 0) {
    for (const double y : label) class_.push_back(static_cast<std::uint32_t>(y));
  } else {
    // As many bits as the sum leaves. Draws add up to about their expectation; with very few rows, possibly to more.
    const double most = greatest_value(all, label, "targets");
    const int up = most > 0 ? 57 - static_cast<int>(std::bit_width(most_draws)) - std::ilogb(most) : 0;
    unit = std::scalbn(1.0, -up);
    for (const double y : label) target_.push_back(std::llrint(std::scalbn(y, up)));
  }
  search_.emplace(bins, settings_, unit);
  below_.emplace(bins, *search_, settings_.classes > 0);
  lanes_ = search_->lanes();
}

/// Finds the best splits of nodes, as many at a time as the buffer holds.
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
      look_at_own(n, all.rank(), own.data() + base * lanes_);
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

void bagged_grower::look_at_own(open_node& n, std::size_t rank, const std::int64_t* own) {
  search_->begin(n.sums);
  for (std::size_t j = 0; j < n.layout.feature.size(); ++j) {
    if (n.layout.worker[j] != rank) continue;
    const auto f = n.layout.feature[j];
    const auto* const sums = own + n.layout.place[j] * lanes_;
    present_.clear();
    for (std::size_t b = 0; b < bins_[f].bins(); ++b) {
      if (search_->count_of(sums + b * lanes_) > 0) present_.push_back(static_cast<std::uint8_t>(b));
    }
    if (present_.size() > 1) search_->evaluate_splits(f, sums, present_);
  }
  n.best = search_->best();
  n.left_sums = search_->left_sums();
  if (n.best.feature < 0) return;
  const auto& bins = bins_[static_cast<std::size_t>(n.best.feature)];
  if (!bins.categorical) set_left_bins(n.best, bins);
}

void bagged_grower::describe(forest& to, std::size_t node, const std::int64_t* sums) const {
  auto& made = to.node[tree_ + node];
  made.cover = made.rows = static_cast<double>(search_->count_of(sums));
}

void bagged_grower::finish_leaf(forest& to, std::size_t node, const std::int64_t* sums) const {
  to.node[tree_ + node].leaf = static_cast<std::uint32_t>(to.value.size() / to.width);
  const auto count = static_cast<double>(std::max<std::int64_t>(1, search_->count_of(sums)));
  if (settings_.classes == 0) {
    to.value.push_back(static_cast<float>(static_cast<double>(sums[1]) * search_->unit() / count));
    return;
  }
  for (std::size_t k = 0; k < lanes_; ++k) to.value.push_back(static_cast<float>(static_cast<double>(sums[k]) / count));
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
  small_.clear();
  std::vector<open_node> level(1);
  level[0].end = order_.size();
  level[0].sums.assign(lanes_, 0);
  for (const auto r : order_) add_row(level[0].sums.data(), r);
  all.all_reduce(std::span<std::int64_t>(level[0].sums), reduce_op::sum, "root");
  std::vector<std::uint32_t> features;
  while (!level.empty()) {
    std::vector<open_node> open;
    for (auto& n : level) {
      describe(to, n.node, n.sums.data());
      if (!search_->may_split(n.sums, n.depth)) {
        finish_leaf(to, n.node, n.sums.data());
      } else if (search_->count_of(n.sums.data()) <= settings_.most_of_one) {
        small_.push_back(std::move(n));
      } else {
        search_->sample_features(tree, n.key, features);
        n.layout = histogram_layout(features, bins_, all.size());
        open.push_back(std::move(n));
      }
    }
    find_splits(all, open);
    level.clear();
    for (auto& n : open) {
      if (n.best.feature < 0) {
        finish_leaf(to, n.node, n.sums.data());
        continue;
      }
      const auto middle =
          n.begin + partition_rows(std::span(order_).subspan(n.begin, n.end - n.begin), rows_, n.best, room_);
      const auto left = set_split(to, tree_, n.node, n.best, bins_, split_of_);
      auto right_sums = n.sums;
      for (std::size_t k = 0; k < lanes_; ++k) right_sums[k] -= n.left_sums[k];
      const auto child = [&](bool right, std::size_t begin, std::size_t end, std::vector<std::int64_t> sums) {
        open_node c;
        static_cast<small_node&>(c) = {
            left + (right ? 1 : 0), forest_splits::key_of_child(n.key, right), begin, end, n.depth + 1,
            std::move(sums)};
        level.push_back(std::move(c));
      };
      child(false, n.begin, middle, std::move(n.left_sums));
      child(true, middle, n.end, std::move(right_sums));
    }
  }
  grow_small(all, to, tree);
  to.tree_begin.push_back(static_cast<std::uint32_t>(to.node.size()));
}

void bagged_grower::grow_small(collectives& all, forest& to, std::uint64_t tree) {
  const auto row_bytes = rows_.columns + 16;
  std::size_t begin = 0;
  while (begin < small_.size()) {
    std::size_t bytes = 0;
    std::size_t end = begin;
    std::vector<std::size_t> count;
    while (end < small_.size() && (end == begin || bytes <= bagging_buffer_bytes * all.size())) {
      count.push_back(static_cast<std::size_t>(search_->count_of(small_[end++].sums.data())));
      bytes += count.back() * row_bytes;
    }
    const auto nodes = std::span<const small_node>(small_).subspan(begin, end - begin);
    begin = end;
    // Largest first, each to the worker with the fewest rows.
    std::vector<std::size_t> order(nodes.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, [&](auto a, auto b) { return count[a] > count[b]; });
    std::vector<std::size_t> load(all.size());
    std::vector<std::size_t> owner(nodes.size());
    for (const auto i : order) {
      owner[i] = static_cast<std::size_t>(std::ranges::min_element(load) - load.begin());
      load[owner[i]] += count[i];
    }
    const auto found = grow_own(all, nodes, owner, tree);
    // The results are concatenated in rank order.
    std::vector<std::span<const std::int64_t>> of(all.size());
    std::span<const std::int64_t> rest(found);
    for (auto& o : of) {
      const auto length = static_cast<std::size_t>(rest[0]);
      o = rest.subspan(1, length);
      rest = rest.subspan(1 + length);
    }
    for (std::size_t i = 0; i < nodes.size(); ++i) add_nodes(to, nodes[i], of[owner[i]]);
  }
}

std::vector<std::int64_t> bagged_grower::grow_own(collectives& all, std::span<const small_node> nodes,
                                                  std::span<const std::size_t> owner, std::uint64_t tree) {
  std::vector<std::vector<std::int64_t>> rows(all.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) pack_rows(nodes[i], rows[owner[i]]);
  if (all.size() > 1) rows = all.all_to_all(rows, "rows of small nodes");
  const auto bin_words = (rows_.columns + 7) / 8;
  std::vector<const std::int64_t*> at;
  for (const auto& r : rows) at.push_back(r.data());
  std::vector<std::int64_t> mine(1);
  node_rows here;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (owner[i] != all.rank()) continue;
    here.rows = 0;
    here.value.clear();
    std::vector<const std::uint8_t*> bins;
    for (auto& from : at) {
      const auto n = static_cast<std::size_t>(*from++);
      for (std::size_t r = 0; r < n; ++r, from += bin_words + 2) {
        bins.push_back(reinterpret_cast<const std::uint8_t*>(from + 2));
        here.value.insert(here.value.end(), from, from + 2);
      }
    }
    here.rows = bins.size();
    here.by_column.resize(here.rows * rows_.columns);
    for (std::size_t r = 0; r < here.rows; ++r) {
      for (std::size_t f = 0; f < rows_.columns; ++f) here.by_column[f * here.rows + r] = bins[r][f];
    }
    below_->grow(nodes[i], here, tree, mine);
  }
  mine[0] = static_cast<std::int64_t>(mine.size() - 1);
  return all.size() > 1 ? all.all_gather(std::span<const std::int64_t>(mine), "nodes") : mine;
}

/// Packs the number of rows; then for each the two numbers of node_rows::value, and the bins.
void bagged_grower::pack_rows(const small_node& n, std::vector<std::int64_t>& to) const {
  to.push_back(static_cast<std::int64_t>(n.end - n.begin));
  const auto bin_words = (rows_.columns + 7) / 8;
  auto at = to.size();
  to.resize(at + (n.end - n.begin) * (bin_words + 2));
  for (auto i = n.begin; i < n.end; ++i, at += bin_words + 2) {
    const auto r = std::size_t{order_[i]};
    const auto times = static_cast<std::int64_t>(draws_[r]);
    to[at] = times;
    to[at + 1] = settings_.classes > 0 ? static_cast<std::int64_t>(class_[r]) : times * target_[r];
    std::memcpy(&to[at + 2], rows_.row(r), rows_.columns);
  }
}

void bagged_grower::add_nodes(forest& to, const small_node& n, std::span<const std::int64_t>& from) {
  std::vector<std::pair<std::size_t, std::vector<std::int64_t>>> open{{n.node, n.sums}};
  std::vector<std::int64_t> left_sums(lanes_);
  while (!open.empty()) {
    auto [node, sums] = std::move(open.back());
    open.pop_back();
    describe(to, node, sums.data());
    const auto split = read_split(from, bins_, left_sums);
    if (split.feature < 0) {
      finish_leaf(to, node, sums.data());
      continue;
    }
    const auto left = set_split(to, tree_, node, split, bins_, split_of_);
    for (std::size_t k = 0; k < lanes_; ++k) sums[k] -= left_sums[k];
    open.emplace_back(left + 1, std::move(sums));
    open.emplace_back(left, left_sums);
  }
}

}  // namespace paracel::alg
