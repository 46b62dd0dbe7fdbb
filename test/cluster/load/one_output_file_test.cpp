// SPDX-License-Identifier: BSD-3-Clause
//
// One output file instead of one for each worker: it contains the same in rank order, or does not exist.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <paracel/error.hpp>
#include <paracel/paralg.hpp>

#include "test/support/cluster.hpp"
#include "test/support/file_size_limit.hpp"
#include "test/support/temporary_folder.hpp"
#include "worker/results/result_files.hpp"

namespace paracel {
namespace {

using test::cluster;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class OneOutputFile : public testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  /// The results in a subfolder, with their contents.
  [[nodiscard]] std::map<std::string, std::string> results(const std::string& below = ".") const {
    std::map<std::string, std::string> all;
    for (const auto& e : std::filesystem::directory_iterator(path(below))) {
      if (!e.is_regular_file()) continue;
      std::ifstream in(e.path(), std::ios::binary);
      all[e.path().filename()] = std::string(std::istreambuf_iterator<char>(in), {});
    }
    return all;
  }

  const test::temporary_folder made_{"paracel-one-file-"};
  const std::string folder_ = made_.path();
};

/// The lines of a rank: none on every third one, more than one round's worth on the next.
list_type<std::string> lines_of(std::size_t rank) {
  list_type<std::string> lines;
  if (rank % 3 == 1) return lines;
  const std::size_t n = rank % 3 == 2 ? 60'000 : 5;  // 6 MB, and 500 bytes
  const auto number = std::to_string(rank) + ":";
  for (std::size_t i = 0; i < n; ++i) lines.push_back(number + std::to_string(i) + std::string(90, 'x'));
  return lines;
}

TEST_F(OneOutputFile, HoldsWhatTheFilesOfTheWorkersHoldInTheirOrder) {
  for (const std::size_t workers : {1U, 2U, 4U}) {
    for (const bool one : {false, true}) {
      cluster c({.workers = workers, .servers = 1});
      c.run([&](Comm comm) {
        paralg a("", comm, path((one ? "one" : "parts") + std::to_string(workers)));
        EXPECT_FALSE(a.one_output_file()) << "a program asks for it";
        a.set_one_output_file(one);
        const auto rank = a.get_worker_id();
        a.paracel_dump_vector(lines_of(rank), "lines_", "\n");
        a.paracel_dump_vector(list_type<double>{0.5, static_cast<double>(rank)}, "row");
        a.paracel_dump_vector(list_type<int>(), "nothing_");
        a.paracel_dump_dict(dict_type<int, double>{{2, 0.1}, {1, static_cast<double>(rank)}}, "table_");
        if (rank + 1 == workers) a.paracel_dump_prob_mtx({{"u", {{"v", 1}}}, {"w", {}}}, "prob_");
        else a.paracel_dump_prob_mtx({}, "prob_");
        int left = 3;
        a.paracel_dump_pieces(
            "pieces_",
            [&](str_type& text) {
              if (left-- == 0) return false;
              text += std::string(static_cast<std::size_t>(left), 'p');  // the last one is empty
              return true;
            },
            ".bin");
        if (one && rank == 0) {
          EXPECT_TRUE(std::filesystem::exists(path("one" + std::to_string(workers) + "/pieces.bin")));
        }
      });
    }
    const auto parts = results("parts" + std::to_string(workers));
    std::map<std::string, std::string> expected;
    for (std::size_t rank = 0; rank < workers; ++rank) {
      const auto number = std::to_string(rank);
      for (const auto& [part, whole] : {std::pair{"lines_" + number, "lines.txt"},
                                        {"row" + number, "row.txt"},
                                        {"nothing_" + number, "nothing.txt"},
                                        {"table_" + number, "table.txt"},
                                        {"prob_" + number, "prob.txt"},
                                        {"pieces_" + number + ".bin", "pieces.bin"}}) {
        expected[whole] += parts.at(part);
      }
    }
    EXPECT_EQ(results("one" + std::to_string(workers)), expected) << workers << " workers";
  }
}

TEST_F(OneOutputFile, NamesHaveNoRankAndAreBelowTheOutputFolder) {
  cluster c({.workers = 2, .servers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm, folder_);
    const auto rank = std::to_string(a.get_worker_id());
    EXPECT_EQ(a.result_name("labels_", ".npy"), "labels_" + rank + ".npy");
    EXPECT_EQ(a.result_name("labels_"), "labels_" + rank);
    a.set_one_output_file(true);
    EXPECT_EQ(a.result_name("labels_", ".npy"), "labels.npy");
    EXPECT_EQ(a.result_name("labels_"), "labels.txt");
    EXPECT_EQ(a.result_name("labels"), "labels.txt");
    EXPECT_EQ(a.result_name("a_b_"), "a_b.txt");
    EXPECT_EQ(a.result_name(""), "result.txt");
    EXPECT_EQ(a.result_name("sub/"), "sub/result.txt");
    // Worker 0 finds the error, and all throw it.
    EXPECT_THROW(a.paracel_dump_vector(list_type<int>{1}, "../outside_"), data_error);
    EXPECT_THROW(a.paracel_dump_vector(list_type<int>{1}, "no/such/folder_"), data_error);
    a.paracel_dump_vector(list_type<int>{1}, "after_");
  });
  EXPECT_THAT(results(), ElementsAre(std::pair<const std::string, std::string>("after.txt", "1\n1\n")));
}

