// SPDX-License-Identifier: BSD-3-Clause
#include "ranking.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>

#include <paracel/error.hpp>
#include <paracel/metrics.hpp>

#include "tree_grower.hpp"

namespace paracel::alg {

namespace {

using blocks = std::vector<std::vector<std::int64_t>>;
using number_blocks = std::vector<std::vector<double>>;

// A group of this worker: rows [begin, end) of its rows sorted by group.
struct run_of_rows {
  std::uint64_t group = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Added to the distance of two margins, so that a small one does not push without bound.
constexpr double least_distance = 0.01;

double gain_of(double label) { return std::scalbn(1.0, static_cast<int>(label)) - 1; }

std::int64_t as_signed(std::uint64_t v) { return std::bit_cast<std::int64_t>(v); }

/// The rank that computes for each of these groups: one that has rows of it. Each group has a referee rank, to which
/// all ranks with rows of it report, and which picks one.
std::vector<std::size_t> owners(collectives& all, const std::vector<run_of_rows>& runs) {
  const auto workers = all.size();
  blocks asked(workers);
  for (const auto& r : runs) asked[r.group % workers].push_back(as_signed(r.group));
  const auto asking = all.all_to_all(asked, "groups");
  std::map<std::int64_t, std::vector<std::int64_t>> holders;
  for (std::size_t r = 0; r < workers; ++r) {
    for (const auto g : asking[r]) holders[g].push_back(static_cast<std::int64_t>(r));
  }
  blocks answers(workers);
  for (std::size_t r = 0; r < workers; ++r) {
    for (const auto g : asking[r]) {
      const auto& some = holders[g];
      answers[r].push_back(some[std::bit_cast<std::uint64_t>(g) / workers % some.size()]);
    }
  }
  const auto answered = all.all_to_all(answers, "owners of groups");
  std::vector<std::size_t> next(workers);
  std::vector<std::size_t> found;
  for (const auto& r : runs) {
    const auto referee = r.group % workers;
    found.push_back(static_cast<std::size_t>(answered[referee][next[referee]++]));
  }
  return found;
}

}  // namespace

ranking_groups::ranking_groups(collectives& all, const labelled_rows& rows, std::span<const std::uint64_t> group)
    : rows_total_(rows.rows_total), sent_(all.size()), place_(all.size()) {
  std::vector<std::uint32_t> by_group(group.size());
  std::iota(by_group.begin(), by_group.end(), 0U);
  std::ranges::stable_sort(by_group, {}, [&](auto i) { return group[i]; });
  std::vector<run_of_rows> runs;
  for (std::size_t i = 0; i < by_group.size(); ++i) {
    const auto g = group[by_group[i]];
    if (i == 0 || runs.back().group != g) runs.push_back({g, i, i});
    runs.back().end = i + 1;
  }
  const auto owner = owners(all, runs);
  blocks sizes(all.size());
  number_blocks about(all.size());
  for (std::size_t k = 0; k < runs.size(); ++k) {
    auto& size = sizes[owner[k]];
    size.push_back(as_signed(runs[k].group));
    size.push_back(static_cast<std::int64_t>(runs[k].end - runs[k].begin));
    for (auto i = runs[k].begin; i < runs[k].end; ++i) {
      const auto row = by_group[i];
      sent_[owner[k]].push_back(row);
      about[owner[k]].push_back(rows.label[row]);
      about[owner[k]].push_back(rows.weight_of(row));
    }
  }
  const auto sizes_here = all.all_to_all(sizes, "sizes of groups");
  const auto about_here = all.all_to_all(about, "rows of groups");

  // The rows of a group in the order of all rows, which is that of the ranks.
  struct part {
    std::size_t rank = 0;
    std::size_t begin = 0;
    std::size_t rows = 0;
  };
  std::map<std::int64_t, std::vector<part>> found;
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::size_t begin = 0;
    for (std::size_t k = 0; k < sizes_here[r].size(); k += 2) {
      const auto n = static_cast<std::size_t>(sizes_here[r][k + 1]);
      found[sizes_here[r][k]].push_back({r, begin, n});
      begin += n;
    }
    place_[r].resize(begin);
  }
  for (const auto& [name, parts] : found) {
    group_rows g{label_.size(), label_.size(), 0};
    for (const auto& p : parts) {
      for (std::size_t i = p.begin; i < p.begin + p.rows; ++i) {
        place_[p.rank][i] = label_.size();
        label_.push_back(about_here[p.rank][2 * i]);
        g.weight += about_here[p.rank][2 * i + 1];
      }
    }
    g.end = label_.size();
    g.weight /= static_cast<double>(g.end - g.begin);
    groups_.push_back(g);
  }
  margin_.resize(label_.size());
  first_.resize(label_.size());
  second_.resize(label_.size());
  std::vector<double> weights;
  for (const auto& g : groups_) weights.push_back(g.weight);
  weights_ = exact_sum(all, weights, rows_total_, "weights of groups");
  if (!(weights_ > 0)) throw data_error("found no group with a weight above 0");
}

double ranking_groups::discount(std::size_t position) {
  while (discount_.size() <= position) discount_.push_back(1 / std::log2(2 + static_cast<double>(discount_.size())));
  return discount_[position];
}

/// The margins of the rows that this worker computes for.
void ranking_groups::gather(collectives& all, std::span<const double> margin) {
  number_blocks out(all.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (r == all.rank()) continue;
    for (const auto row : sent_[r]) out[r].push_back(margin[row]);
  }
  const auto in = all.all_to_all(out, "margins");
  for (std::size_t r = 0; r < all.size(); ++r) {
    for (std::size_t i = 0; i < place_[r].size(); ++i)
      margin_[place_[r][i]] = r == all.rank() ? margin[sent_[r][i]] : in[r][i];
  }
}

/// Sets order_ to the rows of a group by descending margin.
void ranking_groups::sort_rows(const group_rows& g) {
  order_.resize(g.end - g.begin);
  std::iota(order_.begin(), order_.end(), static_cast<std::uint32_t>(g.begin));
  std::ranges::stable_sort(order_, [&](auto a, auto b) { return margin_[a] > margin_[b]; });
}

double ranking_groups::greatest_dcg(const group_rows& g, std::size_t k) {
  gain_.clear();
  for (auto i = g.begin; i < g.end; ++i) gain_.push_back(gain_of(label_[i]));
  std::ranges::sort(gain_, std::greater<>());
  double sum = 0;
  for (std::size_t i = 0; i < std::min(k, gain_.size()); ++i) sum += gain_[i] * discount(i);
  return sum;
}

void ranking_groups::push_pairs(const group_rows& g, std::size_t truncation) {
  for (auto i = g.begin; i < g.end; ++i) first_[i] = second_[i] = 0;
  const double greatest = greatest_dcg(g, truncation);
  if (greatest == 0 || g.weight == 0) return;
  sort_rows(g);
  const auto n = order_.size();
  (void)discount(n);
  gain_.clear();
  for (const auto i : order_) gain_.push_back(gain_of(label_[i]) / greatest);
  const bool spread = margin_[order_.front()] != margin_[order_.back()];
  double pushes = 0;
  for (std::size_t a = 0; a < std::min(truncation, n); ++a) {
    for (std::size_t b = a + 1; b < n; ++b) {
      if (gain_[a] == gain_[b]) continue;
      const auto high = gain_[a] > gain_[b] ? order_[a] : order_[b];
      const auto low = gain_[a] > gain_[b] ? order_[b] : order_[a];
      double change = std::abs(gain_[a] - gain_[b]) * (discount_[a] - discount_[b]);
      if (spread) change /= least_distance + std::abs(margin_[low] - margin_[high]);
      const double p = logistic(margin_[low] - margin_[high]);
      const double push = change * p;
      first_[high] -= push;
      first_[low] += push;
      second_[high] += push * (1 - p);
      second_[low] += push * (1 - p);
      pushes += 2 * push;
    }
  }
  if (pushes == 0) return;
  const double scale = g.weight * std::log2(1 + pushes) / pushes;
  for (auto i = g.begin; i < g.end; ++i) {
    first_[i] *= scale;
    second_[i] *= scale;
  }
}

void ranking_groups::derivatives(collectives& all, std::span<const double> margin, std::size_t truncation,
                                 std::span<double> first, std::span<double> second) {
  gather(all, margin);
  for (const auto& g : groups_) push_pairs(g, truncation);
  number_blocks out(all.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    for (std::size_t i = 0; i < place_[r].size(); ++i) {
      const auto at = place_[r][i];
      if (r == all.rank()) {
        first[sent_[r][i]] = first_[at];
        second[sent_[r][i]] = second_[at];
        continue;
      }
      out[r].push_back(first_[at]);
      out[r].push_back(second_[at]);
    }
  }
  const auto in = all.all_to_all(out, "derivatives");
  for (std::size_t r = 0; r < all.size(); ++r) {
    for (std::size_t i = 0; i < sent_[r].size() && r != all.rank(); ++i) {
      first[sent_[r][i]] = in[r][2 * i];
      second[sent_[r][i]] = in[r][2 * i + 1];
    }
  }
}

double ranking_groups::ndcg(collectives& all, std::span<const double> margin, std::size_t k) {
  gather(all, margin);
  std::vector<double> found;
  for (const auto& g : groups_) {
    const auto positions = k == 0 ? g.end - g.begin : std::min(k, g.end - g.begin);
    const double greatest = greatest_dcg(g, positions);
    double sum = greatest;
    if (greatest > 0) {
      sort_rows(g);
      sum = 0;
      for (std::size_t i = 0; i < positions; ++i) sum += gain_of(label_[order_[i]]) * discount(i);
    }
    found.push_back(g.weight * (greatest > 0 ? sum / greatest : 1));
  }
  return exact_sum(all, found, rows_total_, "NDCG") / weights_;
}

}  // namespace paracel::alg
