// SPDX-License-Identifier: BSD-3-Clause
#include "config/launch_facts.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "paracel/error.hpp"
#include "paracel/schema.hpp"

namespace paracel {
namespace {

using string_list = std::vector<std::string>;

class LaunchFacts : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "launch_facts_XXXXXX";
    const int fd = ::mkstemp(path_.data());
    ASSERT_GE(fd, 0);
    ::close(fd);
  }
  void TearDown() override { ::unlink(path_.c_str()); }
  launch_facts of(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    return facts_of_file(path_);
  }
  std::string path_;
};

TEST_F(LaunchFacts, WithoutASchemaAKeyOfAnyNameMayHoldAPlugIn) {
  EXPECT_EQ(of(R"({"hll_file": "./libhll_update.so"})").plugins, string_list{"./libhll_update.so"});
  EXPECT_EQ(of(R"({"x": {"a": ["x/y.so", 3, null], "b": "/z/w.so"}})").plugins, (string_list{"x/y.so", "/z/w.so"}));
  EXPECT_EQ(of(R"({"update_file": "mine/update", "input": "data/points.csv"})").plugins, string_list{"mine/update"});
  EXPECT_EQ(of(R"({"a": "x/y.so", "a": "z/y.so"})").plugins, string_list{"z/y.so"});
  EXPECT_EQ(of("{}").plugins, string_list{});
}

TEST_F(LaunchFacts, WithoutASchemaAKeyOfAnyNameMayBeStandardInput) {
  EXPECT_EQ(of(R"({"input": "data"})").standard_input, "");
  EXPECT_EQ(of(R"({"input": "-"})").standard_input, path_ + ":1:2: key \"input\"");
  EXPECT_EQ(of("{\"a\": 1,\n \"b\": [\"x\", \"-\"]}").standard_input, path_ + ":2:2: key \"b\"");
}

TEST_F(LaunchFacts, AByteOrderMarkIsPassedOver) {
  EXPECT_EQ(of("\xef\xbb\xbf{\"a\":\"x.so\"}").plugins, string_list{"x.so"});
}

TEST_F(LaunchFacts, WhatIsNoConfigIsAnError) {
  const std::vector<std::string> texts{
      "", "{", "[1]", "{\"a\":1,}", "{\"a\":\"\xff\"}", std::string(100000, '['), "{\"a\":1e999}"};
  for (const auto& text : texts) {
    try {
      of(text);
      ADD_FAILURE() << text.substr(0, 20);
    } catch (const config_error& e) {
      const auto said = nlohmann::json::parse(failure_json(e));
      EXPECT_EQ(said["error"].get<std::string>().rfind(path_, 0), 0U) << said;
      EXPECT_EQ(said["status"], 3);
    }
  }
  EXPECT_THROW((void)facts_of_file("/nowhere/x.json"), config_error);
}

TEST_F(LaunchFacts, OfACheckedConfigKeysHaveTheTypesOfTheSchema) {
  config_schema schema("prog");
  schema.key("input", key_type::files, "rows");
  schema.key("separator", key_type::string, "between fields");
  schema.key("plugin", key_type::plugin, "functions");
  schema.key("more", key_type::strings, "libraries");
  const auto checked =
      schema.check_text("cfg.json", R"({"separator": "-", "plugin": "mine", "more": ["a", "b/c.so"]})");
  EXPECT_EQ(facts_of(checked, schema).plugins, (string_list{"b/c.so", "mine"}));
  EXPECT_EQ(facts_of(checked, schema).standard_input, "");
  const auto reads = schema.check_text("cfg.json", R"({"input": ["-"]})");
  EXPECT_EQ(facts_of(reads, schema).standard_input, "cfg.json:1:2: key \"input\"");
  EXPECT_EQ(nlohmann::json::parse(facts_json(facts_of(reads, schema), &schema)),
            nlohmann::json::parse(R"({"plugins": [], "standard_input": "cfg.json:1:2: key \"input\"", "program": "prog",
                                      "resumable": true})"));
}

TEST_F(LaunchFacts, AKeyMayMakeAProgramOneWhoseWorkersCannotBeReplaced) {
  config_schema schema("prog");
  schema.key("rounds", key_type::integer, "passes");
  schema.key("update_file", key_type::plugin, "functions").not_resumable();
  const auto facts = [&](const char* text) {
    return nlohmann::json::parse(facts_json(facts_of(schema.check_text("cfg.json", text), schema), &schema));
  };
  EXPECT_EQ(facts(R"({"rounds": 3})")["resumable"], true);
  EXPECT_FALSE(facts(R"({"rounds": 3})").contains("not_resumable_key"));
  const auto with = facts(R"({"rounds": 3, "update_file": "mine"})");
  EXPECT_EQ(with["resumable"], false);
  EXPECT_EQ(with["not_resumable_key"], "cfg.json:1:15: key \"update_file\"");
  const auto json = nlohmann::json::parse(schema.to_json());
  EXPECT_FALSE(json["keys"][0].contains("resumable"));
  EXPECT_EQ(json["keys"][1]["resumable"], false);
}

}  // namespace
}  // namespace paracel
