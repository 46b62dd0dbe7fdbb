// SPDX-License-Identifier: BSD-3-Clause
#include "tree_bins.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>

#include <paracel/error.hpp>

namespace paracel::alg {

namespace {

constexpr std::uint32_t sign_bit = 0x80000000U;
// Limits of the features that are processed together: the size of their sorted values, and their number.
constexpr std::size_t together_bytes = std::size_t{256} << 20U;
constexpr std::size_t together_features = 64;
constexpr std::size_t most_categories = std::size_t{1} << 20U;

/// Unsigned integers in the order of the floats; -0 is 0.
std::uint32_t ordered_bits(float x) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(x + 0.0F);
  return (bits & sign_bit) != 0 ? ~bits : bits | sign_bit;
}
float float_of(std::uint32_t ordered) noexcept {
  return std::bit_cast<float>((ordered & sign_bit) != 0 ? ordered & ~sign_bit : ~ordered);
}

/// Radix sort by three digits of 11 bits.
void sort_bits(std::vector<std::uint32_t>& keys, std::vector<std::uint32_t>& room) {
  room.resize(keys.size());
  std::array<std::array<std::uint32_t, 2048>, 3> count{};
  for (const auto k : keys) {
    ++count[0][k & 2047U];
    ++count[1][(k >> 11U) & 2047U];
    ++count[2][k >> 22U];
  }
  for (unsigned digit = 0; digit < 3; ++digit) {
    std::uint32_t sum = 0;
    for (auto& c : count[digit]) sum += std::exchange(c, sum);
    const unsigned shift = 11 * digit;
    for (const auto k : keys) room[count[digit][(k >> shift) & 2047U]++] = k;
    keys.swap(room);
  }
}

/// A threshold between two adjacent values: above the first one, not above the second.
float threshold_between(std::uint32_t low, std::uint32_t high) noexcept {
  const double a = static_cast<double>(float_of(low));
  const double b = static_cast<double>(float_of(high));
  const auto middle = static_cast<float>(a + (b - a) / 2);
  return static_cast<double>(middle) > a ? middle : float_of(high);
}

/// Numeric features: this worker's values of each, sorted.
struct sorted_features {
  std::vector<std::size_t> feature;
  std::vector<std::vector<std::uint32_t>> keys;
};

/// Distinct values of each feature over all workers; empty if there are more than `most`.
std::vector<std::vector<std::uint32_t>> distinct_values(collectives& all, const sorted_features& f, std::size_t most) {
  // Feature and value; a worker with too many values sends one more than allowed, so that all workers find out.
  std::vector<std::int64_t> mine;
  for (std::size_t j = 0; j < f.keys.size(); ++j) {
    std::size_t count = 0;
    const auto& k = f.keys[j];
    for (std::size_t i = 0; i < k.size() && count <= most; ++i) {
      if (i > 0 && k[i] == k[i - 1]) continue;
      mine.push_back(static_cast<std::int64_t>(std::uint64_t{j} << 32U | k[i]));
      ++count;
    }
  }
  auto found = all.all_gather(std::span<const std::int64_t>(mine), "distinct values");
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  std::vector<std::vector<std::uint32_t>> out(f.keys.size());
  for (const auto v : found) out[static_cast<std::size_t>(v >> 32)].push_back(static_cast<std::uint32_t>(v));
  for (auto& values : out) {
    if (values.size() > most) values.clear();
  }
  return out;
}

/// The least values such that at least b / most of all are not greater, b = 1 ... most - 1, of the features in `which`.
std::vector<std::vector<std::uint32_t>> quantiles(collectives& all, const sorted_features& f,
                                                  const std::vector<std::size_t>& which, std::size_t most) {
  const std::size_t cuts = most - 1;
  std::vector<std::int64_t> total;
  for (const auto j : which) total.push_back(static_cast<std::int64_t>(f.keys[j].size()));
  all.all_reduce(std::span(total), reduce_op::sum, "values");
  std::vector<std::vector<std::uint32_t>> found(which.size(), std::vector<std::uint32_t>(cuts));
  const auto rank = [&](std::size_t w, std::size_t b) {
    return (total[w] * static_cast<std::int64_t>(b + 1) + static_cast<std::int64_t>(most) - 1) /
           static_cast<std::int64_t>(most);
  };
  if (all.size() == 1) {
    for (std::size_t w = 0; w < which.size(); ++w) {
      for (std::size_t b = 0; b < cuts; ++b) found[w][b] = f.keys[which[w]][static_cast<std::size_t>(rank(w, b) - 1)];
    }
    return found;
  }
  // Bit by bit: the greatest number with fewer than `rank` values below it is the value of that rank.
  std::vector<std::int64_t> below(which.size() * cuts);
  for (std::uint32_t bit = sign_bit; bit != 0; bit >>= 1U) {
    for (std::size_t w = 0; w < which.size(); ++w) {
      const auto& k = f.keys[which[w]];
      auto from = k.begin();
      for (std::size_t b = 0; b < cuts; ++b) {
        from = std::lower_bound(from, k.end(), found[w][b] | bit);  // they ascend
        below[w * cuts + b] = from - k.begin();
      }
    }
    all.all_reduce(std::span(below), reduce_op::sum, "quantiles");
    for (std::size_t w = 0; w < which.size(); ++w) {
      for (std::size_t b = 0; b < cuts; ++b) {
        if (below[w * cuts + b] < rank(w, b)) found[w][b] |= bit;
      }
    }
  }
  return found;
}

/// Thresholds after each of these values of a feature (after its greatest value there is none).
void add_thresholds(collectives& all, const sorted_features& f, const std::vector<std::size_t>& which,
                    std::vector<std::vector<std::uint32_t>> ends, std::vector<feature_bins>& bins) {
  constexpr std::int64_t none = std::int64_t{1} << 40;
  // A value at several quantiles also begins a bin: the greatest value below it ends one.
  std::vector<std::int64_t> heavy;
  std::vector<std::pair<std::size_t, std::uint32_t>> heavy_at;
  for (std::size_t w = 0; w < which.size(); ++w) {
    for (std::size_t b = 0; b + 1 < ends[w].size(); ++b) {
      const auto v = ends[w][b];
      if (v != ends[w][b + 1] || (b > 0 && v == ends[w][b - 1])) continue;
      const auto& k = f.keys[which[w]];
      const auto at = std::lower_bound(k.begin(), k.end(), v);
      heavy.push_back(at == k.begin() ? -1 : static_cast<std::int64_t>(at[-1]));
      heavy_at.emplace_back(w, v);
    }
  }
  all.all_reduce(std::span(heavy), reduce_op::max, "values before frequent ones");
  for (std::size_t i = 0; i < heavy.size(); ++i) {
    if (heavy[i] >= 0) ends[heavy_at[i].first].push_back(static_cast<std::uint32_t>(heavy[i]));
  }
  std::vector<std::int64_t> next;
  for (std::size_t w = 0; w < which.size(); ++w) {
    std::ranges::sort(ends[w]);
    ends[w].erase(std::unique(ends[w].begin(), ends[w].end()), ends[w].end());
    const auto& k = f.keys[which[w]];
    for (const auto v : ends[w]) {
      const auto at = std::upper_bound(k.begin(), k.end(), v);
      next.push_back(at == k.end() ? none : static_cast<std::int64_t>(*at));
    }
  }
  all.all_reduce(std::span(next), reduce_op::min, "values after quantiles");
  std::size_t i = 0;
  for (std::size_t w = 0; w < which.size(); ++w) {
    for (const auto v : ends[w]) {
      const auto high = next[i++];
      if (high != none)
        bins[f.feature[which[w]]].threshold.push_back(threshold_between(v, static_cast<std::uint32_t>(high)));
    }
  }
}

void number_bins(collectives& all, const sorted_features& f, std::size_t most, std::vector<feature_bins>& bins) {
  const auto distinct = distinct_values(all, f, most);
  std::vector<std::int64_t> some;
  for (const auto& k : f.keys) some.push_back(static_cast<std::int64_t>(k.size()));
  all.all_reduce(std::span(some), reduce_op::sum, "values");
  std::vector<std::size_t> many;
  for (std::size_t j = 0; j < f.keys.size(); ++j) {
    const auto& values = distinct[j];
    if (values.empty() && some[j] > 0) many.push_back(j);
    for (std::size_t i = 1; i < values.size(); ++i)
      bins[f.feature[j]].threshold.push_back(threshold_between(values[i - 1], values[i]));
  }
  if (!many.empty()) add_thresholds(all, f, many, quantiles(all, f, many, most), bins);
}

/// The most frequent categories; ties go to the lesser number.
void category_bins(collectives& all, const sample_rows& rows, std::size_t column, std::size_t most, feature_bins& to) {
  std::map<std::int64_t, std::int64_t> count;
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    const float x = rows.floats[i * rows.columns + column];
    if (!std::isnan(x)) ++count[static_cast<std::int64_t>(x)];
  }
  std::vector<std::int64_t> mine;
  for (const auto& [category, n] : count) {
    mine.push_back(category);
    mine.push_back(n);
  }
  std::int64_t greatest = static_cast<std::int64_t>(mine.size());
  all.all_reduce(std::span(&greatest, 1), reduce_op::max, "categories");
  if (static_cast<std::size_t>(greatest) / 2 > most_categories)
    throw data_error("found " + std::to_string(greatest / 2) + " categories in feature " + std::to_string(column) +
                     ", want at most " + std::to_string(most_categories));
  const auto found = all.all_gather(std::span<const std::int64_t>(mine), "categories");
  count.clear();
  for (std::size_t i = 0; i < found.size(); i += 2) count[found[i]] += found[i + 1];
  std::vector<std::pair<std::int64_t, std::int64_t>> order;
  for (const auto& [category, n] : count) order.emplace_back(-n, category);
  std::ranges::sort(order);
  to.others = order.size() > most;
  if (to.others) order.resize(most - 1);
  for (const auto& o : order) to.category.push_back(static_cast<std::uint32_t>(o.second));
  std::ranges::sort(to.category);
}

}  // namespace

