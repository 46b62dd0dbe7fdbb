// SPDX-License-Identifier: BSD-3-Clause
#include "worker/results/result_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <paracel/error.hpp>
#include <paracel/paralg.hpp>
#include <paracel/text_output.hpp>

#include "test/support/cluster.hpp"
#include "test/support/file_size_limit.hpp"
#include "test/support/temporary_folder.hpp"

namespace paracel {
namespace {

using test::cluster;
using testing::ElementsAre;
using testing::HasSubstr;

class ResultFiles : public testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    EXPECT_TRUE(in) << name;
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string put(const std::string& name, const std::string& what) const {
    std::ofstream(path(name), std::ios::binary) << what;
    return path(name);
  }

  const test::temporary_folder made_{"paracel-results-"};
  const std::string folder_ = made_.path();
};

TEST_F(ResultFiles, EveryFormOfADictionaryIsWrittenInTheOrderOfItsKeys) {
  cluster c({.workers = 1, .servers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm, folder_);
    a.paracel_dump_dict(dict_type<str_type, int>{{"b", 2}, {"a", 1}, {"c", -3}}, "ints_");
    EXPECT_EQ(text("ints_0"), "a\t1\nb\t2\nc\t-3\n");
    a.paracel_dump_dict(dict_type<str_type, double>{{"x", 0.1}, {"y", 1e300}}, "doubles_");
    EXPECT_EQ(text("doubles_0"), "x\t0.1\ny\t1e+300\n") << "every bit comes back";
    a.paracel_dump_dict(dict_type<default_id_type, list_type<double>>{{10, {1, 2.5}}, {9, {}}}, "lists_");
    EXPECT_EQ(text("lists_0"), "9\t\n10\t1|2.5\n");
    a.paracel_dump_dict(dict_type<str_type, list_type<std::pair<str_type, double>>>{{"u", {{"v", 0.5}, {"w", 2}}}},
                        "pairs_");
    EXPECT_EQ(text("pairs_0"), "u\tv:0.5|w:2\n");
    a.paracel_dump_dict(dict_type<default_id_type, list_type<std::pair<default_id_type, double>>>{{7, {{8, 0.25}}}},
                        "ids_");
    EXPECT_EQ(text("ids_0"), "7\t8:0.25\n");
    a.paracel_dump_dict(dict_type<str_type, str_type>{{"k", "v"}}, "sep_", " = ");
    a.paracel_dump_dict(dict_type<str_type, str_type>{{"l", "w"}}, "sep_", str_type(" = "), true);
    EXPECT_EQ(text("sep_0"), "k = v\nl = w\n");
    a.paracel_dump_prob_mtx({{"u", {}}, {"v", {{"w", 1}}}}, "prob_");
    EXPECT_EQ(text("prob_0"), "v\tw:1\n");
    a.paracel_dump_vector(list_type<double>{1, 2, 3}, dict_type<std::size_t, str_type>{{0, "zero"}, {2, "two"}},
                          "named_");
    EXPECT_EQ(text("named_0"), "zero:1,two:3\n");
    a.paracel_dump_vector(list_type<double>{}, "empty_");
    EXPECT_EQ(text("empty_0"), "");
    a.paracel_dump_vector(list_type<std::tuple<str_type, str_type, double>>{{"a", "b", 1.5}}, "triples_", "\n");
    EXPECT_EQ(text("triples_0"), "a,b,1.5\n");
  });
}

TEST(AppendText, AWordIsNoTruthValue) {
  std::string out;
  append_text(out, "word");
  append_text(out, true);
  append_text(out, std::pair<const char*, int>("key", 2));
  EXPECT_EQ(out, "word1key:2");
}

TEST_F(ResultFiles, MergedResultsAreThoseOfAllRanksInTheirOrder) {
  cluster c({.workers = 3, .servers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm, folder_);
    const auto rank = static_cast<int>(a.get_worker_id());
    a.paracel_dump_vector(list_type<int>{rank, rank + 10}, "v_", ",", false, true);
    a.paracel_dump_dict(dict_type<int, int>{{rank, rank * rank}}, "d_", false, true);
    a.paracel_sync();
    if (rank == 0) {
      EXPECT_EQ(text("v_merge"), "0,10\n1,11\n2,12\n");
      EXPECT_EQ(text("d_merge"), "0\t0\n1\t1\n2\t4\n");
    }
    a.paracel_sync();
    a.paracel_dump_vector(list_type<int>{rank + 20}, "v_", ",", true, true);
    a.paracel_sync();
    if (rank == 0) {
      EXPECT_EQ(text("v_0"), "0,10\n20\n");
      EXPECT_EQ(text("v_merge"), "0,10\n1,11\n2,12\n20\n21\n22\n") << "what was merged before stays before it";
    }
    a.paracel_sync();
    a.paracel_dump_vector(list_type<int>(rank == 1 ? 1 : 0, 5), "v_", ",", false, true);
    a.paracel_sync();
    if (rank == 0) {
      EXPECT_EQ(text("v_merge"), "5\n");
    }
  });
}

