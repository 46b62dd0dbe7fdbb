// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/settings.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "paracel/run.hpp"

namespace {

using paracel::config;
using paracel::config_error;
using paracel::key_list;
using paracel::key_type;

enum class way { newton, lbfgs };
constexpr paracel::choices<way> ways = {{"newton", way::newton}, {"lbfgs", way::lbfgs}};

struct shared_settings {
  bool debug = false;
  std::uint64_t seed = 7;

  void keys(key_list& k) {
    k("debug", debug, "print each round");
    k("seed", seed, "of all draws").at_least(0);
  }
};

struct fit_settings : shared_settings {
  static constexpr auto program = "fit";
  static constexpr auto summary = "a line";

  std::vector<std::string> input;
  std::string output, plugin, name = "theta", note;
  way method = way::lbfgs;
  bool squared = true;
  int rounds = 3;
  double alpha = 0.5;
  std::optional<double> beta;
  std::optional<int> steps = 5;
  std::size_t clusters = 2;
  std::vector<double> lambdas;
  std::vector<std::string> columns;

  void keys(key_list& k) {
    k.files("input", input, "points");
    k.output_folder("output", output, "results");
    k.output_files();
    shared_settings::keys(k);
    k.plugin("plugin", plugin, "functions").not_resumable();
    k("name", name, "of the model");
    k("note", note, "about it");
    k("method", method, "how", ways);
    k("loss", squared, "what", {{"hinge", false}, {"squared_hinge", true}});
    k("rounds", rounds, "how often").at_least(1).at_most(9);
    k("alpha", alpha, "how far").above(0);
    k("beta", beta, "penalty");
    k("steps", steps, "of each round");
    k("clusters", clusters, "how many").required_unless({"name"});
    k("lambdas", lambdas, "weights").at_least(0);
    k("columns", columns, "fields").or_numbers();
  }
  void check(const config& from) const {
    if (method == way::newton && from.given("alpha")) throw config_error(from.place_of("alpha") + ": not with newton");
  }
};

/// The same keys as a schema that is written out.
paracel::config_schema written_out() {
  paracel::config_schema s("fit", "a line");
  s.key("input", key_type::files, "points");
  s.key("output", key_type::output_folder, "results");
  s.add_output_files();
  s.key("debug", key_type::boolean, "print each round").fallback(false);
  s.key("seed", key_type::integer, "of all draws").at_least(0).fallback(7);
  s.key("plugin", key_type::plugin, "functions").not_resumable();
  s.key("name", key_type::string, "of the model").fallback("theta");
  s.key("note", key_type::string, "about it");
  s.key("method", key_type::string, "how").one_of({"newton", "lbfgs"}).fallback("lbfgs");
  s.key("loss", key_type::string, "what").one_of({"hinge", "squared_hinge"}).fallback("squared_hinge");
  s.key("rounds", key_type::integer, "how often").at_least(1).at_most(9).fallback(3);
  s.key("alpha", key_type::number, "how far").above(0).fallback(0.5);
  s.key("beta", key_type::number, "penalty");
  s.key("steps", key_type::integer, "of each round").fallback(5);
  s.key("clusters", key_type::integer, "how many").required_unless({"name"});
  s.key("lambdas", key_type::numbers, "weights").at_least(0);
  s.key("columns", key_type::strings, "fields").or_numbers();
  return s;
}

config checked(const std::string& keys) {
  return paracel::schema_of<fit_settings>().check_text("cfg.json", R"({"name": "w")" + keys + "}");
}
fit_settings read(const std::string& keys) { return paracel::read_settings<fit_settings>(checked(keys)); }

TEST(Settings, DeclareTheSchemaThatCouldBeWrittenOut) {
  EXPECT_EQ(paracel::schema_of<fit_settings>().to_json(), written_out().to_json());
  EXPECT_EQ(paracel::schema_of<fit_settings>().help_text(), written_out().help_text());
}

TEST(Settings, MembersOfAbsentKeysKeepTheirInitialValues) {
  const auto s = read("");
  EXPECT_EQ(s.name, "w");
  EXPECT_EQ(s.seed, 7U);
  EXPECT_EQ(s.method, way::lbfgs);
  EXPECT_TRUE(s.squared);
  EXPECT_EQ(s.rounds, 3);
  EXPECT_EQ(s.alpha, 0.5);
  EXPECT_EQ(s.steps, 5);
  EXPECT_FALSE(s.beta);
  EXPECT_EQ(s.clusters, 2U) << "required_unless: the schema has no default";
  EXPECT_TRUE(s.lambdas.empty());
}

TEST(Settings, MembersHaveTheValuesOfTheConfig) {
  const auto s = read(R"(, "seed": 8, "debug": true, "note": "n", "method": "newton", "loss": "hinge", "rounds": 4,
                         "beta": 0, "steps": 6, "clusters": 3, "lambdas": [1, 2], "columns": ["a", 1], "plugin": "p")");
  EXPECT_EQ(s.seed, 8U);
  EXPECT_TRUE(s.debug);
  EXPECT_EQ(s.note, "n");
  EXPECT_EQ(s.method, way::newton);
  EXPECT_FALSE(s.squared);
  EXPECT_EQ(s.rounds, 4);
  EXPECT_EQ(s.beta, 0.0);
  EXPECT_EQ(s.steps, 6);
  EXPECT_EQ(s.clusters, 3U);
  EXPECT_EQ(s.lambdas, (std::vector<double>{1, 2}));
  EXPECT_EQ(s.columns, (std::vector<std::string>{"a", "1"}));
  EXPECT_EQ(s.plugin, "p");
  EXPECT_EQ(read(R"(, "alpha": 0.25)").alpha, 0.25);
}

TEST(Settings, TheSchemaMakesTheChecksOfTheStruct) {
  try {
    (void)checked(", \"method\": \"newton\",\n\"alpha\": 1");
    FAIL() << "accepted";
  } catch (const config_error& e) {
    EXPECT_STREQ(e.what(), "cfg.json:2:1: key \"alpha\": not with newton");
  }
  EXPECT_THROW((void)checked(R"(, "rounds": 10)"), config_error);
  EXPECT_THROW((void)checked(R"(, "loss": "log")"), config_error);
}

class fit {
 public:
  using settings_type = fit_settings;
  explicit fit(const fit_settings& /*settings*/) {}
  void solve() {}
};

/// Settings as programs could have them before this header.
struct read_by_constructor {
  explicit read_by_constructor(const config& from) {
    if (from.get<int>("rounds") > 4) throw config_error(from.place_of("rounds") + ": too many");
  }
};

TEST(Settings, WhatTheyRefuseIsRefusedByCheck) {
  const auto file = std::filesystem::temp_directory_path() / ("settings_" + std::to_string(::getpid()) + ".json");
  const auto status_of = [&](const char* text, auto&& run) {
    std::ofstream(file) << text;
    std::string words[] = {"fit", "--check", file.string()};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int status = run(3, argv);
    ::testing::internal::GetCapturedStderr();
    ::testing::internal::GetCapturedStdout();
    return status;
  };
  const auto run_class = [](int argc, char** argv) { return paracel::run<fit>(argc, argv); };
  const auto run_schema = [](int argc, char** argv) {
    return paracel::run<read_by_constructor>(argc, argv, written_out(), [](const auto&) {});
  };
  EXPECT_EQ(status_of(R"({"name": "w", "alpha": 1})", run_class), 0);
  EXPECT_EQ(status_of(R"({"name": "w", "alpha": 1, "method": "newton"})", run_class), 3);
  EXPECT_EQ(status_of(R"({"name": "w", "rounds": 4})", run_schema), 0);
  EXPECT_EQ(status_of(R"({"name": "w", "rounds": 5})", run_schema), 3);
  std::filesystem::remove(file);
}

TEST(Settings, AValueThatDoesNotFitItsMemberIsRefused) {
  EXPECT_THROW((void)read(R"(, "steps": 3000000000)"), config_error);
  EXPECT_THROW((void)read(R"(, "clusters": -1)"), config_error);
}

TEST(Settings, KeysOfAnotherSchemaAreRefused) {
  const auto other = paracel::config_schema("other").check_text("cfg.json", "{}");
  EXPECT_THROW((void)paracel::read_settings<fit_settings>(other), config_error);
}

TEST(Settings, ChoicesHaveWordsAndValues) {
  EXPECT_STREQ(paracel::word_of(ways, way::lbfgs), "lbfgs");
  EXPECT_EQ(paracel::value_of(ways, "newton"), way::newton);
  EXPECT_FALSE(paracel::value_of(ways, "Newton"));
}

}  // namespace
