// SPDX-License-Identifier: BSD-3-Clause
#include "load/input/byte_range.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "paracel/error.hpp"
#include "paracel/samples.hpp"
#include "test/support/temporary_folder.hpp"

namespace {

namespace fs = std::filesystem;

class ByteRange : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const auto path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  /// What all ranks read, concatenated.
  static std::vector<std::string> together(const std::vector<std::string>& names, std::size_t size) {
    std::vector<std::string> all;
    for (std::size_t r = 0; r < size; ++r) {
      const auto part = paracel::read_lines(names, r, size);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  const paracel::test::temporary_folder folder_{"byte_range_"};
};

TEST_F(ByteRange, RanksTogetherReadEveryLineOnceInOrder) {
  std::mt19937 rng(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> lines;
    std::vector<std::string> names;
    const int files = 1 + static_cast<int>(rng() % 4);
    for (int f = 0; f < files; ++f) {
      std::string text;
      const int count = static_cast<int>(rng() % 6);
      for (int i = 0; i < count; ++i) {
        // Mostly short lines, some longer than any part, some empty.
        const auto length = rng() % 5 == 0 ? 200 : rng() % 8;
        const auto line = std::string(length, static_cast<char>('a' + i)) + std::to_string(f);
        const bool empty = rng() % 7 == 0;
        lines.push_back(empty ? "" : line);
        text += lines.back();
        const bool unfinished = i + 1 == count && !empty && rng() % 2 == 0;
        if (!unfinished) text += rng() % 3 == 0 ? "\r\n" : "\n";
      }
      names.push_back(write(std::to_string(round) + "/" + std::to_string(f), text));
    }
    for (const std::size_t size : {1U, 2U, 3U, 4U, 7U, 64U}) {
      ASSERT_EQ(together(names, size), lines) << round << " " << size;
    }
  }
}

TEST_F(ByteRange, PartsAreOfEqualBytesUpToALine) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "0123456789\n";
  const auto name = write("even", text);
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_NEAR(static_cast<double>(paracel::read_lines(name, r, 4).size()), 250.0, 1.0);
  }
}

TEST_F(ByteRange, ALineLongerThanAPartGoesWholeToOneRank) {
  const std::string line(100000, 'x');
  const auto name = write("long", line + "\nend\n");
  EXPECT_EQ(paracel::read_lines(name, 0, 8).at(0), line);
  EXPECT_EQ(together({name}, 8), (std::vector<std::string>{line, "end"}));
}

TEST_F(ByteRange, AFolderIsItsVisibleFilesBelowSortedByName) {
  write("in/b", "2\n");
  write("in/a", "1\n");
  write("in/sub/c", "3\n");
  write("in/.hidden", "no\n");
  write("in/.git/x", "no\n");
  EXPECT_EQ(together({(folder_ / "in").string()}, 2), (std::vector<std::string>{"1", "2", "3"}));
}

TEST_F(ByteRange, APatternIsTheFilesItMatches) {
  write("p1.txt", "1\n");
  write("p2.txt", "2\n");
  write("p3.dat", "3\n");
  EXPECT_EQ(paracel::read_lines((folder_ / "*.txt").string()), (std::vector<std::string>{"1", "2"}));
}

TEST_F(ByteRange, AFileNamedLikeAPatternIsThatFile) {
  const auto name = write("p[1].txt", "here\n");
  write("p1.txt", "there\n");
  EXPECT_EQ(paracel::read_lines(name), (std::vector<std::string>{"here"}));
}

TEST_F(ByteRange, WhatIsNotThereIsADataError) {
  const auto name = (folder_ / "nothing").string();
  try {
    paracel::read_lines(name);
    FAIL();
  } catch (const paracel::data_error& e) {
    EXPECT_EQ(std::string(e.what()), name + ": no such file or folder");
    EXPECT_EQ(e.status(), 4);
  }
  fs::create_directories(folder_ / "empty");
  EXPECT_THROW(paracel::read_lines((folder_ / "empty").string()), paracel::data_error);
  EXPECT_THROW(paracel::read_lines((folder_ / "*.none").string()), paracel::data_error);
}

TEST_F(ByteRange, AFifoIsRefusedAndDoesNotBlock) {
  const auto name = (folder_ / "fifo").string();
  ASSERT_EQ(::mkfifo(name.c_str(), 0600), 0);
  EXPECT_THROW(paracel::read_lines(name), paracel::data_error);
}

TEST_F(ByteRange, CutsDoNotOverflowForHugeFiles) {
  const std::uint64_t huge = std::uint64_t{1} << 62;
  std::uint64_t at = 0;
  for (std::size_t r = 0; r < 1000; ++r) {
    for (const auto& piece : paracel::byte_range({huge, huge}, r, 1000)) {
      const auto begin = piece.file * huge + piece.begin;
      EXPECT_EQ(begin, at);
      at = piece.file * huge + piece.end;
    }
  }
  EXPECT_EQ(at, 2 * huge);
}

TEST_F(ByteRange, AnEmptyFileHasNoLines) { EXPECT_TRUE(together({write("nil", "")}, 3).empty()); }

}  // namespace
