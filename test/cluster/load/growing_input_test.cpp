// SPDX-License-Identifier: BSD-3-Clause
//
// Inputs that change between the moment when rank 0 lists them and the moment when they are read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <paracel/paralg.hpp>
#include <paracel/samples.hpp>

#include "load/input/input.hpp"
#include "test/support/cluster.hpp"
#include "test/support/document_samples.hpp"
#include "test/support/temporary_folder.hpp"

namespace {

namespace fs = std::filesystem;
using paracel::data_error;
using paracel::input_set;
using paracel::test::cluster;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::ResultOf;
using testing::StartsWith;

constexpr std::size_t workers = 4;

/// Matches a text with that sample of the document, apart from numbers.
auto is_sample_of_document(std::size_t i) {
  const auto samples = paracel::test::document_samples("doc/loading.md", "growing_input_test");
  return ResultOf(paracel::test::without_numbers, HasSubstr(samples.at(i)));
}

class GrowingInput : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text, std::ios::openmode how = std::ios::trunc) const {
    std::ofstream(folder_ / name, std::ios::binary | how) << text;
    return (folder_ / name).string();
  }
  /// A file last modified an hour ago: timestamps of a file system have a resolution of a few milliseconds.
  std::string write_long_ago(const std::string& name, const std::string& text) const {
    auto path = write(name, text);
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
    return path;
  }
  static std::string lines(int first, int last) {
    std::string text;
    for (int i = first; i < last; ++i) text += "line " + std::to_string(i) + '\n';
    return text;
  }

  /// What four workers read from `name`, concatenated, when `change` happens after rank 0 has listed the input; or the
  /// error, which must be the same on every worker.
  static std::string read_after(const std::string& name, const std::function<void()>& change) {
    cluster job({.workers = workers});
    std::vector<std::string> parts(workers);
    std::mutex mutex;
    std::vector<std::string> errors;
    job.run([&](paracel::Comm comm) {
      const auto rank = comm.get_rank();
      bool first = true;
      try {
        paracel::visit_text(comm, {name}, [&](std::string_view text, const paracel::text_failure&) {
          if (std::exchange(first, false) && rank == 0) change();
          parts[rank] += text;
        });
      } catch (const data_error& e) {
        const std::lock_guard lock(mutex);
        errors.emplace_back(e.what());
      }
    });
    if (!errors.empty()) {
      EXPECT_EQ(errors, std::vector<std::string>(workers, errors.front()));
      return errors.front();
    }
    std::string all;
    for (const auto& p : parts) all += p;
    return all;
  }

  const paracel::test::temporary_folder folder_{"growing_input_"};
};

TEST_F(GrowingInput, AllWorkersReadWhatRankZeroSawHoweverMuchIsAppended) {
  const auto text = lines(0, 1000);
  const auto name = write("app.log", text);
  cluster job({.workers = workers});
  std::vector<std::string> parts(workers);
  job.run([&](paracel::Comm comm) {
    input_set input(comm, {name});
    comm.synchronize();
    if (comm.get_rank() == 0) write("app.log", lines(1000, 5000), std::ios::app);
    comm.synchronize();
    input.visit(comm.get_rank(), workers, [&](const paracel::input_piece& p) { parts[comm.get_rank()] += p.text(); });
    EXPECT_EQ(input.head(0, 1U << 20U), text);
  });
  EXPECT_EQ(parts[0] + parts[1] + parts[2] + parts[3], text);
  for (const auto& p : parts) EXPECT_GT(p.size(), text.size() / 5);
}

TEST_F(GrowingInput, EachWayToLoadReadsWhatRankZeroSaw) {
  // Every worker appends before it loads: a worker with its own listing would find more than those before it.
  for (const auto way : {0, 1, 2}) {
    const auto name = write("app.log", lines(0, 1000));
    cluster job({.workers = workers});
    std::vector<std::size_t> here(workers);
    job.run([&](paracel::Comm comm) {
      const auto rank = comm.get_rank();
      paracel::paralg a(comm);
      write("app.log", lines(1000, 1400), std::ios::app);
      if (way == 0) here[rank] = a.paracel_load(name).size();
      if (way == 1) a.paracel_load_handle(name, [&](const std::string&) { ++here[rank]; });
      if (way == 2) paracel::visit_lines(comm, {name}, [&](std::string&&) { ++here[rank]; });
      a.paracel_sync();
    });
    const auto sum = here[0] + here[1] + here[2] + here[3];
    EXPECT_EQ((sum - 1000) % 400, 0U) << way << ": " << sum;
  }
}

