// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <paracel/paralg.hpp>

#include "alg/common/output/model_file.hpp"
#include "alg/common/output/npy.hpp"
#include "test/support/cluster.hpp"

namespace paracel::alg {
namespace {

using test::cluster;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class ModelFiles : public testing::Test {
 protected:
  ModelFiles() {
    std::string name = (std::filesystem::temp_directory_path() / "paracel-model-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder");
    folder_ = name;
  }
  ~ModelFiles() override { std::filesystem::remove_all(folder_); }

  /// Three workers with two rows, none and one; ids are numbers or names.
  void write(result_format format, bool names, bool one = false) const {
    cluster c({.workers = 3, .servers = 1});
    c.run([&](Comm comm) {
      paralg job("", comm, folder_);
      job.set_one_output_file(one);
      model_writer model(job, "toy", format);
      const auto rank = comm.get_rank();
      std::vector<double> rows;
      auto ids = id_list::empty(!names);
      const auto name = [&](std::uint64_t number) {
        if (names) ids.push_back("user " + std::to_string(number));
        else ids.push_back(number);
      };
      if (rank == 0) {
        rows = {1, 2, 3, 4};
        name(~std::uint64_t{0} - 1);
        name(7);
      }
      if (rank == 2) {
        rows = {0.1, -1e300};
        name(9);
      }
      model.add("weights", std::vector<double>{0.1, 0, -2});
      model.add("table", std::span<const std::int64_t>(std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}), {3, 2});
      model.add_rows("users", std::span<const double>(rows), {2}, &ids);
      const std::vector<std::uint64_t> labels(rows.size() / 2, rank);
      model.add_rows("labels", std::span<const std::uint64_t>(labels));
      model.fields().add("objective", 0.5);
      model.settings().add("k", 2).add("name", "a \"b\"");
      model.finish();
    });
  }
  void check(bool names) const {
    const model_reader model(folder_, "toy");
    EXPECT_EQ(model.field<double>("objective"), 0.5);
    EXPECT_EQ(model.field<int>("settings.k"), 2);
    EXPECT_EQ(model.field<std::string>("settings.name"), "a \"b\"");
    EXPECT_EQ(model.field<int>("settings.none", 5), 5);
    EXPECT_THAT(model.read<double>("weights"), ElementsAre(0.1, 0, -2));
    EXPECT_THAT(model.shape("weights"), ElementsAre(3));
    EXPECT_THAT(model.read<std::int64_t>("table"), ElementsAre(1, 2, 3, 4, 5, 6));
    EXPECT_THAT(model.shape("table"), ElementsAre(3, 2));
    EXPECT_THAT(model.read<double>("users"), ElementsAre(1, 2, 3, 4, 0.1, -1e300));
    EXPECT_THAT(model.shape("users"), ElementsAre(3, 2));
    EXPECT_THAT(model.read<std::uint64_t>("labels"), ElementsAre(0, 0, 2));
    const auto ids = model.ids("users");
    ASSERT_EQ(ids.size(), 3U);
    EXPECT_EQ(ids.text(0), names ? "user 18446744073709551614" : "18446744073709551614");
    EXPECT_EQ(ids.text(2), names ? "user 9" : "9");
    EXPECT_TRUE(model.has("labels"));
    EXPECT_FALSE(model.has("none"));
    EXPECT_THROW((void)model.read<double>("none"), data_error);
    EXPECT_THROW((void)model.ids("labels"), data_error);
    EXPECT_THROW((void)model.field<double>("none"), data_error);
  }
  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream in(folder_ + "/" + name, std::ios::binary);
    EXPECT_TRUE(in) << name;
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(const std::string& name, const std::string& what) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << what;
  }
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& e : std::filesystem::directory_iterator(folder_)) names.push_back(e.path().filename());
    return names;
  }
  [[nodiscard]] std::string refusal(const std::string& array) const {
    try {
      (void)model_reader(folder_, "toy").read<double>(array);
    } catch (const data_error& e) {
      return e.what();
    }
    return "nothing";
  }

  std::string folder_;
};