std::uint8_t feature_bins::bin_of(float x) const noexcept {
  if (std::isnan(x)) return missing ? static_cast<std::uint8_t>(values()) : 0;
  if (categorical) {
    const auto at = std::ranges::lower_bound(category, static_cast<std::uint32_t>(x));
    const bool known = at != category.end() && *at == static_cast<std::uint32_t>(x);
    return static_cast<std::uint8_t>(known ? at - category.begin() : static_cast<std::ptrdiff_t>(category.size()));
  }
  return static_cast<std::uint8_t>(std::ranges::upper_bound(threshold, x) - threshold.begin());
}

std::vector<feature_bins> make_bins(collectives& all, const sample_rows& rows, std::size_t most) {
  std::vector<feature_bins> bins(rows.columns);
  std::vector<std::int64_t> missing(rows.columns);
  for (const auto j : rows.categorical) bins[j].categorical = true;
  // The same blocks on every worker.
  const auto each = std::max<std::size_t>(1, static_cast<std::size_t>(rows.rows_total) * sizeof(float) / all.size());
  const auto together = std::clamp<std::size_t>(together_bytes / each, 1, together_features);
  std::vector<std::uint32_t> room;
  for (std::size_t begin = 0; begin < rows.columns; begin += together) {
    const auto end = std::min<std::size_t>(begin + together, rows.columns);
    sorted_features f;
    for (std::size_t j = begin; j < end; ++j) {
      if (!bins[j].categorical) f.feature.push_back(j);
    }
    f.keys.resize(f.feature.size());
    for (auto& k : f.keys) k.reserve(rows.rows());
    for (std::size_t i = 0; i < rows.rows(); ++i) {
      const float* const x = rows.floats.data() + i * rows.columns;
      for (std::size_t j = 0; j < f.feature.size(); ++j) {
        if (!std::isnan(x[f.feature[j]])) f.keys[j].push_back(ordered_bits(x[f.feature[j]]));
      }
    }
    for (std::size_t j = 0; j < f.feature.size(); ++j) {
      missing[f.feature[j]] = f.keys[j].size() < rows.rows() ? 1 : 0;
      sort_bits(f.keys[j], room);
    }
    number_bins(all, f, most, bins);
  }
  for (std::size_t j = 0; j < rows.columns; ++j) {
    if (!bins[j].categorical) continue;
    for (std::size_t i = 0; i < rows.rows() && missing[j] == 0; ++i)
      missing[j] = std::isnan(rows.floats[i * rows.columns + j]) ? 1 : 0;
    category_bins(all, rows, j, most, bins[j]);
  }
  all.all_reduce(std::span(missing), reduce_op::max, "missing values");
  for (std::size_t j = 0; j < rows.columns; ++j) bins[j].missing = missing[j] != 0;
  return bins;
}

