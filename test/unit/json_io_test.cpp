// SPDX-License-Identifier: BSD-3-Clause
#include "core/json_io.hpp"

#include <gtest/gtest.h>

#include <string>

#include <nlohmann/json.hpp>

#include "paracel/json_parser.hpp"

namespace paracel {
namespace {

std::string nested(std::size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); }

TEST(JsonText, WhatIsTooDeepTooLongOrNoJsonIsDiscarded) {
  EXPECT_EQ(json_from(R"({"a":[1]})"), nlohmann::json::parse(R"({"a":[1]})"));
  EXPECT_FALSE(json_from(nested(16)).is_discarded());
  EXPECT_TRUE(json_from(nested(17)).is_discarded());
  EXPECT_TRUE(json_from(nested(500'000)).is_discarded());
  EXPECT_TRUE(json_from("[1, 2, 3]", 8).is_discarded());
  for (const char* text : {"", "{", "nonsense", "[1] 2", "\"\xff\""})
    EXPECT_TRUE(json_from(text).is_discarded()) << text;
}

TEST(JsonText, BytesThatAreNoUtf8AreReplaced) {
  EXPECT_EQ(json_text({{"host", "h\xff"}}), "{\"host\":\"h\xef\xbf\xbd\"}");
}

TEST(JsonText, AQuotedTextReadsBackWhateverIsInIt) {
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  EXPECT_EQ(nlohmann::json::parse(json_quoted(all)).get<std::string>(), all);
  EXPECT_EQ(json_quoted("a\"b\\\n\x01\xc3\xa4"), "\"a\\\"b\\\\\\n\\u0001\xc3\xa4\"");
  EXPECT_EQ(json_quoted("\xff"), "\"\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace paracel
