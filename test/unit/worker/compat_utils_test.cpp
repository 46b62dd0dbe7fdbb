// SPDX-License-Identifier: BSD-3-Clause
#include "utils.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "load.hpp"
#include "proxy.hpp"
#include "utils/decomp.hpp"

namespace {

using strings = std::vector<std::string>;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

/// A folder that is removed at the end of the test.
struct temporary_folder {
  temporary_folder() { std::filesystem::create_directories(path); }
  ~temporary_folder() { std::filesystem::remove_all(path); }
  [[nodiscard]] std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(path / name) << text;
    return (path / name).string();
  }
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("compat_utils_test-" + std::to_string(::getpid()));
};

TEST(CompatStrings, SplitLeavesOutEmptyParts) {
  EXPECT_EQ(paracel::str_split("1.5,,2,", ','), (strings{"1.5", "2"}));
  EXPECT_EQ(paracel::str_split(" a\tb ", " \t"), (strings{"a", "b"}));
  EXPECT_EQ(paracel::str_split("", ','), strings{});
  EXPECT_EQ(paracel::str_split(",,", ','), strings{});
}

TEST(CompatStrings, SplitByWordKeepsEmptyPartsButTheLast) {
  EXPECT_EQ(paracel::str_split_by_word("a_PARACEL__PARACEL_b_PARACEL_", "_PARACEL_"), (strings{"a", "", "b"}));
  EXPECT_EQ(paracel::str_split_by_word("abc", "_PARACEL_"), strings{"abc"});
  EXPECT_EQ(paracel::str_split_by_word("", ","), strings{});
}

TEST(CompatStrings, SplitByWordTakesARegularExpression) {
  EXPECT_EQ(paracel::str_split_by_word("1:2, 3|4", "[:,|] *"), (strings{"1", "2", "3", "4"}));
  EXPECT_THROW(paracel::str_split_by_word("a", "["), paracel::usage_error);
}

TEST(CompatStrings, JoinIsTheReverseOfSplit) {
  EXPECT_EQ(paracel::str_join({"a", "b", "c"}, "::"), "a::b::c");
  EXPECT_EQ(paracel::str_join({}, "::"), "");
}

TEST(CompatStrings, BeginningsAndEnds) {
  EXPECT_TRUE(paracel::startswith("theta_0", "theta"));
  EXPECT_FALSE(paracel::startswith("a_theta", "theta"));
  EXPECT_TRUE(paracel::endswith("theta.csv", ".csv"));
  EXPECT_FALSE(paracel::endswith("csv", "theta.csv"));
}

TEST(CompatStrings, AnIdIsAllDigits) {
  EXPECT_EQ(paracel::cvt(std::string("18446744073709551615")), 18446744073709551615ULL);
  EXPECT_EQ(paracel::cvt(paracel::default_id_type{7}), "7");
  for (const char* wrong : {"", "-1", "12x", " 1", "18446744073709551616"})
    EXPECT_THROW(paracel::cvt(std::string(wrong)), std::invalid_argument) << wrong;
}

TEST(CompatFiles, KnowsFilesFromFolders) {
  const temporary_folder folder;
  const auto name = folder.file("a", "1\n");
  EXPECT_TRUE(paracel::isfile(name));
  EXPECT_FALSE(paracel::isdir(name));
  EXPECT_TRUE(paracel::isdir(folder.path.string()));
  EXPECT_FALSE(paracel::isfile(name + "-not-there"));
  EXPECT_EQ(paracel::todir("x"), "x/");
  EXPECT_EQ(paracel::todir("x/"), "x/");
}