binned_rows to_bins(const sample_rows& rows, const std::vector<feature_bins>& bins) {
  const auto count = rows.rows();
  const auto size = count * rows.columns;
  binned_rows out{count, rows.columns, std::vector<std::uint8_t>(size), std::vector<std::uint8_t>(size)};
  // Thresholds of a feature, filled up to 255 with infinity: a search of eight steps without branches.
  std::vector<std::array<float, 255>> edge(bins.size());
  for (std::size_t j = 0; j < bins.size(); ++j) {
    edge[j].fill(std::numeric_limits<float>::infinity());
    std::ranges::copy(bins[j].threshold, edge[j].begin());
  }
  for (std::size_t i = 0; i < count; ++i) {
    const float* const x = rows.floats.data() + i * rows.columns;
    std::uint8_t* const to = out.bin.data() + i * rows.columns;
    for (std::size_t j = 0; j < rows.columns; ++j) {
      if (bins[j].categorical || std::isnan(x[j])) {
        to[j] = bins[j].bin_of(x[j]);
        continue;
      }
      const float* const e = edge[j].data();
      std::size_t at = 0;
      for (std::size_t step = 128; step > 0; step /= 2) at += x[j] >= e[at + step - 1] ? step : 0;
      to[j] = static_cast<std::uint8_t>(at);
    }
  }
  // In blocks of rows that stay in the cache.
  constexpr std::size_t block = 512;
  for (std::size_t begin = 0; begin < count; begin += block) {
    const auto end = std::min(begin + block, count);
    for (std::size_t j = 0; j < rows.columns; ++j) {
      for (std::size_t i = begin; i < end; ++i) out.by_column[j * count + i] = out.bin[i * rows.columns + j];
    }
  }
  return out;
}

}  // namespace paracel::alg
