// SPDX-License-Identifier: BSD-3-Clause
#include "worker/results/output_folder.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "paracel/error.hpp"
#include "test/support/file_size_limit.hpp"
#include "test/support/temporary_folder.hpp"

namespace {

namespace fs = std::filesystem;
using paracel::output_folder;

class OutputFolder : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text = "x") const { std::ofstream(folder_ / name) << text; }
  [[nodiscard]] bool is_there(const std::string& name) const { return fs::exists(fs::symlink_status(folder_ / name)); }
  /// A run of `workers` that writes labels_<rank>.
  void run(std::uint64_t job, std::uint32_t workers, const std::string& program = "kmeans") const {
    for (std::uint32_t w = 0; w < workers; ++w) {
      output_folder out(folder_.path(), {job, w, program});
      out.record("labels_" + std::to_string(w));
      write("labels_" + std::to_string(w), std::to_string(job));
    }
  }

  const paracel::test::temporary_folder folder_{"output_folder_"};
};

TEST_F(OutputFolder, ARunRemovesWhatTheLastRunOfTheSameProgramListedAndNothingElse) {
  write("labels_7", "somebody's");
  run(1, 4);
  write("other_0");
  run(2, 2);
  EXPECT_TRUE(is_there("labels_0"));
  EXPECT_TRUE(is_there("labels_1"));
  EXPECT_FALSE(is_there("labels_2"));
  EXPECT_FALSE(is_there("labels_3"));
  EXPECT_TRUE(is_there("labels_7"));
  EXPECT_TRUE(is_there("other_0"));
  run(3, 1, "wc");
  EXPECT_TRUE(is_there("labels_1")) << "another program's";
}

TEST_F(OutputFolder, AJobThatRunsIsNamedToASecondOne) {
  const output_folder first(folder_.path(), {1, 0, "kmeans"});
  const output_folder own_second_worker(folder_.path() + "/", {1, 1, "kmeans"});
  try {
    const output_folder second(folder_.path(), {2, 0, "kmeans"});
    FAIL() << "accepted";
  } catch (const paracel::config_error& e) {
    const auto want = "output folder " + folder_.path() + " belongs to a job that is running (job 0000000000000001,";
    EXPECT_EQ(std::string(e.what()).find(want), 0U) << e.what();
  }
}

TEST_F(OutputFolder, WhatARunReadsStaysAndIsRemovedByTheNextOne) {
  {
    output_folder out(folder_.path(), {1, 0, "lr"});
    for (const char* name : {"model.json", "theta_0", "pred_0"}) {
      out.record(name);
      write(name);
    }
    write("model.json", R"({"arrays": {"theta": {"files": ["theta_0"]}}})");
  }
  output_folder::keep({folder_.path()});
  run(2, 1, "lr");
  EXPECT_TRUE(is_there("model.json"));
  EXPECT_TRUE(is_there("theta_0"));
  EXPECT_FALSE(is_there("pred_0"));
  std::ifstream list(folder_ / ".paracel" / "lr.0.files");
  const std::string names{std::istreambuf_iterator<char>(list), {}};
  EXPECT_NE(names.find("theta_0\n"), std::string::npos) << names;
}

TEST_F(OutputFolder, NamesThatAFullDiskHasNoSpaceForAreListedWhenThereIsSome) {
  {
    output_folder out(folder_.path(), {1, 0, "kmeans"});
    for (const char* name : {"second_one", "third", "seco"}) write(name);
    out.record(std::string(980, 'x'));
    testing::internal::CaptureStderr();
    {
      const paracel::test::file_size_limit full(985);
      out.record("second_one");
      out.record("third");
      EXPECT_EQ(fs::file_size(folder_ / ".paracel" / "kmeans.0.files"), 981U) << "no part of a name";
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "worker 0: warning: " + folder_.path() +
                  "/.paracel/kmeans.0.files: cannot be written: No space left on device; the next run may not remove "
                  "second_one\n");
  }
  run(2, 1);
  for (const char* name : {"second_one", "third"}) EXPECT_FALSE(is_there(name)) << name;
  EXPECT_TRUE(is_there("seco"));
}

TEST_F(OutputFolder, ANameThatIsCutOffRemovesNothing) {
  run(1, 1);
  std::ofstream(folder_ / ".paracel" / "kmeans.0.files", std::ios::app) << "lab";
  write("lab");
  run(2, 1);
  EXPECT_TRUE(is_there("lab"));
}

TEST_F(OutputFolder, AListCannotNameWhatLiesElsewhere) {
  const auto outside = folder_.path() + "_outside";
  fs::create_directory(outside);
  std::ofstream(outside + "/precious") << "x";
  run(1, 1);
  fs::create_directory_symlink(outside, folder_ / "link");
  std::ofstream(folder_ / ".paracel" / "kmeans.0.files", std::ios::app)
      << "../" << fs::path(outside).filename().string() << "/precious\nlink/precious\n"
      << outside << "/precious\n";
  run(2, 1);
  EXPECT_TRUE(fs::exists(outside + "/precious"));
  fs::remove_all(outside);
}

}  // namespace
