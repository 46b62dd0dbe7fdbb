// SPDX-License-Identifier: BSD-3-Clause
//
// Samples read by several workers at once: the same rows in the same order whatever their number, and one error for all.
#include <paracel/load.hpp>

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "test/support/cluster.hpp"

namespace {

namespace fs = std::filesystem;
using paracel::sample_options;
using paracel::sample_rows;
using paracel::test::cluster;

class LoadSamples : public ::testing::Test {
 protected:
  LoadSamples() {
    std::string pattern = (fs::temp_directory_path() / "load_samples_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~LoadSamples() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }

  /// What all workers have, in one.
  static sample_rows load(std::size_t workers, const std::vector<std::string>& names, const sample_options& options) {
    cluster job({.workers = workers});
    std::vector<sample_rows> parts(workers);
    job.run([&](paracel::Comm comm) { parts[comm.get_rank()] = paracel::load_samples(comm, names, options); });
    sample_rows all = parts[0];
    for (std::size_t w = 0; w < workers; ++w) {
      const auto& p = parts[w];
      EXPECT_EQ(p.columns, all.columns);
      EXPECT_EQ(p.dense, all.dense);
      EXPECT_EQ(p.names, all.names);
      EXPECT_EQ(p.rows_total, all.rows_total);
      if (w == 0) continue;
      EXPECT_EQ(p.first_row, all.row_count);
      all.row_count += p.row_count;
      for (std::size_t i = 1; i < p.row_begin.size(); ++i) all.row_begin.push_back(all.value.size() + p.row_begin[i]);
      all.column.insert(all.column.end(), p.column.begin(), p.column.end());
      all.value.insert(all.value.end(), p.value.begin(), p.value.end());
      all.label.insert(all.label.end(), p.label.begin(), p.label.end());
    }
    EXPECT_EQ(all.row_count, all.rows_total);
    return all;
  }

  /// The error that every worker has; fails when they have different ones.
  static std::string error_of(std::size_t workers, const std::vector<std::string>& names,
                              const sample_options& options = {}) {
    cluster job({.workers = workers});
    std::mutex mutex;
    std::vector<std::string> said;
    job.run([&](paracel::Comm comm) {
      try {
        paracel::load_samples(comm, names, options);
      } catch (const paracel::data_error& e) {
        const std::lock_guard lock(mutex);
        said.emplace_back(e.what());
      }
    });
    EXPECT_EQ(said.size(), workers);
    for (const auto& s : said) EXPECT_EQ(s, said.front());
    return said.empty() ? "accepted" : said.front();
  }

  fs::path folder_;
};

TEST_F(LoadSamples, RowsAreThoseOfTheFileWhateverTheNumberOfWorkers) {
  std::string text;
  for (int i = 0; i < 97; ++i) text += std::to_string(i) + ".5 1:" + std::to_string(i) + " " + std::to_string(i % 7 + 2) + ":1\n";
  const auto name = write("a.libsvm", text);
  sample_options real;
  real.label = sample_options::label_rule::real;
  const auto one = load(1, {name}, real);
  EXPECT_EQ(one.rows_total, 97U);
  EXPECT_EQ(one.columns, 8U);
  EXPECT_EQ(one.label[96], 96.5);
  for (const std::size_t workers : {2U, 3U, 5U}) {
    const auto many = load(workers, {name}, real);
    EXPECT_EQ(many.value, one.value);
    EXPECT_EQ(many.column, one.column);
    EXPECT_EQ(many.row_begin, one.row_begin);
    EXPECT_EQ(many.label, one.label);
  }
}

TEST_F(LoadSamples, AFileSmallerThanTheNumberOfWorkersLoads) {
  const auto name = write("tiny", "1,1\n");
  for (const std::size_t workers : {1U, 2U, 3U, 5U}) EXPECT_EQ(load(workers, {name}, {}).value, std::vector<double>{1});
}

TEST_F(LoadSamples, EveryWorkerHasTheErrorOfTheFirstRank) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += i == 17 || i == 35 ? "x,1\n" : "1,1\n";
  const auto name = write("bad.csv", text);
  for (const std::size_t workers : {1U, 2U, 3U, 5U}) {
    EXPECT_EQ(error_of(workers, {name}), name + ":18:1: found \"x\", want a number");
  }
  EXPECT_EQ(error_of(3, {name + "x"}), name + "x: no such file or folder");
  const auto labels = write("labels", "-1 1:1\n-1 1:1\n0 1:1\n0 1:1\n");
  EXPECT_EQ(error_of(2, {labels}), labels + ": found labels 0 and -1, want 0 and 1, or -1 and +1");
}

TEST_F(LoadSamples, AHeaderOfEveryFileIsLeftOutEvenBehindBlankLines) {
  const auto a = write("a.csv", "\n\n\n\n\n\n\n\nx;y;t\r\n1;2;3\r\n4;5;6\r\n");
  const auto b = write("b.csv", "x;y;t\n7;8;9");
  sample_options real;
  real.label = sample_options::label_rule::real;
  for (const std::size_t workers : {1U, 2U, 3U, 5U}) {
    const auto rows = load(workers, {a, b}, real);
    EXPECT_EQ(rows.value, (std::vector<double>{1, 2, 4, 5, 7, 8}));
    EXPECT_EQ(rows.label, (std::vector<double>{3, 6, 9}));
    EXPECT_EQ(rows.names, (std::vector<std::string>{"x", "y"}));
  }
}

}  // namespace
