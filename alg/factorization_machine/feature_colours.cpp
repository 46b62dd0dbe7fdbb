// SPDX-License-Identifier: BSD-3-Clause
#include "feature_colours.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

#include <paracel/random.hpp>

#include "alg/common/solvers/class_base.hpp"

namespace paracel::alg {

namespace {

constexpr int repetitions_by_number = 64;
constexpr std::size_t word_bits = 64;

/// A set of features; workers unite theirs.
class feature_set {
 public:
  explicit feature_set(std::size_t features) : words_((features + word_bits - 1) / word_bits) {}
  void clear() { std::fill(words_.begin(), words_.end(), 0); }
  void add(std::uint32_t j) { words_[j / word_bits] |= static_cast<std::int64_t>(std::uint64_t{1} << (j % word_bits)); }
  [[nodiscard]] bool has(std::uint32_t j) const {
    return (static_cast<std::uint64_t>(words_[j / word_bits]) >> (j % word_bits) & 1U) != 0;
  }
  void unite(collectives& all) {
    all.all_reduce<std::int64_t>(
        std::span(words_),
        [](std::span<std::int64_t> into, std::span<const std::int64_t> from) {
          for (std::size_t i = 0; i < into.size(); ++i) into[i] |= from[i];
        },
        "features");
  }

 private:
  std::vector<std::int64_t> words_;
};

}  // namespace

std::vector<std::uint32_t> colour_features(collectives& all, const sample_rows& rows) {
  // The features of each sample that have no colour yet.
  std::vector<std::size_t> begin{0};
  std::vector<std::uint32_t> feature;
  feature_set known(rows.columns);
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    visit_entries(rows, i, [&](std::size_t j, double) {
      feature.push_back(static_cast<std::uint32_t>(j));
      known.add(feature.back());
    });
    if (feature.size() > begin.back()) begin.push_back(feature.size());
  }
  known.unite(all);
  std::vector<std::uint32_t> left;
  for (std::uint32_t j = 0; j < rows.columns; ++j) {
    if (known.has(j)) left.push_back(j);
  }

  std::vector<std::uint32_t> colour(rows.columns, no_colour);
  std::vector<bool> undecided(rows.columns);
  feature_set later(rows.columns);  // features that cannot take the colour now
  for (std::uint32_t now = 0; !left.empty(); ++now) {
    for (const auto j : left) undecided[j] = true;
    auto open = left;
    for (int repetition = 0; !open.empty(); ++repetition) {
      const auto rank = [&](std::uint32_t j) {
        return repetition < repetitions_by_number ? std::uint64_t{j} : mix64(j);
      };
      later.clear();
      for (std::size_t i = 0; i + 1 < begin.size(); ++i) {
        std::uint32_t first = no_colour;
        for (std::size_t e = begin[i]; e < begin[i + 1]; ++e) {
          const auto j = feature[e];
          if (!undecided[j]) continue;
          const bool wins = first == no_colour || rank(j) < rank(first);
          if (first != no_colour) later.add(wins ? first : j);
          if (wins) first = j;
        }
      }
      later.unite(all);
      for (const auto j : open) {
        if (later.has(j)) continue;
        colour[j] = now;
        undecided[j] = false;
      }
      later.clear();
      for (std::size_t i = 0; i + 1 < begin.size(); ++i) {
        const std::span row(feature.data() + begin[i], begin[i + 1] - begin[i]);
        if (std::ranges::none_of(row, [&](std::uint32_t j) { return colour[j] == now; })) continue;
        for (const auto j : row) {
          if (undecided[j]) later.add(j);
        }
      }
      later.unite(all);
      std::erase_if(open, [&](std::uint32_t j) {
        if (later.has(j)) undecided[j] = false;
        return !undecided[j];
      });
    }
    std::erase_if(left, [&](std::uint32_t j) { return colour[j] == now; });
    std::size_t rows_kept = 0;
    std::size_t kept = 0;
    std::size_t e = 0;
    for (std::size_t i = 0; i + 1 < begin.size(); ++i) {
      const auto first = kept;
      for (const auto end = begin[i + 1]; e < end; ++e) {
        if (colour[feature[e]] == no_colour) feature[kept++] = feature[e];
      }
      if (kept > first) begin[++rows_kept] = kept;
    }
    begin.resize(rows_kept + 1);
    feature.resize(kept);
  }
  return colour;
}

}  // namespace paracel::alg
