// SPDX-License-Identifier: BSD-3-Clause
#include "config/config_sources.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "paracel/error.hpp"
#include "paracel/json_parser.hpp"
#include "paracel/schema.hpp"
#include "test/support/temporary_folder.hpp"

namespace {

class ConfigSources : public ::testing::Test {
 protected:
  ConfigSources() : schema_("fit") {
    using paracel::key_type;
    schema_.key("rounds", key_type::integer, "rounds").fallback(3).at_least(1);
    schema_.key("alpha", key_type::number, "step").above(0);
    schema_.key("output", key_type::string, "where");
    schema_.key("names", key_type::strings, "some");
    schema_.key("debug", key_type::boolean, "more words");
  }

  std::string write(const std::string& name, const std::string& text) const {
    const auto path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }
  paracel::config check(const std::vector<std::string>& overrides = {}) const {
    return schema_.check((folder_ / "cfg.json").string(), true, overrides);
  }
  std::string error_of(const std::vector<std::string>& overrides = {}) const {
    try {
      (void)check(overrides);
    } catch (const paracel::error& e) {
      std::string said = e.what();
      const auto here = folder_.path() + "/";
      for (auto at = said.find(here); at != std::string::npos; at = said.find(here)) said.erase(at, here.size());
      return said;
    }
    return "accepted";
  }

