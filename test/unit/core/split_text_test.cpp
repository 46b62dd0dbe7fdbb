// SPDX-License-Identifier: BSD-3-Clause
#include <paracel/detail/split_text.hpp>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <paracel/error.hpp>

namespace paracel {
namespace {

using parts = std::vector<std::string>;

TEST(SplitText, CutsAtEachMatch) {
  EXPECT_EQ(split_text("a1b22c", "[0-9]+"), (parts{"a", "b", "c"}));
  EXPECT_EQ(split_text("1a1", "1"), (parts{"", "a"})) << "nothing after the last match";
  EXPECT_EQ(split_text("", "1"), parts{""});
  EXPECT_EQ(split_text("abc", "x|y"), parts{"abc"});
}

TEST(SplitText, ABadPatternIsNamed) {
  try {
    (void)split_text("a", "(b");
    FAIL() << "it was accepted";
  } catch (const usage_error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("\"(b\" is not a regular expression"));
  }
}

}  // namespace
}  // namespace paracel
