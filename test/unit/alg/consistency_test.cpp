// SPDX-License-Identifier: BSD-3-Clause
#include "paracel/consistency.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "alg/factorization_machine/fm.hpp"
#include "alg/lda/lda.hpp"
#include "alg/logistic_regression/lr.hpp"
#include "alg/matrix_factorization/mf.hpp"
#include "alg/word2vec/word2vec.hpp"
#include "paracel/schema.hpp"
#include "test/support/paths.hpp"

namespace paracel {

// For readable output of failed comparisons.
void PrintTo(const consistency& c, std::ostream* out) { *out << name_of(c.model) << " " << c.staleness; }

}  // namespace paracel

namespace {

using paracel::consistency;

const std::string existing_file = paracel::test::source_folder() + "/README.md";  // a file that exists

/// A program with these keys: returns the consistency for a given config.
struct keyed_program {
  const char* name;
  consistency preferred;
  std::function<consistency(const std::string& keys)> read;
};

template <class Settings>
std::function<consistency(const std::string&)> settings_reader(const std::string& required) {
  return [=](const std::string& keys) {
    return paracel::parse_settings<Settings>("cfg.json", "{" + required + (keys.empty() ? "" : ",\n" + keys) + "}")
        .consistency;
  };
}

std::vector<keyed_program> keyed_programs() {
  const auto lr = [](const char* method) {
    return settings_reader<paracel::alg::lr_settings>(R"("training_input": ")" + existing_file +
                                                      R"(", "output": "/tmp", "rounds": 1, )" +
                                                      R"("alpha": 1, "beta": 0, "method": ")" + method + '"');
  };
  const std::string files = R"("input": ")" + existing_file + R"(", "output": "/tmp")";
  return {{"lr dgd", consistency::bsp(), lr("dgd")},
          {"lr agd", consistency::ssp(0), lr("agd")},
          {"lda", consistency::bsp(), settings_reader<paracel::alg::lda_settings>(files)},
          {"mf", consistency::bsp(), settings_reader<paracel::alg::mf_settings>(files)},
          {"fm", consistency::bsp(), settings_reader<paracel::alg::fm_settings>(files)},
          {"word2vec", consistency::bsp(), settings_reader<paracel::alg::word2vec_settings>(files)}};
}

std::string error_of(const keyed_program& p, const std::string& keys) {
  try {
    p.read(keys);
  } catch (const paracel::config_error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Consistency, AllProgramsReadTheSameKeysAlike) {
  for (const auto& p : keyed_programs()) {
    SCOPED_TRACE(p.name);
    EXPECT_EQ(p.read(R"("ssp_switch": true, "limit_s": 3)"), consistency::ssp(3));
    EXPECT_EQ(p.read(R"("ssp_switch": true, "limit_s": 0)"), consistency::ssp(0));  // as in Paracel 0.3, and not bsp
    EXPECT_EQ(p.read(R"("ssp_switch": true)"), consistency::ssp(0));
    EXPECT_EQ(p.read(R"("consistency": "auto", "ssp_switch": true, "limit_s": 2)"), consistency::ssp(2));
    EXPECT_EQ(p.read(R"("consistency": "ssp", "limit_s": 2)"), consistency::ssp(2));
    EXPECT_EQ(p.read(R"("consistency": "ssp", "ssp_switch": true, "limit_s": 2)"), consistency::ssp(2));
  }
}

TEST(Consistency, WithoutAWordItIsTheAlgorithmsOwn) {
  for (const auto& p : keyed_programs()) {
    SCOPED_TRACE(p.name);
    EXPECT_EQ(p.read(""), p.preferred);
    EXPECT_EQ(p.read(R"("ssp_switch": false, "limit_s": 0)"), p.preferred);
    EXPECT_EQ(p.read(R"("ssp_switch": false, "limit_s": 3)"), p.preferred);  // limit_s has no effect, as in Paracel 0.3
    EXPECT_EQ(p.read(R"("consistency": "auto")"), p.preferred);
  }
}

TEST(Consistency, BspIsTheSameEverywhereAndRefusedWhereUpdatesActAtOnce) {
  for (const auto& p : keyed_programs()) {
    SCOPED_TRACE(p.name);
    if (p.preferred == consistency::bsp()) {
      EXPECT_EQ(p.read(R"("consistency": "bsp", "ssp_switch": false)"), consistency::bsp());
    } else {
      EXPECT_NE(
          error_of(p, R"("consistency": "bsp")").find(":2:1: key \"consistency\": found \"bsp\", want ssp or asp"),
          std::string::npos);
    }
  }
}

TEST(Consistency, AspIsForThoseThatSupportIt) {
  const auto all = keyed_programs();
  EXPECT_EQ(all[0].read(R"("consistency": "asp")"), consistency::asp());
  EXPECT_EQ(all[1].read(R"("consistency": "asp")"), consistency::asp());
  for (const auto i : {2, 3}) {
    EXPECT_NE(error_of(all[i], R"("consistency": "asp")").find("want one of auto, bsp, ssp"), std::string::npos);
  }
}

TEST(Consistency, KeysThatContradictEachOtherAreRefused) {
  for (const auto& p : keyed_programs()) {
    SCOPED_TRACE(p.name);
    EXPECT_EQ(error_of(p, "\"consistency\": \"ssp\",\n\"ssp_switch\": false"),
              "cfg.json:3:1: key \"ssp_switch\": found false with \"consistency\": \"ssp\", want one of the two keys, "
              "or both "
              "saying the same");
    EXPECT_EQ(
        error_of(p, "\"consistency\": \"bsp\",\n\"ssp_switch\": true"),
        "cfg.json:3:1: key \"ssp_switch\": found true with \"consistency\": \"bsp\", want one of the two keys, or both "
        "saying the same");
    EXPECT_EQ(error_of(p, "\"consistency\": \"bsp\",\n\"limit_s\": 2"),
              "cfg.json:3:1: key \"limit_s\": found 2 with \"consistency\": \"bsp\", want it only with ssp");
  }
  EXPECT_NE(error_of(keyed_programs()[0], R"("consistency": "asp", "ssp_switch": true)").find("found true"),
            std::string::npos);
}

}  // namespace
