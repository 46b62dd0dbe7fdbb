// SPDX-License-Identifier: BSD-3-Clause
#include "client/repeated_lists.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

namespace paracel {
namespace {

using list = std::vector<std::uint64_t>;

std::uint64_t print_of(const list& l) {
  return print_of_list(l.size(), [&](std::size_t i) { return l[i]; });
}
list numbers_from(std::uint64_t first, std::size_t n = 100) {
  list l(n);
  std::iota(l.begin(), l.end(), first);
  return l;
}

/// A caller that prepares what is due.
class RepeatedLists : public testing::Test {
 protected:
  enum class seen { plain, prepared, found };
  seen pass(const list& l) {
    const auto print = print_of(l);
    if (lists_.find(print, [&](const list& known) { return known == l; }) != nullptr) return seen::found;
    if (!lists_.is_due(print, l.size())) return seen::plain;
    lists_.keep(print, std::make_shared<const list>(l), l.size());
    return seen::prepared;
  }
  repeated_lists<const list> lists_{1000};
};

TEST_F(RepeatedLists, TheSecondTimeAListIsPreparedAndThenItIsFound) {
  const auto a = numbers_from(1);
  const auto b = numbers_from(7);
  EXPECT_EQ(pass(a), seen::plain);
  EXPECT_EQ(pass(b), seen::plain);
  EXPECT_EQ(pass(a), seen::prepared);
  EXPECT_EQ(pass(a), seen::found);
  EXPECT_EQ(pass(b), seen::prepared);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(pass(a), seen::found);
    EXPECT_EQ(pass(b), seen::found);
  }
  EXPECT_EQ(lists_.size(), 2U);
  EXPECT_EQ(lists_.bytes(), 200U);
}

TEST_F(RepeatedLists, APrintDependsOnSizeEndsAndOrder) {
  const auto a = numbers_from(1);
  auto other = a;
  other.back() = 0;
  EXPECT_NE(print_of(a), print_of(other));
  EXPECT_NE(print_of(a), print_of(numbers_from(1, 99)));
  other = a;
  std::swap(other.front(), other.back());
  EXPECT_NE(print_of(a), print_of(other));
  EXPECT_EQ(print_of({}), print_of({}));
  EXPECT_NE(print_of({}), print_of({0}));
}

TEST_F(RepeatedLists, AListThatChangesInAFewElementsIsNeverTakenForTheEarlierOneAndSoonNotPrepared) {
  auto l = numbers_from(1);
  int prepared = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const auto before = print_of(l);
    l[1] = 1000 + i;  // not one of the sample
    ASSERT_EQ(print_of(l), before);
    const auto how = pass(l);
    ASSERT_NE(how, seen::found);
    prepared += how == seen::prepared ? 1 : 0;
  }
  EXPECT_LE(prepared, 16) << "later and later";
  EXPECT_GE(prepared, 1);
  for (int i = 0; i < 130; ++i) pass(l);
  EXPECT_EQ(pass(l), seen::found) << "now it stays the same";
}

TEST_F(RepeatedLists, WithinTheLimitWhatIsUsedStaysAndWhatIsNotMakesRoom) {
  std::vector<list> lists;
  for (std::uint64_t i = 0; i < 30; ++i) lists.push_back(numbers_from(i * 1000));
  int found = 0;
  for (int round = 0; round < 10; ++round) {
    found = 0;
    for (const auto& l : lists) found += pass(l) == seen::found ? 1 : 0;
    EXPECT_LE(lists_.bytes(), 1000U);
  }
  EXPECT_GE(found, 5) << "lists that are used in turn do not displace one another for ever";
  for (int i = 0; i < 300; ++i) pass(numbers_from(99999));
  EXPECT_EQ(pass(numbers_from(99999)), seen::found);
  EXPECT_LE(lists_.bytes(), 1000U);
}

TEST_F(RepeatedLists, OneThatWouldFillTheLimitIsNotKept) {
  const auto large = numbers_from(1, 300);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(pass(large), seen::plain);
  EXPECT_EQ(lists_.bytes(), 0U);
}

}  // namespace
}  // namespace paracel
