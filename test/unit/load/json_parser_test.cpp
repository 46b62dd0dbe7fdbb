// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/json_parser.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/json_document.hpp"
#include "paracel/error.hpp"
#include "test/support/temporary_folder.hpp"

namespace {

class JsonParser : public ::testing::Test {
 protected:
  JsonParser() { file_ = (folder_ / "cfg.json").string(); }

  paracel::json_parser parser(const std::string& text) {
    std::ofstream(file_) << text;
    return paracel::json_parser(file_);
  }
  /// The text of the config_error that `f` must throw, without the file's name.
  template <class E = paracel::config_error, class F>
  std::string error_of(F&& f) {
    try {
      f();
    } catch (const E& e) {
      const std::string text = e.what();
      return text.rfind(file_, 0) == 0 ? text.substr(file_.size()) : text;
    }
    return "accepted";
  }

  const paracel::test::temporary_folder folder_{"json_parser_"};
  std::string file_;
};

TEST_F(JsonParser, ReadsEveryType) {
  const auto p = parser(R"({"s": "text", "i": -7, "l": 5000000000, "u": 18446744073709551615, "d": 2.5, "b": true})");
  EXPECT_EQ(p.parse<std::string>("s"), "text");
  EXPECT_EQ(p.parse<int>("i"), -7);
  EXPECT_EQ(p.parse<long>("l"), 5000000000);
  EXPECT_EQ(p.parse<std::size_t>("u"), 18446744073709551615U);
  EXPECT_EQ(p.parse<double>("d"), 2.5);
  EXPECT_TRUE(p.parse<bool>("b"));
}

TEST_F(JsonParser, TakesNumbersAndBooleansWrittenAsStringsAsParacelDid) {
  const auto p = parser(R"({"rounds": "10", "alpha": "1e-3", "debug": "false", "on": 1, "whole": 1e3, "port": 8888})");
  EXPECT_EQ(p.parse<int>("rounds"), 10);
  EXPECT_EQ(p.parse<double>("alpha"), 1e-3);
  EXPECT_FALSE(p.parse<bool>("debug"));
  EXPECT_TRUE(p.parse<bool>("on"));
  EXPECT_EQ(p.parse<int>("whole"), 1000);
  EXPECT_EQ(p.parse<std::string>("port"), "8888");
}

TEST_F(JsonParser, ReadsListsAndNestedKeys) {
  const auto p = parser(R"({"v": [1, "2", 3], "one": "a", "outer": {"inner": {"x": 4}}, "a.b": 5})");
  EXPECT_EQ(p.parse_v<int>("v"), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(p.parse_v<std::string>("one"), (std::vector<std::string>{"a"}));
  EXPECT_EQ(p.parse<int>("outer.inner.x"), 4);
  EXPECT_EQ(p.parse<int>("a.b"), 5);
  EXPECT_TRUE(p.has("outer.inner"));
  EXPECT_FALSE(p.has("outer.other"));
  EXPECT_EQ(p.parse<int>("absent", 9), 9);
}

TEST_F(JsonParser, NamesTheKeyThatIsMissing) {
  const auto p = parser(R"({"rounds": 1, "alhpa": 2})");
  EXPECT_EQ(error_of([&] { (void)p.parse<double>("alpha"); }),
            ": key \"alpha\" is missing; is it misspelt as \"alhpa\"? (keys found: rounds, alhpa)");
}

TEST_F(JsonParser, NamesTheKeyOfTheWrongTypeAndWhereItStands) {
  const auto p =
      parser("{\n  \"rounds\": \"ten\",\n  \"v\": [1, {}], \"big\": 3000000000, \"half\": 0.5, \"neg\": -1}");
  EXPECT_EQ(error_of([&] { (void)p.parse<int>("rounds"); }),
            ":2:3: key \"rounds\": found string \"ten\", want an integer from -2147483648 to 2147483647");
  EXPECT_EQ(error_of([&] { (void)p.parse<bool>("rounds"); }),
            ":2:3: key \"rounds\": found string \"ten\", want true or false");
  EXPECT_NE(error_of([&] { (void)p.parse<int>("big"); }), "accepted");
  EXPECT_NE(error_of([&] { (void)p.parse<int>("half"); }), "accepted");
  EXPECT_NE(error_of([&] { (void)p.parse<std::size_t>("neg"); }), "accepted");
  EXPECT_NE(error_of([&] { (void)p.parse_v<int>("v"); }), "accepted");
  EXPECT_NE(error_of([&] { (void)p.parse<std::string>("v"); }), "accepted");
}

TEST_F(JsonParser, ChecksThatFilesExist) {
  std::ofstream(folder_ / "data.csv") << "1,1\n";
  const auto data = (folder_ / "data.csv").string();
  const auto p =
      parser("{\"in\": \"" + data + "\", \"dir\": \"" + folder_.path() + "\", \"glob\": \"" +
             (folder_ / "*.csv").string() + "\", \"no\": \"" + data + "x\", \"list\": [\"" + data + "\", \"nope\"]}");
  EXPECT_EQ(p.check_parse<std::string>("in"), data);
  EXPECT_EQ(p.check_parse<std::string>("dir"), folder_.path());
  EXPECT_EQ(p.check_parse<std::string>("glob"), (folder_ / "*.csv").string());
  // What drivers of Paracel 0.3 catch, to print it and return 1; as an std::exception it is caught, too.
  EXPECT_EQ(error_of<std::invalid_argument>([&] { (void)p.check_parse<std::string>("no"); }),
            ": key \"no\": no such file or folder: " + data + "x");
  EXPECT_EQ(error_of<std::exception>([&] { (void)p.check_parse_v<std::string>("list"); }),
            ": key \"list\": no such file or folder: nope");
  try {
    (void)p.check_parse<std::string>("no");
  } catch (const paracel::argument_error& e) {
    EXPECT_EQ(e.status(), paracel::exit_status::config);
  }
  // A missing key, or one of another type, is a runtime_error, as it was in 0.3.
  EXPECT_NE(error_of<std::runtime_error>([&] { (void)p.check_parse<std::string>("absent"); }), "accepted");
}

TEST_F(JsonParser, SaysWhereTheTextIsNotJson) {
  EXPECT_EQ(error_of([&] { (void)parser("{\"a\": 1,\n \"b\" 2}"); }).substr(0, 17), ":2:6: not JSON: s");
  EXPECT_NE(error_of([&] { (void)parser("{\"a\": 1"); }).find("not JSON"), std::string::npos);
  EXPECT_NE(error_of([&] { (void)parser(""); }).find("not JSON"), std::string::npos);
  EXPECT_NE(error_of([&] { (void)parser("{\"a\": 1} x"); }).find("not JSON"), std::string::npos);
  EXPECT_NE(error_of([&] { (void)parser("[1]"); }).find("want an object"), std::string::npos);
  EXPECT_NE(error_of([&] { (void)parser("{\"a\": 1e999}"); }).find("not JSON"), std::string::npos);
  EXPECT_NE(error_of([&] { (void)parser("{\"a\": \"\xff\"}"); }).find("not JSON"), std::string::npos);
  EXPECT_EQ(error_of([&] { paracel::json_parser p("/no/such/cfg.json"); }),
            "/no/such/cfg.json: cannot be read: No such file or directory");
}

TEST_F(JsonParser, RefusesDepthBeyondTheLimit) {
  const std::string deep = std::string(100000, '[');
  EXPECT_NE(error_of([&] { (void)parser("{\"a\": " + deep); }).find("nested deeper than 32 levels"), std::string::npos);
}

TEST_F(JsonParser, KnowsTheLineAndColumnOfEachKey) {
  const auto root = paracel::parse_config("f", "{ \"a\\\"b\": 1,\n\t\"c\": {\"d\\\\\": [\n2, 3]},\n\"e\":4}");
  ASSERT_EQ(root.members.size(), 3U);
  EXPECT_EQ(root.members[0].name, "a\"b");
  EXPECT_EQ(root.members[0].line, 1U);
  EXPECT_EQ(root.members[0].column, 3U);
  EXPECT_EQ(root.members[1].line, 2U);
  EXPECT_EQ(root.members[1].column, 2U);
  const auto& inner = root.members[1].value.members.at(0);
  EXPECT_EQ(inner.name, "d\\");
  EXPECT_EQ(inner.line, 2U);
  EXPECT_EQ(inner.column, 8U);
  EXPECT_EQ(root.members[2].line, 4U);
  EXPECT_EQ(root.members[2].column, 1U);
}

TEST(JsonText, AQuotedTextReadsBackWhateverIsInIt) {
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  EXPECT_EQ(nlohmann::json::parse(paracel::json_quoted(all)).get<std::string>(), all);
  EXPECT_EQ(paracel::json_quoted("a\"b\\\n\x01\xc3\xa4"), "\"a\\\"b\\\\\\n\\u0001\xc3\xa4\"");
  EXPECT_EQ(paracel::json_quoted("\xff"), "\"\xef\xbf\xbd\"");
}

}  // namespace