  paracel::test::temporary_folder folder_;
  paracel::config_schema schema_;
};

TEST_F(ConfigSources, TheIncludingFileAndLaterFilesWin) {
  write("deep/base.json", R"({"$schema": "fit.json", "rounds": 1, "alpha": 1, "output": "base"})");
  write("deep/more.json", R"({"alpha": 2, "output": "more"})");
  write("list.json", R"({"include": ["deep/base.json", "deep/more.json"]})");
  const auto file = write("cfg.json", "{\"output\": \"own\",\n \"include\": \"list.json\"}");
  const auto c = check();
  EXPECT_EQ(c.get<int>("rounds"), 1);
  EXPECT_EQ(c.get<double>("alpha"), 2);
  EXPECT_EQ(c.get<std::string>("output"), "own");
  EXPECT_EQ(c.place_of("rounds"), (folder_ / "deep/base.json:1:25: key \"rounds\"").string());
  EXPECT_EQ(c.place_of("output"), file + ":1:2: key \"output\"");
  EXPECT_EQ(c.place_of("debug"), file + ": key \"debug\"");
  EXPECT_FALSE(c.given("debug"));
  EXPECT_EQ(paracel::json_parser(file).parse<double>("alpha"), 2) << "programs of 0.3 read the same";
  EXPECT_FALSE(paracel::json_parser(file).has("include"));
}

TEST_F(ConfigSources, ErrorsNameTheFileInWhichAKeyStands) {
  write("base.json", "{\n  \"rounds\": 0}");
  write("cfg.json", R"({"include": "base.json"})");
  EXPECT_EQ(error_of(), "base.json:2:3: key \"rounds\": found number 0, want an integer >= 1");
  write("base.json", "{\"rounds\": 2, \"rounds\": 3}");
  EXPECT_EQ(error_of(), "base.json:1:15: key \"rounds\" is given twice, first in line 1");
  EXPECT_EQ(error_of({"rounds=4"}), "accepted") << "what is replaced is not read";
  write("base.json", R"({"roundz": 2})");
  EXPECT_EQ(error_of().find("base.json:1:2: key \"roundz\" is unknown; did you mean \"rounds\"?"), 0U);
  write("base.json", "{\"rounds\": 2,}");
  EXPECT_EQ(error_of().find("base.json:1:14: not JSON: "), 0U) << error_of();
  write("base.json", "[1]");
  EXPECT_EQ(error_of(), "base.json:1:1: found a list, want an object {\"key\": value, ...}");
  write("base.json", "");
  EXPECT_EQ(error_of().find("base.json:1:1: not JSON: "), 0U) << error_of();
}

TEST_F(ConfigSources, AnIncludeThatCannotBeReadIsNamedWithItsPlace) {
  write("cfg.json", "{\n \"include\": [\"none.json\"]}");
  EXPECT_EQ(error_of(), "cfg.json:2:2: key \"include\": none.json: cannot be read: No such file or directory");
  for (const std::string wrong : {"3", "\"\"", "[true]", "{}", "null", "\"a\\u0000b\"", "\"a\\nb\""}) {
    write("cfg.json", "{\"include\": " + wrong + "}");
    EXPECT_NE(error_of().find("want the name of a file, or a list of them"), std::string::npos) << error_of();
  }
  write("cfg.json", R"({"include": []})");
  EXPECT_EQ(error_of(), "accepted");
  write("cfg.json", "{\"include\": [],\n\"include\": []}");
  EXPECT_EQ(error_of(), "cfg.json:2:1: key \"include\" is given twice, first in line 1");
}

TEST_F(ConfigSources, ACycleIsSpelledOutAndADiamondIsNone) {
  write("a.json", R"({"include": "sub/b.json"})");
  write("sub/b.json", R"({"include": "../cfg.json"})");
  write("cfg.json", R"({"include": "a.json"})");
  EXPECT_EQ(error_of(),
            "sub/b.json:1:2: key \"include\": includes itself: cfg.json -> a.json -> sub/b.json -> sub/../cfg.json");
  write("cfg.json", R"({"include": "cfg.json"})");
  EXPECT_EQ(error_of(), "cfg.json:1:2: key \"include\": includes itself: cfg.json -> cfg.json");
  write("base.json", R"({"rounds": 7})");
  write("a.json", R"({"include": "base.json"})");
  write("b.json", R"({"include": "base.json", "alpha": 2})");
  write("cfg.json", R"({"include": ["a.json", "b.json"]})");
  EXPECT_EQ(check().get<int>("rounds"), 7);
}

TEST_F(ConfigSources, FilesThatMultiplyEndSoon) {
  write("0.json", "{}");
  for (int i = 1; i < 20; ++i) {
    const auto inner = "\"" + std::to_string(i - 1) + ".json\"";
    write(std::to_string(i) + ".json", "{\"include\": [" + inner + ", " + inner + "]}");
  }
  write("cfg.json", R"({"include": "19.json"})");
  EXPECT_NE(error_of().find("more than 256 files are included"), std::string::npos) << error_of();
  for (int i = 1; i < 40; ++i)
    write(std::to_string(i) + ".json", "{\"include\": \"" + std::to_string(i - 1) + ".json\"}");
  write("cfg.json", R"({"include": "39.json"})");
  EXPECT_NE(error_of().find("more than 32 files include each other"), std::string::npos) << error_of();
}

TEST_F(ConfigSources, AnOverrideIsJsonOrElseAText) {
  write("cfg.json", R"({"rounds": 2, "output": "file"})");
  const auto c = check({"rounds=20", "alpha=1e-3", "output=a=b c", "names=[\"x\", \"y\"]", "debug=true"});
  EXPECT_EQ(c.get<int>("rounds"), 20);
  EXPECT_EQ(c.get<double>("alpha"), 1e-3);
  EXPECT_EQ(c.get<std::string>("output"), "a=b c");
  EXPECT_EQ(c.get<std::vector<std::string>>("names"), (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(c.get<bool>("debug"));
  EXPECT_TRUE(c.given("alpha"));
  EXPECT_EQ(c.place_of("alpha"), "--set: key \"alpha\"");
  for (const std::string text : {"2024", "007", "1e5", "true", "null", "\xC3\xA9t\xC3\xA9", "[1", ""})
    EXPECT_EQ(check({"output=" + text}).get<std::string>("output"), text);
  EXPECT_EQ(check({"names=17"}).get<std::vector<std::string>>("names"), std::vector<std::string>{"17"});
  EXPECT_EQ(check({R"(output="quoted")"}).get<std::string>("output"), "quoted");
}

TEST_F(ConfigSources, AnOverrideThatIsWrongIsNamed) {
  write("cfg.json", R"({"rounds": 2})");
  EXPECT_EQ(error_of({"rounds=ten"}), "--set: key \"rounds\": found string \"ten\", want an integer >= 1");
  EXPECT_EQ(error_of({"rounds="}), "--set: key \"rounds\": found string \"\", want an integer >= 1");
  EXPECT_EQ(error_of({"round=3"}).find("--set: key \"round\" is unknown; did you mean \"rounds\"?"), 0U);
  EXPECT_EQ(error_of({"rounds=3", "rounds=4"}), "--set: key \"rounds\" is given twice, first as \"3\"");
  EXPECT_EQ(error_of({"include=base.json"}), "--set: key \"include\": want it in the config");
  EXPECT_EQ(error_of({"rounds"}), "--set: found \"rounds\", want KEY=VALUE");
  EXPECT_EQ(error_of({"=3"}), "--set: found \"=3\", want KEY=VALUE");
  EXPECT_EQ(error_of({"rounds.x=3"}).find("--set: key \"rounds.x\" is unknown"), 0U);
}

TEST_F(ConfigSources, APathOverridesInsideObjectsThatAreThere) {
  write("base.json", R"({"model": {"layers": {"width": 3, "depth": 2}, "a.b": 1}})");
  const auto file = write("cfg.json", R"({"include": "base.json", "big": 123456789012345678901, "text": "\"\n"})");
  const auto text = [&](const std::vector<std::string>& overrides) {
    return paracel::config_json(paracel::read_config(file, overrides));
  };
  const std::string rest = R"(, "a.b": 1}, "big": 123456789012345678901, "text": "\"\n")";
  EXPECT_EQ(text({}), R"({"model": {"layers": {"width": 3, "depth": 2})" + rest + "}");
  EXPECT_EQ(text({"model.layers.width=5"}), R"({"model": {"layers": {"depth": 2, "width": 5})" + rest + "}");
  EXPECT_EQ(text({"model.a.b=[true, null, {\"c\": -1.50}]"}),
            R"({"model": {"layers": {"width": 3, "depth": 2}, "a.b": [true, null, {"c": -1.50}]})" +
                rest.substr(rest.find("},") + 1) + "}");
  EXPECT_EQ(text({"none.x=5"}), R"({"model": {"layers": {"width": 3, "depth": 2})" + rest + R"(, "none.x": 5})");
}

TEST_F(ConfigSources, WhatDiffersBetweenTwoIsNamedWithBothValues) {
  write("base.json", R"({"rounds": 20, "shape": {"rows": 2, "columns": 3}, "alpha": 1.0})");
  const auto before = write("before.json", R"({"include": "base.json", "output": "a", "names": ["x"], "debug": true})");
  const auto now =
      write("cfg.json", R"({"rounds": 10, "shape": {"rows": 4, "columns": 3}, "alpha": 1, "names": ["x", "y"],
                                         "output": "a", "late": null, "late": 5})");
  std::string all;
  for (const auto& c :
       paracel::config_changes(paracel::read_config(before), paracel::read_config(now, {"rounds=30", "shape.rows=5"})))
    all += c.key + ": " + c.before + " -> " + c.now + '\n';
  EXPECT_EQ(all,
            "rounds: 20 -> 30\n"
            "shape.rows: 2 -> 5\n"
            "names: [\"x\"] -> [\"x\", \"y\"]\n"
            "debug: true -> \n"
            "late:  -> 5\n");
  EXPECT_TRUE(paracel::config_changes(paracel::read_config(now), paracel::read_config(now)).empty());
}

}  // namespace
