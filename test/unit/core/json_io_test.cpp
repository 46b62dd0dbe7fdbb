// SPDX-License-Identifier: BSD-3-Clause
#include "core/json_io.hpp"

#include <gtest/gtest.h>

#include <string>

#include <nlohmann/json.hpp>

namespace paracel {
namespace {

std::string nested_lists(std::size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); }

TEST(JsonText, WhatIsTooDeepTooLongOrNoJsonIsDiscarded) {
  EXPECT_EQ(json_from(R"({"a":[1]})"), nlohmann::json::parse(R"({"a":[1]})"));
  EXPECT_FALSE(json_from(nested_lists(16)).is_discarded());
  EXPECT_TRUE(json_from(nested_lists(17)).is_discarded());
  EXPECT_TRUE(json_from(nested_lists(500'000)).is_discarded());
  EXPECT_TRUE(json_from("[1, 2, 3]", 8).is_discarded());
  for (const char* text : {"", "{", "nonsense", "[1] 2", "\"\xff\""})
    EXPECT_TRUE(json_from(text).is_discarded()) << text;
}

TEST(JsonText, BytesThatAreNoUtf8AreReplaced) {
  EXPECT_EQ(json_text({{"host", "h\xff"}}), "{\"host\":\"h\xef\xbf\xbd\"}");
}

}  // namespace
}  // namespace paracel