TEST_F(OneOutputFile, AppendsAndMergesIntoOneFileToo) {
  cluster c({.workers = 2, .servers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm, folder_);
    a.set_one_output_file(true);
    const auto rank = static_cast<int>(a.get_worker_id());
    for (const int round : {0, 1}) {
      a.paracel_dump_vector(list_type<int>{round, rank}, "log_", ",", true);
      a.paracel_dump_vector(list_type<int>{round, rank}, "new_", ",", false);
      a.paracel_dump_vector(list_type<int>{round, rank}, "v_", ",", true, true);
    }
  });
  const std::map<std::string, std::string> expected{
      {"log.txt", "0,0\n0,1\n1,0\n1,1\n"}, {"new.txt", "1,0\n1,1\n"}, {"v_merge", "0,0\n0,1\n1,0\n1,1\n"}};
  EXPECT_EQ(results(), expected);
}

// Like programs for 0.3, and those that have not requested a single file.
TEST_F(OneOutputFile, WithoutItAWorkerThatDumpsAloneWaitsForNobody) {
  cluster c({.workers = 3, .servers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm, folder_);
    if (a.get_worker_id() == 0) {
      a.paracel_dump_vector(list_type<int>{1, 2}, "theta_");
      a.paracel_dump_dict(dict_type<str_type, int>{{"a", 1}}, "names_");
      std::int64_t n = 1;
      comm.allreduce(n);  // would be matched with another collective
      EXPECT_EQ(n, 3);
      return;
    }
    std::int64_t n = 1;
    comm.allreduce(n);
    EXPECT_EQ(n, 3);
  });
  const std::map<std::string, std::string> expected{{"names_0", "a\t1\n"}, {"theta_0", "1,2\n"}};
  EXPECT_EQ(results(), expected);
}

TEST_F(OneOutputFile, AWorkerThatDumpsAloneAllTheSameIsToldWhenTheOthersHaveLeft) {
  std::atomic<bool> told{false};
  cluster c({.workers = 2, .servers = 1});
  try {
    c.run([&](Comm comm) {
      paralg a("", comm, folder_);
      a.set_one_output_file(true);
      if (a.get_worker_id() != 0) return;
      try {
        a.paracel_dump_vector(list_type<int>{1}, "theta_");
      } catch (const error&) {
        told = true;
      }
    });
  } catch (const error&) {  // because it leaves a job that has ended
  }
  EXPECT_TRUE(told);
  EXPECT_THAT(results(), IsEmpty());
}

/// Records the bytes of an all-to-all.
class measured_comm final : public comm_backend, public logged_collectives {
 public:
  measured_comm(Comm& of, std::atomic<std::uint64_t>& most, std::atomic<std::uint64_t>& rounds)
      : of_(of), most_(most), rounds_(rounds) {}
  [[nodiscard]] std::size_t rank() const override { return of_.get_rank(); }
  [[nodiscard]] std::size_t size() const override { return of_.get_size(); }
  [[nodiscard]] logged_collectives* log() override { return this; }
  void barrier() override { of_.synchronize(); }
  void bcast(byte_vector&, std::size_t) override { FAIL(); }
  void allreduce(value_tag, std::span<std::byte>, reduce_op) override { FAIL(); }
  std::vector<byte_vector> allgather(std::span<const std::byte> mine) override {
    std::vector<byte_vector> to(size(), byte_vector(mine.begin(), mine.end()));
    return of_.alltoall_bytes(to);
  }
  std::vector<byte_vector> alltoall(const std::vector<byte_vector>& blocks) override {
    auto got = of_.alltoall_bytes(blocks);
    std::uint64_t bytes = 0;
    for (const auto& b : got) bytes += b.size();
    auto most = most_.load();
    while (bytes > most && !most_.compare_exchange_weak(most, bytes)) continue;
    if (rank() == 0) ++rounds_;
    return got;
  }