TEST_F(ResultFiles, ALargeResultIsJoinedInRoundsOfTheSizeAskedFor) {
  constexpr std::size_t ranks = 4;
  std::mt19937 random(3);
  std::vector<std::string> parts(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    if (r != 2) parts[r].resize(random() % 5000);  // one is empty
    for (auto& b : parts[r]) b = static_cast<char>(random());
    put("part_" + std::to_string(r), "before" + parts[r]);
  }
  std::string expected;
  for (const auto& p : parts) expected += p;
  for (const std::uint64_t chunk : {1000UL, 997UL, 1UL << 20U}) {
    cluster c({.workers = ranks, .servers = 1});
    c.run([&](Comm comm) {
      join_results(comm, path("part_" + std::to_string(comm.get_rank())), 6, path("whole"), false, chunk);
    });
    EXPECT_EQ(text("whole"), expected) << chunk;
  }
}

TEST_F(ResultFiles, FilesAreMergedByNameAndTheMergedOneIsNoPartOfItself) {
  cluster c({.workers = 1, .servers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm, folder_);
    put("in_0", "a\nb");
    put("in_1", "");
    put("in_2", std::string(700'000, 'x') + "\n");
    const auto all = "a\nb\n" + std::string(700'000, 'x') + "\n";
    for (int i = 0; i < 2; ++i) {
      a.files_merge(path("in_*"), "in_");
      EXPECT_EQ(text("in_merge"), all) << "in_merge itself matches the pattern the second time";
    }
    a.files_merge(list_type<str_type>{path("in_0"), path("in_0")}, "in_", true);
    EXPECT_EQ(text("in_merge"), all + "a\nb\na\nb\n");
    EXPECT_THROW(a.files_merge(path("nothing_*")), data_error);
    EXPECT_THROW(a.files_merge(path("in_0"), "../out_"), data_error);
  });
}

TEST_F(ResultFiles, DataOfAllWorkersIsFoldedInRankOrder) {
  cluster c({.workers = 3, .servers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm);
    std::string mine(1, static_cast<char>('a' + a.get_worker_id()));
    const auto join = [](const std::string& got, std::string& into) { into += got; };
    const auto at_zero = a.data_merge(mine, join, comm);
    EXPECT_EQ(at_zero, comm.get_rank() == 0 ? "abc" : "");
    const auto at_two = a.data_merge(mine, join, comm, 2);
    EXPECT_EQ(at_two, comm.get_rank() == 2 ? "abc" : "");
  });
}

TEST_F(ResultFiles, WhatIsPickledComesBackAndNothingElse) {
  cluster c({.workers = 2, .servers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm, folder_);
    const std::map<std::string, std::vector<std::pair<int, std::optional<double>>>> data{
        {"a", {{static_cast<int>(a.get_worker_id()), 0.1}, {2, std::nullopt}}}, {"b", {}}};
    const auto file = a.pkl_dat(data, "model_");
    EXPECT_EQ(file, path("model_" + std::to_string(a.get_worker_id()) + ".pkl"));
    auto back = data;
    back.clear();
    a.unpkl_dat(file, back);
    EXPECT_EQ(back, data);

    const auto numbers = a.pkl_dat(std::vector<float>{1, 2}, "numbers_");
    std::vector<double> wider;
    a.unpkl_dat(numbers, wider);
    EXPECT_THAT(wider, ElementsAre(1, 2));
    std::string no_text;
    EXPECT_THROW(a.unpkl_dat(numbers, no_text), type_error);
    a.paracel_sync();
    if (a.get_worker_id() != 0) return;
    EXPECT_THROW(a.unpkl_dat(put("empty", ""), wider), protocol_error);
    EXPECT_THROW(a.unpkl_dat(put("other", "\x7f some text"), wider), protocol_error);
    EXPECT_THROW(a.unpkl_dat(path("not-there"), wider), error);
    EXPECT_THROW((void)a.pkl_dat(wider, "../model_"), data_error);
  });
}

