// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/schema.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "config/json_document.hpp"
#include "test/support/temporary_folder.hpp"

namespace {

namespace fs = std::filesystem;
using paracel::key_type;

class Schema : public ::testing::Test {
 protected:
  Schema() : schema_("prog", "a test") {
    input_ = (folder_ / "in.dat").string();
    std::ofstream(input_) << "1,1\n";
    schema_.key("input", key_type::files, "what to read").required();
    schema_.key("other", key_type::files, "what else to read");
    schema_.key("method", key_type::string, "how").one_of({"dgd", "ipm"}).fallback("ipm");
    schema_.key("rounds", key_type::integer, "how often").at_least(1).fallback(3);
    schema_.key("alpha", key_type::number, "how far").above(0).at_most(10).fallback(0.5);
    schema_.key("debug", key_type::boolean, "more text");
    schema_.key("plugin", key_type::plugin, "functions");
    schema_.key("output", key_type::output_folder, "where to");
    schema_.key("lambdas", key_type::numbers, "weights").at_least(0);
    schema_.key("functions", key_type::strings, "names");
  }

  /// Checks a config {"input": <an existing file>, ...rest}.
  paracel::config check(const std::string& rest) {
    return schema_.check_text("cfg.json", "{\"input\": \"" + input_ + "\"" + (rest.empty() ? "" : ",\n") + rest + "}");
  }
  std::string error_of(const std::string& rest) {
    try {
      (void)check(rest);
    } catch (const paracel::config_error& e) {
      EXPECT_EQ(e.status(), 3);
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
      return e.what();
    }
    return "accepted";
  }