 private:
  Comm& of_;
  std::atomic<std::uint64_t>& most_;
  std::atomic<std::uint64_t>& rounds_;
};

TEST_F(OneOutputFile, TravelsInRoundsOfABoundedSizeThatSmallPartsShare) {
  constexpr std::size_t workers = 4;
  constexpr std::uint64_t piece = 100;
  // The pieces of each rank, the bytes of a round, and the expected number of rounds.
  struct given {
    std::vector<int> pieces;
    std::uint64_t chunk;
    std::uint64_t rounds;
  };
  for (const auto& job : {given{{1, 2, 0, 3}, 1000, 1}, given{{0, 0, 0, 0}, 1000, 1}, given{{0, 100, 0, 1}, 1000, 11},
                          given{{25, 0, 25, 0}, 1000, 6}, given{{3, 3, 3, 3}, 1, 16}}) {
    const auto& pieces = job.pieces;
    std::atomic<std::uint64_t> most{0}, seen{0};
    cluster c({.workers = workers, .servers = 1});
    c.run([&](Comm comm) {
      Comm measured(std::make_shared<measured_comm>(comm, most, seen));
      const auto rank = comm.get_rank();
      int left = pieces[rank];
      write_together(
          measured, [&] { return std::make_unique<result_file>(path("whole"), false); },
          [&](std::string& text) {
            if (left-- <= 0) return false;
            text += std::string(piece - 1, static_cast<char>('a' + rank)) + static_cast<char>('0' + left % 10);
            return true;
          },
          job.chunk);
    });
    std::string expected;
    for (std::size_t r = 0; r < workers; ++r)
      for (int left = pieces[r]; left-- > 0;)
        expected += std::string(piece - 1, static_cast<char>('a' + r)) + static_cast<char>('0' + left % 10);
    EXPECT_EQ(results()["whole"], expected) << job.chunk;
    EXPECT_LT(most, job.chunk + piece) << "a rank holds a round and a piece, never the whole";
    EXPECT_LE(seen, job.rounds) << job.chunk;
  }
}

TEST_F(OneOutputFile, AFullDiskIsThrownByAllWorkersAndLeavesWhatWasThere) {
  std::ofstream(path("old.txt")) << "of before\n";
  std::ofstream(path("log.txt")) << "kept\n";
  std::atomic<int> threw{0};
  cluster c({.workers = 3, .servers = 1});
  const test::file_size_limit full(2'000'000);
  c.run([&](Comm comm) {
    paralg a("", comm, folder_);
    a.set_one_output_file(true);
    using given = std::pair<const char*, bool>;
    for (const auto& [name, append] : {given{"old_", false}, {"new_", false}, {"log_", true}, {"new_log_", true}}) {
      try {
        a.paracel_dump_vector(lines_of(2), name, "\n", append);  // 6 MB of each
        ADD_FAILURE() << name << " was written";
      } catch (const data_error& e) {
        EXPECT_THAT(e.what(), HasSubstr(path(a.result_name(name)) + ": cannot be written: File too large"));
        ++threw;
      }
    }
  });
  EXPECT_EQ(threw, 12);
  const std::map<std::string, std::string> expected{{"old.txt", "of before\n"}, {"log.txt", "kept\n"}};
  EXPECT_EQ(results(), expected);
}

TEST_F(OneOutputFile, WhatOneWorkerFindsWrongAllThrowAndNothingIsLeft) {
  std::atomic<int> threw{0};
  cluster c({.workers = 3, .servers = 1});
  c.run([&](Comm comm) {
    paralg a("", comm, folder_);
    a.set_one_output_file(true);
    // In the first piece, and after others have been written.
    for (const int good : {0, 3000}) {
      int left = good;
      const bool bad = a.get_worker_id() == 2;
      try {
        a.paracel_dump_pieces("rows_", [&](str_type& text) {
          if (left-- > 0) {
            text += std::string(4096, 'x');
            return true;
          }
          if (bad) throw config_error("no more of it");
          return false;
        });
        ADD_FAILURE() << "was written";
      } catch (const config_error& e) {
        EXPECT_STREQ(e.what(), "no more of it");
        ++threw;
      }
    }
  });
  EXPECT_EQ(threw, 6);
  EXPECT_THAT(results(), IsEmpty());
}

}  // namespace
}  // namespace paracel
