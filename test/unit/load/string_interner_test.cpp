// SPDX-License-Identifier: BSD-3-Clause
#include "load/ids/string_interner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <paracel/random.hpp>

#include "load/ids/string_sort.hpp"

namespace paracel {
namespace {

/// Random names: many duplicates, some with bytes 0 or above 127, some with long common prefixes.
std::vector<std::string> some_names(std::uint64_t seed, std::size_t n) {
  counter_random random(seed);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < n; ++i) {
    std::string name;
    switch (random.below(4)) {
      case 0:
        name = "user_" + std::to_string(random.below(3000));
        break;
      case 1:
        name = std::string(random.below(40), 'a') + std::string(random.below(3), '\0');
        break;
      case 2:
        for (auto k = random.below(12); k > 0; --k) name += static_cast<char>(random.below(256));
        break;
      default:
        name = std::string(200, 'x') + std::to_string(random.below(50));
        break;
    }
    names.push_back(name);
  }
  return names;
}

TEST(NameTable, GivesIndicesInTheOrderOfArrivalAsAMapDoes) {
  const auto names = some_names(1, 50'000);
  const std::vector<std::string_view> views(names.begin(), names.end());
  string_interner table;
  std::vector<std::uint32_t> got(names.size());
  // In batches of many sizes, including one.
  for (std::size_t at = 0, size = 1; at < views.size(); at += size, size = size % 300 + 1) {
    size = std::min(size, views.size() - at);
    table.index(std::span(views).subspan(at, size), got.data() + at);
  }
  std::unordered_map<std::string_view, std::uint32_t> wanted;
  for (std::size_t i = 0; i < views.size(); ++i)
    ASSERT_EQ(got[i], wanted.try_emplace(views[i], static_cast<std::uint32_t>(wanted.size())).first->second) << i;
  EXPECT_EQ(table.size(), wanted.size());
  for (const auto& [name, i] : wanted) EXPECT_EQ(table.names().name(i), name);
  EXPECT_EQ(table.index(names[0]), 0U);
}

TEST(NameTable, NamesOfOneCallThatAreTheSameHaveOneIndex) {
  string_interner table;
  const std::vector<std::string_view> views{"b", "a", "b", "", "a", ""};
  std::vector<std::uint32_t> got(views.size());
  table.index(views, got.data());
  EXPECT_EQ(got, (std::vector<std::uint32_t>{0, 1, 0, 2, 1, 2}));
}

TEST(NameOrder, IsTheOrderOfTheBytes) {
  for (const std::size_t n : {0, 1, 2, 17, 3000}) {
    const auto names = some_names(n, n);
    const id_list list(names);
    const auto order = order_of_names(n == 0 ? id_list::empty(false) : list);
    ASSERT_EQ(order.size(), n);
    std::vector<std::string> got;
    for (const auto i : order) got.push_back(names[i]);
    auto wanted = names;
    std::ranges::sort(wanted);
    EXPECT_EQ(got, wanted) << n;
    auto each = order;
    std::ranges::sort(each);
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(each[i], i);
  }
}

TEST(NameOrder, LongNamesThatAreTheSameAreNoDeepRecursion) {
  const std::vector<std::string> names(40, std::string(1'000'000, 'z'));
  EXPECT_EQ(order_of_names(id_list(names)).size(), 40U);
}

}  // namespace
}  // namespace paracel