TEST_F(ResultFiles, ErrorsNameTheFile) {
  cluster c({.workers = 1, .servers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm, folder_);
    for (const auto* name : {"no/such/folder_", "../outside_", "/tmp/outside_"}) {
      try {
        a.paracel_dump_dict(dict_type<str_type, int>{{"a", 1}}, name);
        ADD_FAILURE() << name;
      } catch (const data_error& e) {
        EXPECT_THAT(e.what(), HasSubstr(name));
      }
    }
    EXPECT_THROW(a.paracel_dump_vector(list_type<int>{1}, std::string("nul\0_", 5)), data_error);
    std::filesystem::create_symlink("/dev/full", path("full_0.tmp"));
    EXPECT_THROW(a.paracel_dump_vector(list_type<int>(100'000, 1), "full_"), data_error) << "a full disk";
    std::filesystem::create_symlink("/dev/full", path("full_0.tmp"));
    EXPECT_THROW(a.paracel_dump_vector(list_type<int>{1}, "full_"), data_error) << "noticed when it is closed";
  });
}

TEST_F(ResultFiles, InputIsLoadedWholeInPartsOrLineByLine) {
  std::vector<std::string> lines;
  std::string content;
  for (int i = 0; i < 100; ++i) {
    lines.push_back("line " + std::to_string(i * i));
    content += lines.back() + "\n";
  }
  put("a.txt", content.substr(0, 600));
  const auto cut = content.substr(0, 600).rfind('\n') + 1;
  put("a.txt", content.substr(0, cut));
  put("b.txt", content.substr(cut));
  cluster c({.workers = 3, .servers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm);
    EXPECT_EQ(a.paracel_loadall(folder_), lines);
    EXPECT_EQ(a.paracel_loadall(list_type<str_type>{path("a.txt"), path("b.txt")}), lines);
    list_type<str_type> parts;
    int calls = 0;
    a.paracel_sequential_loadall(folder_, [&](const list_type<str_type>& part) {
      parts.insert(parts.end(), part.begin(), part.end());
      ++calls;
    });
    EXPECT_EQ(parts, lines);
    EXPECT_EQ(calls, 3);
    list_type<str_type> mine;
    a.paracel_load_handle(folder_, [&](const str_type& line) { mine.push_back(line); });
    EXPECT_EQ(mine, a.paracel_load(folder_));
    EXPECT_EQ(mine, a.paracel_load(folder_, parser_type()));
    list_type<str_type> together;
    for (const auto& part : comm.allgather(mine)) together.insert(together.end(), part.begin(), part.end());
    EXPECT_EQ(together, lines);
    EXPECT_THROW(a.paracel_load_handle(
                     folder_, [](const str_type&) {}, "diagonal"),
                 usage_error);
  });
}

TEST_F(ResultFiles, WhatCannotBeWrittenLeavesNoPartOfItselfAndWhatWasThereAsItWas) {
  put("old_0", "of before\n");
  put("log_0", "kept\n");
  cluster c({.workers = 1, .servers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm, folder_);
    const list_type<std::string> lines(10000, "a line of some length");
    const test::file_size_limit full(20000);
    for (const char* name : {"rows_", "old_"}) {
      try {
        a.paracel_dump_vector(lines, name, "\n");
        ADD_FAILURE() << name << " was written";
      } catch (const data_error& e) {
        EXPECT_EQ(std::string(e.what()), path(std::string(name) + "0") + ": cannot be written: File too large");
      }
    }
    EXPECT_THROW(a.paracel_dump_vector(lines, "log_", "\n", true), data_error);
    EXPECT_THROW(a.paracel_dump_vector(lines, "new_log_", "\n", true), data_error);
    EXPECT_THROW(a.files_merge(list_type<std::string>(5000, path("old_0")), "joined_"), data_error);
  });
  std::vector<std::string> names;
  for (const auto& e : std::filesystem::directory_iterator(folder_))
    if (e.path().filename() != ".paracel") names.push_back(e.path().filename());
  EXPECT_THAT(names, testing::UnorderedElementsAre("old_0", "log_0"));
  EXPECT_EQ(text("old_0"), "of before\n");
  EXPECT_EQ(text("log_0"), "kept\n");
}

TEST_F(ResultFiles, ARunRemovesTheResultsOfTheRunBeforeButNotWhatWasAppendedTo) {
  for (const std::size_t workers : {3U, 2U}) {
    // A job's folder identifies jobs by their ids, which these tests share.
    std::filesystem::remove(path(".paracel/job"));
    cluster c({.workers = workers, .servers = 1});
    c.run([&](Comm comm) {
      paralg a("", comm, folder_);
      a.paracel_dump_vector(list_type<int>{1}, "labels_");
      a.paracel_dump_vector(list_type<int>{1}, "log_", ",", true);
      a.pkl_dat(1, "kept");
    });
  }
  EXPECT_FALSE(std::filesystem::exists(path("labels_2")));
  EXPECT_TRUE(std::filesystem::exists(path("labels_1")));
  EXPECT_EQ(text("log_1"), "1\n1\n");
  EXPECT_EQ(text("log_2"), "1\n");
  EXPECT_TRUE(std::filesystem::exists(path("kept2.pkl")));
}

}  // namespace
}  // namespace paracel
