// SPDX-License-Identifier: BSD-3-Clause
//
// A tree of a random forest assigns each row the same leaf, whether its nodes are split by all workers together or by
// one, and for any number of workers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include <paracel/collectives.hpp>
#include <paracel/random.hpp>

#include "alg/random_forest/bagged_grower.hpp"
#include "test/support/cluster.hpp"

namespace paracel::alg {
namespace {

constexpr std::uint64_t all_rows = 700;
constexpr std::uint32_t columns = 9;

/// Numbers, a third of them missing in one column, small integers, and a category.
sample_rows rows_of(std::uint64_t first, std::uint64_t last, std::size_t classes) {
  sample_rows rows;
  rows.dense = true;
  rows.columns = columns;
  rows.row_count = last - first;
  rows.first_row = first;
  rows.rows_total = all_rows;
  rows.categorical = {4};
  for (auto i = first; i < last; ++i) {
    counter_random random(5, 0, i);
    double y = 0;
    for (std::uint32_t j = 0; j < columns; ++j) {
      double x = random.normal();
      if (j == 2) x = static_cast<double>(random.below(4));
      if (j == 4) x = static_cast<double>(random.below(12));
      y += j < 5 ? std::sin(x) : 0;
      rows.floats.push_back(j == 6 && random.below(3) == 0 ? std::numeric_limits<float>::quiet_NaN()
                                                           : static_cast<float>(x));
    }
    rows.label.push_back(classes == 0 ? y : std::floor(std::abs(y) * 2));
    if (classes > 0 && rows.label.back() >= static_cast<double>(classes)) rows.label.back() = 0;
  }
  return rows;
}

struct grown {
  std::vector<float> of_rows;  // by row: the values of its leaf
  forest trees;
};

grown grow(std::size_t workers, std::size_t classes, std::int64_t most_of_one) {
  grown result;
  result.of_rows.resize(all_rows * std::max<std::size_t>(classes, 1));
  std::mutex alone;
  test::cluster job({.workers = workers});
  job.run([&](Comm comm) {
    collectives all(comm);
    const auto own = owned_range_of(all_rows, all.size(), all.rank());
    const auto samples = rows_of(own.begin, own.end, classes);
    const auto bins = make_bins(all, samples, 40);
    const auto rows = to_bins(samples, bins);
    bagging_settings settings;
    settings.classes = classes;
    settings.features = 3;
    settings.most_of_one = most_of_one;
    bagged_grower grower(all, rows, bins, samples.label, all_rows, settings);
    forest trees;
    trees.features = columns;
    trees.width = std::max<std::size_t>(classes, 1);
    std::vector<std::uint16_t> draws;
    for (auto i = own.begin; i < own.end; ++i) draws.push_back(static_cast<std::uint16_t>(mix64(i) % 3));
    for (std::uint64_t tree = 0; tree < 3; ++tree) grower.grow(all, trees, draws, tree);
    const std::scoped_lock lock(alone);
    for (std::size_t i = 0; i < rows.rows; ++i) {
      const auto& leaf = trees.node[trees.tree_begin[2] + grower.leaf_of_row(trees, i)];
      for (std::size_t k = 0; k < trees.width; ++k)
        result.of_rows[(own.begin + i) * trees.width + k] = trees.value[leaf.leaf * trees.width + k];
    }
    result.trees = trees;
    EXPECT_NO_THROW(trees.verify("grown"));
  });
  return result;
}

std::vector<double> numbers_of(const forest& f) {
  std::vector<double> out(f.value.begin(), f.value.end());
  out.insert(out.end(), f.category.begin(), f.category.end());
  for (const auto& n : f.node) {
    for (const double v : {static_cast<double>(n.feature), static_cast<double>(n.threshold),
                           static_cast<double>(n.left), static_cast<double>(n.missing_left), n.gain, n.cover, n.rows})
      out.push_back(v);
  }
  return out;
}

TEST(BaggedGrower, ATreeIsTheSameWhoeverSplitsItsNodes) {
  for (const std::size_t classes : {0UL, 2UL, 5UL}) {
    const auto together = grow(1, classes, 1);  // only single-row nodes are not split by all
    EXPECT_GT(together.trees.node.size(), 300U);
    for (const std::int64_t most_of_one : {1L, 20L, 150L, 100000L}) {
      const auto first = grow(1, classes, most_of_one);
      EXPECT_EQ(first.of_rows, together.of_rows) << classes << " classes, " << most_of_one << " rows";
      for (const std::size_t workers : {2UL, 3UL}) {
        const auto found = grow(workers, classes, most_of_one);
        EXPECT_EQ(numbers_of(found.trees), numbers_of(first.trees))
            << classes << ", " << most_of_one << ", " << workers;
        EXPECT_EQ(found.of_rows, first.of_rows);
      }
    }
  }
}

}  // namespace
}  // namespace paracel::alg
