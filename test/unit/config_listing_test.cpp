// SPDX-License-Identifier: BSD-3-Clause
#include "core/config_listing.hpp"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace paracel {
namespace {

class ConfigListing : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "config_listing_XXXXXX";
    const int fd = ::mkstemp(path_.data());
    ASSERT_GE(fd, 0);
    ::close(fd);
  }
  void TearDown() override { ::unlink(path_.c_str()); }
  std::string listing(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    return config_listing(path_);
  }
  std::string path_;
};

TEST_F(ConfigListing, SaysWhereEachKeyStandsAndWhatWasWritten) {
  EXPECT_EQ(listing("{\"a\": 1,\n  \"b\\n\": [true, null, 1.50, {\"c\": \"x\"}], \"a\": -1e3}"),
            R"({"keys":[{"name":"a","line":1,"column":2,"written":"1","value":1},)"
            R"({"name":"b\n","line":2,"column":3,"written":"[true,null,1.50,{\"c\":\"x\"}]","value":[true,null,1.50,{"c":"x"}]},)"
            R"({"name":"a","line":2,"column":42,"written":"-1e3","value":-1e3}]})");
  EXPECT_EQ(listing("{}"), R"({"keys":[]})");
}

TEST_F(ConfigListing, AByteOrderMarkIsPassedOver) {
  EXPECT_EQ(listing("\xef\xbb\xbf{\"a\":\"\xc3\xa4\"}"),
            "{\"keys\":[{\"name\":\"a\",\"line\":1,\"column\":5,\"written\":\"\\\"\xc3\xa4\\\"\",\"value\":\"\xc3\xa4\"}]}");
}

TEST_F(ConfigListing, WhatIsNoConfigIsAnErrorInJson) {
  const std::vector<std::string> texts{"", "{", "[1]", "{\"a\":1,}", "{\"a\":\"\xff\"}", std::string(100000, '['),
                                       "{\"a\":1e999}"};
  for (const auto& text : texts) {
    const auto said = nlohmann::json::parse(listing(text));
    ASSERT_TRUE(said.contains("error")) << said;
    EXPECT_EQ(said["error"].get<std::string>().rfind(path_, 0), 0U) << said;
  }
  EXPECT_NE(config_listing("/nowhere/x.json").find("cannot be read: No such file"), std::string::npos);
}

}  // namespace
}  // namespace paracel