TEST_F(GrowingInput, AWorkerMayLoadAllLinesAlone) {
  const auto name = write("app.log", lines(0, 1000));
  cluster job({.workers = workers});
  job.run([&](paracel::Comm comm) {
    paracel::paralg a(comm);
    if (comm.get_rank() != 0) return;
    EXPECT_EQ(a.paracel_loadall(name).size(), 1000U);
    std::size_t found = 0;
    a.paracel_sequential_loadall(name, [&](std::vector<std::string>& part) {
      found += part.size();
      write("app.log", lines(1000, 1400), std::ios::app);
    });
    EXPECT_EQ(found, 1000U);
  });
}

TEST_F(GrowingInput, ALineThatHadBegunIsReadToItsEnd) {
  const auto name = write("app.log", "one\ntwo\nthr");
  cluster job({.workers = workers});
  std::vector<std::string> parts(workers);
  job.run([&](paracel::Comm comm) {
    input_set input(comm, {name});
    comm.synchronize();
    if (comm.get_rank() == 0) write("app.log", "ee\nfour\n", std::ios::app);
    comm.synchronize();
    input.visit(comm.get_rank(), workers, [&](const paracel::input_piece& p) { parts[comm.get_rank()] += p.text(); });
  });
  EXPECT_EQ(parts[0] + parts[1] + parts[2] + parts[3], "one\ntwo\nthree\n");
}

TEST_F(GrowingInput, AFileThatBecameShorterIsAnErrorOfAllThatNamesIt) {
  const auto name = write("app.log", lines(0, 1000));
  const auto text = read_after(name, [&] { fs::resize_file(name, 1000); });
  EXPECT_THAT(text, StartsWith(name + ": became shorter while it was loaded"));
  EXPECT_THAT(text, is_sample_of_document(0));
}

TEST_F(GrowingInput, AFileThatWasReplacedOrRewrittenIsAnErrorOfAllThatNamesIt) {
  const auto text = lines(0, 1000);
  const auto name = write_long_ago("app.log", text);
  const auto want = name + ": was replaced or rewritten while it was loaded";
  // Restarted (a log that is copied and truncated), and longer by now.
  EXPECT_THAT(read_after(name, [&] { write("app.log", lines(5000, 9000)); }),
              AllOf(StartsWith(want), is_sample_of_document(1)));
  // Only in the middle, so that length and ends are unchanged.
  write_long_ago("app.log", text);
  EXPECT_EQ(read_after(name,
                       [&] {
                         std::fstream file(name, std::ios::in | std::ios::out | std::ios::binary);
                         file.seekp(6000);
                         file << 'L';
                       })
                .find(want),
            0U);
}

TEST_F(GrowingInput, AnotherFileOfThatNameIsRefusedOnThisHostAndElsewhereWhenItsContentDiffers) {
  const auto name = write("app.log", lines(0, 1000));
  auto seen = paracel::look_at(name);
  const auto copy = write("copy", lines(0, 1200));
  fs::rename(copy, name);
  EXPECT_THROW(paracel::open_source(seen), data_error);
  // On another host the same content has a different inode and modification time.
  seen.seen_from = "another host";
  EXPECT_NO_THROW(paracel::open_source(seen)->verify());
  write("app.log", lines(1, 1200));
  EXPECT_THROW(paracel::open_source(seen), data_error);
  write("app.log", lines(0, 999));
  EXPECT_THROW(paracel::open_source(seen), data_error);
}

TEST_F(GrowingInput, AFileThatIsGoneIsAnErrorOfAllThatNamesIt) {
  write("1", lines(0, 10));
  const auto last = write("app.log", lines(10, 20000));
  cluster job({.workers = workers});
  std::mutex mutex;
  std::vector<std::string> errors;
  job.run([&](paracel::Comm comm) {
    input_set input(comm, {folder_.path()});
    comm.synchronize();
    if (comm.get_rank() == 0) fs::remove(last);
    comm.synchronize();
    try {
      input.visit(comm.get_rank(), workers, [](const paracel::input_piece&) {});
    } catch (const data_error& e) {
      const std::lock_guard lock(mutex);
      errors.emplace_back(e.what());
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(workers, last + ": cannot be read: No such file or directory"));
  EXPECT_THAT(errors, Each(is_sample_of_document(2)));
}

TEST_F(GrowingInput, WhatOneWorkerCannotFindIsAnErrorOfAll) {
  cluster job({.workers = workers});
  std::mutex mutex;
  std::vector<std::string> errors;
  const auto none = (folder_ / "none").string();
  job.run([&](paracel::Comm comm) {
    paracel::paralg a(comm);
    try {
      a.paracel_load(none);
    } catch (const data_error& e) {
      const std::lock_guard lock(mutex);
      errors.emplace_back(e.what());
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(workers, none + ": no such file or folder"));
}

}  // namespace