  const paracel::test::temporary_folder folder_{"schema_"};
  std::string input_;
  paracel::config_schema schema_;
};

TEST_F(Schema, OneOutputFileIsAskedForByOneAndByNothingElse) {
  EXPECT_NE(error_of(R"("output_files": 1)").find("\"output_files\" is unknown"), std::string::npos)
      << "a program that has not said that its workers write together";
  schema_.add_output_files();
  EXPECT_FALSE(check("").one_output_file());
  EXPECT_TRUE(check(R"("output_files": 1)").one_output_file());
  for (const std::string wrong : {"0", "2", "-1", "1.5", "true", "null", "\"all\"", "[1]"}) {
    const auto said = error_of("\"output_files\": " + wrong);
    EXPECT_EQ(said.find("cfg.json:2:1: key \"output_files\": found "), 0U) << said;
    EXPECT_NE(said.find(", want 1, or the key left out"), std::string::npos) << said;
  }
  EXPECT_NE(schema_.help_text().find("output_files  int = 1: 1: one file"), std::string::npos) << schema_.help_text();
}

TEST_F(Schema, GivesTypedValuesAndFallbacks) {
  const auto c = check(R"("method": "dgd", "rounds": "7", "alpha": 2, "debug": "true")");
  EXPECT_EQ(c.get<std::vector<std::string>>("input"), (std::vector<std::string>{input_}));
  EXPECT_TRUE(c.get<std::vector<std::string>>("other").empty());
  EXPECT_EQ(c.get<std::string>("method"), "dgd");
  EXPECT_EQ(c.get<int>("rounds"), 7);
  EXPECT_EQ(c.get<double>("alpha"), 2.0);
  EXPECT_TRUE(c.get<bool>("debug"));
  EXPECT_TRUE(c.given("rounds"));
  const auto d = check("");
  EXPECT_EQ(d.get<std::string>("method"), "ipm");
  EXPECT_EQ(d.get<std::size_t>("rounds"), 3U);
  EXPECT_EQ(d.get<double>("alpha"), 0.5);
  EXPECT_FALSE(d.get<bool>("debug"));
  EXPECT_EQ(d.get<std::string>("plugin"), "");
  EXPECT_FALSE(d.given("rounds"));
}

TEST_F(Schema, AValueThatDoesNotFitTheTypeAskedForIsAnErrorAndNotAnotherValue) {
  const auto c = check(R"("rounds": 5000000000)");
  EXPECT_EQ(c.get<long>("rounds"), 5000000000);
  EXPECT_THROW((void)c.get<int>("rounds"), paracel::config_error);
  EXPECT_THROW((void)c.get<std::string>("rounds"), paracel::config_error);
  EXPECT_THROW((void)c.get<int>("nothing"), paracel::config_error);
}

TEST_F(Schema, AListOfNumbersOrStringsMayBeOneOfThem) {
  const auto c = check(R"("lambdas": [0.1, "2", 3], "functions": "f")");
  EXPECT_EQ(c.get<std::vector<double>>("lambdas"), (std::vector<double>{0.1, 2, 3}));
  EXPECT_EQ(c.get<std::vector<std::string>>("functions"), (std::vector<std::string>{"f"}));
  const auto d = check(R"("lambdas": 7)");
  EXPECT_EQ(d.get<std::vector<double>>("lambdas"), (std::vector<double>{7}));
  EXPECT_TRUE(d.get<std::vector<std::string>>("functions").empty());
  EXPECT_NE(error_of(R"("lambdas": [])").find("want a list of numbers, each >= 0"), std::string::npos);
  EXPECT_NE(error_of(R"("lambdas": [1, -1])").find("want a list of numbers, each >= 0"), std::string::npos);
  EXPECT_NE(error_of(R"("functions": ["f", 3])").find("want a list of strings"), std::string::npos);
  schema_.key("fields", key_type::strings, "names or numbers").or_numbers();
  schema_.key("field", key_type::string, "a name or a number").or_numbers();
  EXPECT_EQ(check(R"("fields": ["f", 3, -1])").get<std::vector<std::string>>("fields"),
            (std::vector<std::string>{"f", "3", "-1"}));
  EXPECT_EQ(check(R"("fields": 30)").get<std::vector<std::string>>("fields"), std::vector<std::string>{"30"});
  EXPECT_EQ(check(R"("field": 30)").get<std::string>("field"), "30");
  EXPECT_NE(error_of(R"("fields": [1.5])").find("want a list of strings and integers"), std::string::npos);
  EXPECT_NE(error_of(R"("field": true)").find("want a string or an integer"), std::string::npos);
}

TEST_F(Schema, ANumberInQuotesIsTakenWithARemark) {
  const auto before = paracel::config_remarks().size();
  (void)check(R"("rounds": 20, "method": "dgd", "debug": true, "lambdas": [1])");
  EXPECT_EQ(paracel::config_remarks().size(), before);
  const auto c = check("\"rounds\": \"20\", \"alpha\": \"0.25\",\n\"debug\": \"true\", \"lambdas\": [0, \"2\"]");
  EXPECT_EQ(c.get<int>("rounds"), 20);
  const auto remarks = paracel::config_remarks();
  ASSERT_EQ(remarks.size(), before + 4);
  EXPECT_EQ(remarks[before], "cfg.json:2:1: key \"rounds\": found string \"20\", taken as 20; want it without quotes");
  EXPECT_EQ(remarks.back(), "cfg.json:3:18: key \"lambdas\": found string \"2\", taken as 2; want it without quotes");
  (void)check("\"rounds\": \"20\"");
  EXPECT_EQ(paracel::config_remarks().size(), before + 4) << "once";
}

TEST_F(Schema, NamesAnUnknownKeyAndWhatWasProbablyMeant) {
  EXPECT_EQ(error_of(R"(  "alhpa": 1)"),
            "cfg.json:2:3: key \"alhpa\" is unknown; did you mean \"alpha\"? allowed keys: input, other, method, "
            "rounds, alpha, debug, plugin, output, lambdas, functions");
  EXPECT_EQ(error_of(R"("zzzzzz": 1)").find("did you mean"), std::string::npos);
}

TEST_F(Schema, NamesAKeyGivenTwice) {
  EXPECT_EQ(error_of("\"rounds\": 1,\n\"rounds\": 2"), "cfg.json:3:1: key \"rounds\" is given twice, first in line 2");
}

TEST_F(Schema, NamesAMissingKey) {
  try {
    (void)schema_.check_text("cfg.json", "{}");
    FAIL();
  } catch (const paracel::config_error& e) {
    EXPECT_EQ(std::string(e.what()), "cfg.json: key \"input\" is missing (files): what to read");
  }
}

TEST_F(Schema, AKeyMayBeNeededUnlessAnotherOneIsGiven) {
  schema_.key("model", key_type::files, "a model to use");
  schema_.key("start", key_type::string, "where from");
  schema_.key("step", key_type::number, "how far").above(0).required_unless({"model", "start"});
  const std::string missing = "cfg.json: key \"step\" is missing (double > 0): how far; not needed with model or start";
  EXPECT_EQ(error_of(""), missing);
  EXPECT_EQ(error_of(R"("start": "", "model": "")"), missing);
  EXPECT_EQ(error_of(R"("step": 1)"), "accepted");
  EXPECT_EQ(error_of(R"("start": "x")"), "accepted");
  EXPECT_EQ(error_of("\"model\": \"" + input_ + "\""), "accepted");
  EXPECT_NE(schema_.to_json().find(R"("required": false, "required_unless": ["model", "start"], "min": 0)"),
            std::string::npos);
  EXPECT_NE(schema_.help_text().find("step       double > 0, required without model or start: how far"),
            std::string::npos)
      << schema_.help_text();
}

TEST_F(Schema, SaysWhatWasFoundAndWhatIsAllowed) {
  EXPECT_EQ(error_of(R"("rounds": "ten")"), "cfg.json:2:1: key \"rounds\": found string \"ten\", want an integer >= 1");
  EXPECT_EQ(error_of(R"("rounds": 0)"), "cfg.json:2:1: key \"rounds\": found number 0, want an integer >= 1");
  EXPECT_EQ(error_of(R"("rounds": 1.5)"), "cfg.json:2:1: key \"rounds\": found number 1.5, want an integer >= 1");
  EXPECT_EQ(error_of(R"("rounds": 99999999999999999999)"),
            "cfg.json:2:1: key \"rounds\": found number 99999999999999999999, want an integer >= 1");
  EXPECT_EQ(error_of(R"("alpha": 0)"), "cfg.json:2:1: key \"alpha\": found number 0, want a number > 0 and <= 10");
  EXPECT_EQ(error_of(R"("alpha": 11)"), "cfg.json:2:1: key \"alpha\": found number 11, want a number > 0 and <= 10");
  EXPECT_EQ(error_of(R"("alpha": "nan")"),
            "cfg.json:2:1: key \"alpha\": found string \"nan\", want a number > 0 and <= 10");
  EXPECT_EQ(error_of(R"("debug": 2)"), "cfg.json:2:1: key \"debug\": found number 2, want true or false");
  EXPECT_EQ(error_of(R"("debug": null)"), "cfg.json:2:1: key \"debug\": found null, want true or false");
  EXPECT_EQ(error_of(R"("method": "dgb")"),
            "cfg.json:2:1: key \"method\": found string \"dgb\", want one of dgd, ipm; did you mean \"dgd\"?");
  EXPECT_EQ(error_of(R"("method": 3)"), "cfg.json:2:1: key \"method\": found number 3, want a string");
  EXPECT_EQ(error_of(R"("other": {})"),
            "cfg.json:2:1: key \"other\": found an object, want a file, folder or pattern, or a list of them");
}

TEST_F(Schema, NamesAFileThatIsMissing) {
  EXPECT_EQ(error_of(R"("other": "nowhere.dat")"), "cfg.json:2:1: key \"other\": no such file or folder: nowhere.dat");
  EXPECT_EQ(error_of("\"other\": [\"" + input_ + "\", \"nowhere.dat\"]"),
            "cfg.json:2:1: key \"other\": no such file or folder: nowhere.dat");
  fs::create_directories(folder_ / "empty");
  const auto empty = (folder_ / "empty").string();
  try {
    (void)check("\"other\": \"" + empty + "\"");
    ADD_FAILURE() << "accepted";
  } catch (const paracel::data_error& e) {  // as for a file with nothing in it
    EXPECT_EQ(std::string(e.what()), "cfg.json:2:1: key \"other\": no file in folder: " + empty);
    EXPECT_EQ(e.status(), 4);
  }
  EXPECT_EQ(error_of("\"other\": \"/dev/null\""), "cfg.json:2:1: key \"other\": not a regular file: /dev/null");
  EXPECT_EQ(error_of(R"("other": "")"), "accepted");
  EXPECT_EQ(error_of("\"other\": \"" + (folder_ / "*.dat").string() + "\""), "accepted");
}

TEST_F(Schema, NamesAnOutputFolderThatCannotBe) {
  EXPECT_EQ(error_of("\"output\": \"" + input_ + "/out\""),
            "cfg.json:2:1: key \"output\": cannot write to " + input_ + "/out: " + input_ + " is not a folder");
  EXPECT_EQ(error_of("\"output\": \"" + (folder_ / "new/deeper/").string() + "\""), "accepted");
  EXPECT_FALSE(fs::exists(folder_ / "new"));
  EXPECT_EQ(error_of("\"output\": \"./out/\""), "accepted");
}

TEST_F(Schema, APluginIsANameOrAnExistingFile) {
  EXPECT_EQ(error_of(R"("plugin": "libmine.so")"), "accepted");
  EXPECT_EQ(error_of(R"("plugin": "./no/libmine.so")"), "cfg.json:2:1: key \"plugin\": no such file: ./no/libmine.so");
}

TEST_F(Schema, PublishesItselfAsJson) {
  const auto text = schema_.to_json();
  const auto root = paracel::parse_config("schema", text);
  EXPECT_EQ(root.find("format")->text, "paracel-schema-v1");
  EXPECT_EQ(root.find("program")->text, "prog");
  const auto& keys = root.find("keys")->items;
  ASSERT_EQ(keys.size(), 10U);
  EXPECT_EQ(keys[0].find("type")->text, "files");
  EXPECT_TRUE(keys[0].find("required")->boolean);
  EXPECT_EQ(keys[0].find("default"), nullptr);
  EXPECT_EQ(keys[2].find("choices")->items.size(), 2U);
  EXPECT_EQ(keys[2].find("default")->text, "ipm");
  EXPECT_EQ(keys[3].find("type")->text, "int");
  EXPECT_EQ(keys[3].find("min")->number, 1);
  EXPECT_EQ(keys[3].find("exclusive_min"), nullptr);
  EXPECT_EQ(keys[4].find("type")->text, "double");
  EXPECT_TRUE(keys[4].find("exclusive_min")->boolean);
  EXPECT_EQ(keys[4].find("max")->number, 10);
  EXPECT_EQ(keys[7].find("type")->text, "folder_out");
}

TEST_F(Schema, HelpNamesEveryKey) {
  const auto text = schema_.help_text();
  for (const auto* name : {"input", "other", "method", "rounds", "alpha", "debug", "plugin", "output"}) {
    EXPECT_NE(text.find("\n  " + std::string(name) + " "), std::string::npos) << name;
  }
}

}  // namespace
