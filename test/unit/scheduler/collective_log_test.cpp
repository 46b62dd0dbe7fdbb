// SPDX-License-Identifier: BSD-3-Clause
//
// Collectives that the replacement of a dead worker repeats, and the replies to them.
#include "server/scheduler/collective_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "test/support/file_size_limit.hpp"
#include "worker/job/collective_sequence.hpp"

namespace paracel {
namespace {

using srv::collective_log;
using found = collective_log::found;
using testing::HasSubstr;

shared_buffer of(const std::string& text) {
  auto b = shared_buffer::allocate(text.size());
  std::memcpy(b.mutable_data(), text.data(), text.size());
  return b;
}

class KeptAnswers : public testing::Test {
 protected:
  collective_log make(std::size_t most = 1 << 20) {
    return collective_log({.ranks = 2, .folder = testing::TempDir(), .file_from = 8, .most_bytes = most});
  }
  /// The reply, or the reason why there is none.
  static std::string ask(collective_log& k, std::uint64_t number, std::uint32_t rank,
                         const std::string& what = "barrier") {
    shared_buffer b;
    value_tag tag{};
    std::string why;
    switch (k.find(number, rank, what, b, tag, why)) {
      case found::no:
        return "not given";
      case found::yes:
        return {reinterpret_cast<const char*>(b.data()), b.size()};
      case found::dropped:
        return "dropped";
      case found::differs:
        break;
    }
    return why;
  }
};

TEST_F(KeptAnswers, ARankGetsItsOwnOrEverybodysAgainSmallOnesAndLargeOnes) {
  auto k = make();
  k.keep(0, "reduce", value_tag::f64, of("short"));
  k.keep(1, "alltoall", value_tag::none, {}, {of("for rank 0, long"), of("for 1")});
  EXPECT_EQ(ask(k, 0, 0, "reduce"), "short");
  EXPECT_EQ(ask(k, 0, 1, "reduce"), "short");
  EXPECT_EQ(ask(k, 1, 0, "alltoall"), "for rank 0, long");
  EXPECT_EQ(ask(k, 1, 1, "alltoall"), "for 1");
  EXPECT_EQ(k.file_bytes(), 16U);
  EXPECT_EQ(ask(k, 2, 0), "not given");
}

TEST_F(KeptAnswers, AnotherCallThanTheOneBeforeIsTold) {
  auto k = make();
  k.keep(0, "reduce (sum of 3 f64) among 2 ranks", value_tag::f64, of("a"));
  EXPECT_EQ(ask(k, 0, 1, "barrier among 2 ranks"),
            "rank 1 calls barrier among 2 ranks, but the process that it replaces called reduce (sum of 3 f64) among 2 "
            "ranks");
}

TEST_F(KeptAnswers, WhatNoRankWouldCallAgainIsDropped) {
  auto k = make();
  for (std::uint64_t n = 0; n < 10; ++n) k.keep(n, "barrier", value_tag::none, of("answer " + std::to_string(n)));
  k.needs(0, {{0, 2}}, 8);
  EXPECT_EQ(k.size(), 10U) << "the other rank has committed nothing";
  k.needs(1, {{0, 3}}, 6);
  EXPECT_EQ(k.size(), 7U);  // 0 1 2 6 7 8 9
  EXPECT_EQ(ask(k, 2, 0), "answer 2");
  EXPECT_EQ(ask(k, 3, 0), "dropped");
  EXPECT_EQ(ask(k, 6, 1), "answer 6");
  k.needs_nothing(1);
  EXPECT_EQ(k.size(), 4U);  // 0 1 8 9
  k.needs_nothing(0);
  EXPECT_EQ(k.size(), 0U);
  EXPECT_EQ(k.bytes(), 0U);
  EXPECT_EQ(k.file_bytes(), 0U);
}

TEST_F(KeptAnswers, AProgramThatNeverCommitsDoesNotFillTheMemory) {
  auto k = make(10'000);
  for (std::uint64_t n = 0; n < 1000; ++n) k.keep(n, "barrier", value_tag::none, of("x"));
  EXPECT_LE(k.bytes(), 10'000U);
  EXPECT_EQ(ask(k, 999, 0), "x");
  EXPECT_EQ(ask(k, 0, 0), "dropped");
}

TEST_F(KeptAnswers, WithoutAFolderForTheFileTheyStayInMemory) {
  collective_log k({.ranks = 1, .folder = "/nowhere/at/all", .file_from = 8});
  k.keep(0, "barrier", value_tag::none, of("a long answer"));
  EXPECT_EQ(ask(k, 0, 0), "a long answer");
  EXPECT_EQ(k.file_bytes(), 0U);
}

// ---- the numbers of a worker's collectives

std::vector<std::uint64_t> call(collective_sequence& n, int times) {
  std::vector<std::uint64_t> all;
  for (int i = 0; i < times; ++i) all.push_back(n.next());
  return all;
}
using numbers = std::vector<std::uint64_t>;

TEST(CollectiveNumbers, AReplacementCallsTheSetupAndTheIterationThatWasNotCommitted) {
  collective_sequence first;
  call(first, 3);
  first.loop_begins();
  call(first, 2);
  (void)first.commit();
  call(first, 2);
  const auto again = first.commit();
  EXPECT_EQ(again, (replay_range{{{0, 3}}, 7}));
  EXPECT_EQ(call(first, 1), (numbers{7}));  // and the worker dies

  collective_sequence second;
  second.begin_again(again, 8);
  EXPECT_TRUE(second.repeats());
  EXPECT_EQ(call(second, 3), (numbers{0, 1, 2}));
  EXPECT_FALSE(second.caught_up());
  second.loop_begins();
  EXPECT_EQ(call(second, 1), (numbers{7}));
  EXPECT_TRUE(second.caught_up());
  EXPECT_FALSE(second.repeats());
  EXPECT_EQ(call(second, 2), (numbers{8, 9}));
  EXPECT_EQ(second.commit(), (replay_range{{{0, 3}}, 10}));
}

TEST(CollectiveNumbers, ALongListOfRangesIsReportedAsFewerThatContainThem) {
  using ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  EXPECT_EQ(enclosing_ranges({}, 2), ranges{});
  EXPECT_EQ(enclosing_ranges({{0, 3}, {3, 5}, {7, 8}}, 3), (ranges{{0, 5}, {7, 8}})) << "adjacent ones are one";
  EXPECT_EQ(enclosing_ranges({{1, 2}, {4, 5}, {7, 8}, {10, 11}}, 2), (ranges{{1, 8}, {10, 11}}));
  ranges many;
  for (std::uint64_t i = 0; i < 100'000; ++i) many.emplace_back(3 * i, 3 * i + 1);
  const auto few = enclosing_ranges(many, 1024);
  EXPECT_EQ(few.size(), 1024U);
  EXPECT_EQ(few.front().first, 0U);
  EXPECT_EQ(few.back(), many.back());
}

TEST(CollectiveNumbers, WhatLiesBetweenTwoLoopsIsASetupToo) {
  collective_sequence first;
  call(first, 2);
  first.loop_begins();
  call(first, 5);
  (void)first.commit();  // one iteration
  call(first, 1);        // after the loop
  call(first, 1);        // the setup of the next loop
  first.loop_begins();
  call(first, 3);
  const auto again = first.commit();
  EXPECT_EQ(again, (replay_range{{{0, 2}, {7, 9}}, 12}));

  collective_sequence second;
  second.begin_again(again, 12);
  EXPECT_EQ(call(second, 2), (numbers{0, 1}));
  second.loop_begins();
  EXPECT_EQ(call(second, 2), (numbers{7, 8}));
  EXPECT_FALSE(second.caught_up());
  second.loop_begins();
  EXPECT_TRUE(second.caught_up());
  EXPECT_EQ(call(second, 1), (numbers{12}));
  EXPECT_EQ(second.commit(), (replay_range{{{0, 2}, {7, 9}}, 13}));
}

TEST(CollectiveNumbers, LoopsInsideOfAnIterationAreForgottenWithIt) {
  collective_sequence first;
  call(first, 1);
  const auto outer = first.loop_begins();
  for (int round = 0; round < 3; ++round) {
    call(first, 2);  // before the inner loop
    const auto inner = first.loop_begins();
    EXPECT_EQ(inner, outer + 1);
    call(first, 2);
    (void)first.commit(inner);
    call(first, 1);  // after it
    (void)first.commit(outer);
  }
  call(first, 2);
  const auto inner = first.loop_begins();
  call(first, 1);
  const auto again = first.commit(inner);
  EXPECT_EQ(again, (replay_range{{{0, 1}, {16, 18}}, 19}));

  collective_sequence second;  // its outer loop begins in the fourth iteration
  second.begin_again(again, 19);
  EXPECT_EQ(call(second, 1), (numbers{0}));
  EXPECT_EQ(second.loop_begins(), outer);
  EXPECT_EQ(call(second, 2), (numbers{16, 17}));
  EXPECT_EQ(second.loop_begins(), inner);
  EXPECT_EQ(call(second, 2), (numbers{19, 20}));
  EXPECT_EQ(second.commit(outer), (replay_range{{{0, 1}}, 21}));
}

TEST(CollectiveNumbers, BeforeTheFirstCommitAllIsCalledAgain) {
  collective_sequence second;
  second.begin_again({}, 3);
  EXPECT_TRUE(second.repeats());
  EXPECT_EQ(call(second, 2), (numbers{0, 1}));
  second.loop_begins();
  EXPECT_TRUE(second.repeats()) << "the one before had called one in its first iteration";
  EXPECT_EQ(call(second, 1), (numbers{2}));
  EXPECT_TRUE(second.caught_up());
  EXPECT_EQ(second.commit(), (replay_range{{{0, 2}}, 3}));
}

TEST(CollectiveNumbers, ASetupThatDiffersIsFound) {
  collective_sequence more;
  more.begin_again({{{0, 2}}, 9}, 9);
  call(more, 2);
  EXPECT_THROW(more.next(), error);
  collective_sequence fewer;
  fewer.begin_again({{{0, 2}}, 9}, 9);
  call(fewer, 1);
  EXPECT_THROW(fewer.loop_begins(), error);
  EXPECT_THROW((void)fewer.commit(), error);
}

// ---- what a worker saves for its replacement

class KeptState : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static recovery_file::commit commit(std::uint32_t clock, std::size_t bytes) {
    return {.clock = clock,
            .collectives = {{{0, clock}}, clock + 1},
            .cannot = {},
            .parts = std::vector<std::byte>(bytes, static_cast<std::byte>(clock))};
  }
  /// Damages one byte of a file.
  void spoil(const std::string& name, std::size_t at) const {
    std::fstream file(folder_ + "/" + name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put('\x55');
  }
  std::string folder_ = testing::TempDir() + "/kept_state_" + std::to_string(getpid());
};

TEST_F(KeptState, TheLastCommitIsFoundWhateverItsSize) {
  recovery_file a(folder_, 7, 1);
  EXPECT_FALSE(a.last());
  std::uint32_t clock = 0;
  for (const std::size_t bytes : {10U, 1000U, 3U, 0U, 50'000U, 7U}) {
    EXPECT_EQ(a.write(commit(++clock, bytes)), "");
    recovery_file b(folder_, 7, 1);
    ASSERT_TRUE(b.last());
    EXPECT_EQ(b.last()->clock, clock);
    EXPECT_EQ(b.last()->collectives, (replay_range{{{0, clock}}, clock + 1}));
    EXPECT_EQ(b.last()->parts, commit(clock, bytes).parts);
  }
  EXPECT_FALSE(recovery_file(folder_, 8, 1).last()) << "another job's";
}

TEST_F(KeptState, OneThatIsHalfWrittenCountsForNothing) {
  {
    recovery_file a(folder_, 7, 0);
    EXPECT_EQ(a.write(commit(1, 100)), "");
    EXPECT_EQ(a.write(commit(2, 100)), "");
  }
  spoil("worker-0.kept1", 60);
  recovery_file b(folder_, 7, 0);
  ASSERT_TRUE(b.last());
  EXPECT_EQ(b.last()->clock, 1U);
  EXPECT_EQ(b.write(commit(2, 5)), "");  // overwrites the damaged file
  EXPECT_EQ(recovery_file(folder_, 7, 0).last()->clock, 2U);
  spoil("worker-0.kept1", 100);  // beyond the part in use
  EXPECT_EQ(recovery_file(folder_, 7, 0).last()->clock, 2U);
}

TEST_F(KeptState, OneThatCannotBeWrittenIsNeverReplacedByTheOneBefore) {
  for (const std::uint32_t before : {0U, 1U, 2U, 3U}) {
    SCOPED_TRACE(before);
    recovery_file a(folder_, before + 10, 0);
    const auto last = [&] { return recovery_file(folder_, before + 10, 0).last().value(); };
    for (std::uint32_t clock = 1; clock <= before; ++clock) EXPECT_EQ(a.write(commit(clock, 100)), "");
    {
      const test::file_size_limit full(8192);
      EXPECT_THAT(a.write(commit(before + 1, 50'000)), HasSubstr("worker-0.kept: cannot be written: File too large"));
      EXPECT_EQ(last().clock, before + 1);
      EXPECT_THAT(last().cannot, HasSubstr("its state cannot be saved: "));
      EXPECT_NE(a.write(commit(before + 2, 50'000)), "");
      EXPECT_EQ(last().clock, before + 2);
      EXPECT_EQ(a.write(commit(before + 3, 100)), "");
      EXPECT_EQ(last().cannot, "");
    }
    EXPECT_EQ(a.write(commit(before + 4, 50'000)), "") << "there is space again";
    EXPECT_EQ(last().parts.size(), 50'000U);
    a.mark(before + 4, "it is told so");
    EXPECT_EQ(last().cannot, "it is told so");
  }
}

TEST_F(KeptState, WhatOutlivesTheHostIsReadAsTheOther) {
  {
    recovery_file a(folder_, 7, 0, true);
    a.add_client(11);
    for (std::uint32_t clock = 1; clock <= 3; ++clock) EXPECT_EQ(a.write(commit(clock, 100)), "");
  }
  recovery_file b(folder_, 7, 0, true);
  EXPECT_EQ(b.last()->clock, 3U);
  EXPECT_EQ(b.clients(), std::vector<std::uint64_t>{11});
  EXPECT_THROW(recovery_file("/proc/self/fd", 7, 0, true), error);
}

TEST_F(KeptState, TheClientsOfAllProcessesAreKnown) {
  recovery_file(folder_, 7, 0).add_client(11);
  recovery_file b(folder_, 7, 0);
  b.add_client(12);
  EXPECT_EQ(b.clients(), (std::vector<std::uint64_t>{11, 12}));
  recovery_file other(folder_, 8, 0);
  EXPECT_TRUE(other.clients().empty()) << "another job's";
}

}  // namespace
}  // namespace paracel
