// SPDX-License-Identifier: BSD-3-Clause
#include "tool/balltree/balltree.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using vectors = std::vector<std::vector<double>>;

vectors random_vectors(std::size_t n, std::size_t d, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  vectors v(n, std::vector<double>(d));
  for (auto& x : v)
    for (auto& e : x) e = normal(random);
  return v;
}

TEST(Balltree, FindsWhatLookingAtEveryVectorFinds) {
  for (const std::size_t n : {1U, 16U, 17U, 500U}) {
    auto items = random_vectors(n, 5, 1);
    items.push_back(items.front());  // a tie
    paracel::balltree<double> tree(items), read(items);
    tree.build();
    const auto file = "/tmp/paracel_balltree_" + std::to_string(getpid());
    tree.pickle(file);
    read.build_from_file(file);
    for (const auto& q : random_vectors(30, 5, 2)) {
      for (const std::size_t k : {0U, 1U, 7U, 1000U}) {
        std::vector<long> expected, found, found_again;
        const paracel::query ask(q, k, {0, 3}, n > 17 ? std::unordered_set<long>{} : std::unordered_set<long>{1, 2, 9});
        paracel::search(ask, items, expected);
        paracel::search(ask, tree, found);
        paracel::search(ask, read, found_again);
        EXPECT_EQ(found, expected);
        EXPECT_EQ(found_again, expected);
      }
    }
    vectors others(n + 2, std::vector<double>(5));
    paracel::balltree<double> wrong(others);
    EXPECT_THROW(wrong.build_from_file(file), std::runtime_error);
    std::remove(file.c_str());
    EXPECT_THROW((void)tree.search(paracel::query({1, 2}, 3)), std::invalid_argument);
  }
}

}  // namespace
