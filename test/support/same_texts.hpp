// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace paracel::test {

/// All workers threw the same text.
inline void expect_one_text(const std::multiset<std::string>& texts, const testing::Matcher<std::string>& wanted) {
  ASSERT_FALSE(texts.empty());
  EXPECT_THAT(*texts.begin(), wanted);
  EXPECT_EQ(texts.count(*texts.begin()), texts.size()) << testing::PrintToString(texts);
}

}  // namespace paracel::test
