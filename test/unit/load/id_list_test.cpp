// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <paracel/id_list.hpp>

namespace paracel {
namespace {

TEST(IdList, ARowHasTheSameKeyWhetherOrNotAnotherIdIsAWord) {
  const id_list numbers(std::vector<std::uint64_t>{0, 7, 18446744073709551615U});
  const id_list names(std::vector<std::string>{"0", "18446744073709551615", "7", "new"});
  EXPECT_EQ(names.key(0), numbers.key(0));
  EXPECT_EQ(names.key(1), numbers.key(2));
  EXPECT_EQ(names.key(2), numbers.key(1));
}

TEST(IdList, TextsThatAreNotTheUsualFormOfANumberAreOtherRows) {
  const id_list names(std::vector<std::string>{"", "+7", "07", "7", "7 ", "7.0", "18446744073709551616"});
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i != 3) {
      EXPECT_NE(names.key(i), 7U) << '"' << names.name(i) << '"';
    }
  }
  EXPECT_EQ(names.key(3), 7U);
}

TEST(IdList, SortsAndFindsBothKinds) {
  id_list numbers(std::vector<std::uint64_t>{9, 2, 9, 18446744073709551615U});
  numbers.sort_unique();
  EXPECT_EQ(numbers.numbers(), (std::vector<std::uint64_t>{2, 9, 18446744073709551615U}));
  EXPECT_EQ(numbers.find(std::uint64_t{9}), 1U);
  EXPECT_FALSE(numbers.find(std::uint64_t{3}).has_value());
  EXPECT_FALSE(numbers.find(std::string_view("9")).has_value());
  id_list names(std::vector<std::string>{"b", "", "a", "b"});
  names.sort_unique();
  ASSERT_EQ(names.size(), 3U);
  EXPECT_EQ(names.text(0) + "," + names.text(1) + "," + names.text(2), ",a,b");
  EXPECT_EQ(names.find(std::string_view("b")), 2U);
  EXPECT_FALSE(names.find(std::string_view("c")).has_value());
}

}  // namespace
}  // namespace paracel