TEST(CompatFiles, TailGivesTheLastLinesInOrder) {
  const temporary_folder folder;
  const auto name = folder.file("numbers", "1\n2\n3\n4\n5");
  const auto number = [](const std::string& line) { return std::stoi(line); };
  EXPECT_THAT(paracel::tail<int>(name, 2, number), ElementsAre(4, 5));
  EXPECT_THAT(paracel::tail<int>(name, 9, number), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THROW(paracel::tail<int>(name + "-not-there", 2, number), paracel::data_error);
}

TEST(CompatFiles, WhatIsPickledComesBack) {
  const temporary_folder folder;
  const auto name = (folder.path / "data").string();
  const std::map<std::string, std::vector<double>> data{{"a", {0.1, -2}}, {"b", {}}};
  paracel::pkl_dat_sequential(data, name);
  std::map<std::string, std::vector<double>> back;
  paracel::unpkl_dat_sequential(name, back);
  EXPECT_EQ(back, data);
}

TEST(CompatFiles, TheDateGoesBeforeTheSlash) {
  const auto name = paracel::add_folder_suffix_with_date("out/");
  EXPECT_EQ(name, paracel::add_folder_suffix_with_date("out"));
  EXPECT_THAT(name, testing::MatchesRegex("out20[0-9]+/"));
}

TEST(CompatNumbers, DotProductRefusesOtherLengths) {
  EXPECT_DOUBLE_EQ(paracel::dot_product({1, 2, 3}, {4, 5, 6}), 32);
  EXPECT_THROW((void)paracel::dot_product({1}, {1, 2}), paracel::error);
}

TEST(CompatNumbers, RandomNumbersLieInTheOpenIntervalAndAreTheSameForEveryWorker) {
  std::vector<double> one;
  std::vector<double> other;
  std::thread([&] { one = paracel::random_double_list(1000, 3); }).join();
  std::thread([&] { other = paracel::random_double_list(1000, 3); }).join();
  EXPECT_EQ(one, other);
  EXPECT_THAT(one, Each(testing::AllOf(testing::Gt(0), testing::Lt(3))));
  EXPECT_GT(*std::max_element(one.begin(), one.end()), 2.9);
}

TEST(CompatNumbers, RingSearchFindsTheNextPointAndWraps) {
  const std::vector<int> points{10, 20, 30};
  EXPECT_EQ(paracel::ring_bsearch(points, 5), 0U);
  EXPECT_EQ(paracel::ring_bsearch(points, 20), 1U);
  EXPECT_EQ(paracel::ring_bsearch(points, 21), 2U);
  EXPECT_EQ(paracel::ring_bsearch(points, 31), 0U);
}

TEST(CompatPacker, BringsBackNumbersListsTextAndBags) {
  std::string bytes;
  paracel::packer<std::vector<double>>({1.5, 2.5}).pack(bytes);
  EXPECT_EQ(paracel::packer<std::vector<double>>().unpack(bytes), (std::vector<double>{1.5, 2.5}));
  paracel::packer<>("text").pack(bytes);
  EXPECT_EQ(paracel::packer<>().unpack(bytes), "text");
  EXPECT_THROW((void)paracel::packer<double>().unpack(bytes), paracel::type_error);
  EXPECT_THROW((void)paracel::packer<double>().unpack(std::string()), paracel::protocol_error);

  paracel::bag_type<int> bag;
  bag.put(3);
  bag.put(4);
  paracel::packer<paracel::bag_type<int>>(bag).pack(bytes);
  EXPECT_EQ(paracel::packer<paracel::bag_type<int>>().unpack(bytes).get_vec(), (std::vector<int>{3, 4}));

  msgpack::sbuffer buffer;
  paracel::packer<int>(7).pack(buffer);
  EXPECT_EQ(paracel::packer<int>().unpack(buffer), 7);
}

TEST(CompatProxy, OldKindsOfFiltersAreMade) {
  const paracel::filter_with_key_result by_key =
      paracel::filter_with_key_proxy([](const std::string& key) { return key == "theta"; });
  const paracel::filter_result by_value = paracel::filter_proxy([](const std::string&, double v) { return v > 0; });
  EXPECT_EQ(by_key.flags & paracel::abi::takes_value, 0U);
  EXPECT_NE(by_value.flags & paracel::abi::takes_value, 0U);
}

TEST(CompatErrors, AbortThrowsWithThePlace) {
  try {
    ERROR_ABORT("method " << 7 << " is not known");
    FAIL();
  } catch (const paracel::error& e) {
    EXPECT_THAT(e.what(), HasSubstr("compat_utils_test.cpp:"));
    EXPECT_THAT(e.what(), HasSubstr("method 7 is not known"));
  }
}

TEST(CompatFutures, WaitGivesTheAnswerOfTheUpdate) {
  std::promise<bool> promise;
  paracel::async_functor_type future = promise.get_future();
  promise.set_value(true);
  EXPECT_TRUE(paracel::wait(future));
}

TEST(CompatParsers, TakeLinesApart) {
  auto a = paracel::gen_parser(paracel::parser_a);
  EXPECT_EQ(a("1001 1 2"), (strings{"1001", "1", "2"}));
  auto bar = paracel::gen_parser(paracel::parser_a, '|');
  EXPECT_EQ(bar("1001|1|2"), (strings{"1001", "1", "2"}));
  auto b = paracel::gen_parser(paracel::parser_b, ' ', '|');
  EXPECT_EQ(b("a b:0.1|c:0.2"), (strings{"a", "b:0.1", "c:0.2"}));
  EXPECT_THROW((void)b("alone"), paracel::data_error);
  EXPECT_EQ(paracel::parser_a_int("3,-4", ','), (std::vector<int>{3, -4}));
  const auto own = [](const std::string& line) { return strings{line, "x"}; };
  EXPECT_EQ(paracel::gen_parser(own)("q"), (strings{"q", "x"}));
}

TEST(CompatDecomp, GridsAreAsSquareAsDivisorsAllow) {
  const auto grid = [](int np, bool row_master) {
    int x = 0, y = 0;
    paracel::npfact2d(np, x, y, row_master);
    return std::pair(x, y);
  };
  EXPECT_EQ(grid(12, true), std::pair(3, 4));
  EXPECT_EQ(grid(12, false), std::pair(4, 3));
  EXPECT_EQ(grid(7, true), std::pair(7, 1));
  EXPECT_EQ(grid(7, false), std::pair(1, 7));
  EXPECT_EQ(grid(1, true), std::pair(1, 1));
}

TEST(CompatMatrices, GoToVectorsAndFilesAndBack) {
  const temporary_folder folder;
  Eigen::MatrixXd m(2, 3);
  m << 1, 2, 3, 4, 5, 0.1;
  EXPECT_EQ(paracel::mat2vec(m), (std::vector<double>{1, 4, 2, 5, 3, 0.1}));
  EXPECT_EQ(paracel::vec2mat(paracel::mat2vec(m), 3), m);
  EXPECT_THROW((void)paracel::vec2mat(std::vector<double>(5), 3), paracel::error);
  EXPECT_EQ(paracel::evec2vec(paracel::vec2evec({1, 0.5})), (std::vector<double>{1, 0.5}));
  Eigen::MatrixXd again;
  paracel::pkl_dat_sequential(m, (folder.path / "m").string());
  paracel::unpkl_dat_sequential((folder.path / "m").string(), again, 3);
  EXPECT_EQ(again, m);

  auto sparse = paracel::vec2mat({{{1, 2}, 0.5}, {{0, 0}, 3}, {{1, 2}, 0.25}});
  EXPECT_EQ(sparse.rows(), 2);
  EXPECT_EQ(sparse.coeff(1, 2), 0.75);
  const auto twice = [](int, int, double& w) { w *= 2; };
  paracel::traverse_matrix(sparse, twice);
  Eigen::SparseMatrix<double, Eigen::RowMajor> read;
  paracel::pkl_dat_sequential(sparse, (folder.path / "s").string());
  paracel::unpkl_dat_sequential((folder.path / "s").string(), read);
  EXPECT_EQ(paracel::mat2vec(read), paracel::mat2vec(sparse));
  EXPECT_EQ(read.coeff(1, 2), 1.5);
  Eigen::SparseVector<double> v(5);
  v.coeffRef(3) = 7;
  double sum = 0;
  const auto add = [&](int i, double w) { sum += i * w; };
  paracel::traverse_vector(v, add);
  EXPECT_EQ(sum, 21);
}

}  // namespace