TEST_F(ModelFiles, AModelOfArraysIsReadBack) {
  for (const bool names : {false, true}) {
    write(result_format::npy, names);
    check(names);
    EXPECT_THAT(read_npy(folder_ + "/users_0.npy").shape, ElementsAre(2, 2));
    EXPECT_THAT(read_npy(folder_ + "/users_1.npy").shape, ElementsAre(0, 2));
    EXPECT_THAT(read_npy(folder_ + "/labels_2.npy").shape, ElementsAre(1));
  }
  EXPECT_EQ(text("users_id_0.txt"), "user 18446744073709551614\nuser 7\n");
}

TEST_F(ModelFiles, AModelInTextIsReadBack) {
  for (const bool names : {false, true}) {
    write(result_format::text, names);
    check(names);
  }
  EXPECT_EQ(text("weights_0"), "0.1|0|-2\n");
  EXPECT_EQ(text("table_0"), "0\t1|2\n1\t3|4\n2\t5|6\n");
  EXPECT_EQ(text("users_2"), "user 9\t0.1|-1e+300\n");
  EXPECT_EQ(text("labels_2"), "2\t2\n");
}

TEST_F(ModelFiles, AModelOfOneFileAnArrayIsReadBack) {
  for (const bool names : {false, true}) {
    write(result_format::npy, names, true);
    check(names);
    EXPECT_THAT(read_npy(folder_ + "/users.npy").shape, ElementsAre(3, 2)) << "one header, with all rows";
    EXPECT_THAT(read_npy(folder_ + "/users.npy").as<double>(), ElementsAre(1, 2, 3, 4, 0.1, -1e300));
    EXPECT_THAT(read_npy(folder_ + "/labels.npy").shape, ElementsAre(3));
    EXPECT_THAT(read_npy(folder_ + "/table.npy").shape, ElementsAre(3, 2));
    EXPECT_THAT(text("model.json"), HasSubstr("\"files\": [\"users.npy\"], \"rows\": [3]"));
    const std::string ids = names ? "users_id.txt" : "users_id.npy";
    EXPECT_THAT(text("model.json"), HasSubstr("\"ids\": [\"" + ids + "\"]"));
    EXPECT_EQ(std::filesystem::exists(folder_ + "/" + ids), true);
    EXPECT_THAT(files(), Not(Contains(testing::ContainsRegex("_[0-9]"))));
    EXPECT_THAT(files(), Not(Contains(HasSubstr(".tmp"))));
  }
  EXPECT_EQ(text("users_id.txt"), "user 18446744073709551614\nuser 7\nuser 9\n");
  write(result_format::text, true, true);
  check(true);
  EXPECT_EQ(text("weights.txt"), "0.1|0|-2\n");
  EXPECT_EQ(text("users.txt"), "user 18446744073709551614\t1|2\nuser 7\t3|4\nuser 9\t0.1|-1e+300\n");
  EXPECT_EQ(text("labels.txt"), "0\t0\n1\t0\n2\t2\n");
}

TEST_F(ModelFiles, WhatIsNoModelIsSaid) {
  EXPECT_THROW(model_reader(folder_, "toy"), data_error);
  put("model.json", "{\"format\": \"npy\"}");
  EXPECT_THROW(model_reader(folder_, "toy"), data_error);
  write(result_format::npy, false);
  try {
    model_reader(folder_ + "/model.json", "other");
    ADD_FAILURE() << "a model of another algorithm was taken";
  } catch (const data_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("found a model of toy, want one of other"));
  }
  put("weights_0.npy", "oops");
  EXPECT_THAT(refusal("weights"), HasSubstr("weights_0.npy: found another format"));
  write_npy(folder_ + "/weights_0.npy", std::vector<double>{1});
  EXPECT_THAT(refusal("weights"), HasSubstr("found 1 elements in its files, want the shape (3,)"));
  write_npy(folder_ + "/weights_0.npy", std::vector<float>{1, 2, 3});
  EXPECT_THAT(refusal("weights"), HasSubstr("found elements of type <f4, want <f8"));
  std::filesystem::remove(folder_ + "/weights_0.npy");
  EXPECT_THAT(refusal("weights"), HasSubstr("cannot be read"));
  write(result_format::text, false);
  put("weights_0", "0.1|x|2\n");
  EXPECT_THAT(refusal("weights"), HasSubstr("weights_0:1: found \"x|2\", want numbers"));
}

}  // namespace
}  // namespace paracel::alg
