// SPDX-License-Identifier: BSD-3-Clause
#include "core/trace.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace paracel {
namespace {

struct written {
  std::vector<std::string> threads;
  std::vector<std::vector<trace::record>> writes;
};

class memory_log final : public trace::log {
 public:
  explicit memory_log(written& to) : to_(to) {}
  void write(std::span<const trace::record> records) noexcept override {
    to_.writes.emplace_back(records.begin(), records.end());
  }

 private:
  written& to_;
};

class Trace : public testing::Test {
 protected:
  void begin(std::uint32_t every = 1) {
    trace::start(
        [this](const std::string& role, std::uint32_t index, const std::string& thread) {
          out.threads.push_back(role + " " + std::to_string(index) + " " + thread);
          return std::make_unique<memory_log>(out);
        },
        every);
  }
  ~Trace() override { trace::start({}, 1); }

  written out;
};

trace::record span(std::uint64_t begin, std::uint64_t end) {
  return {.begin = begin, .end = end, .kind = trace::kind::serve};
}

TEST_F(Trace, OffNothingIsRecorded) {
  const trace::thread_scope scope("worker", 0, "x");
  { const trace::phase_scope phase(trace::phase::load); }
  trace::add(span(1, 2));
  trace::idle();
  EXPECT_EQ(trace::mine, nullptr);
  EXPECT_TRUE(out.threads.empty());
}

TEST_F(Trace, TimeNeverGoesBack) {
  auto before = trace::now();
  for (int i = 0; i < 1000; ++i) {
    const auto now = trace::now();
    ASSERT_GE(now, before);
    before = now;
  }
}

TEST_F(Trace, AFullBufferIsWritten) {
  begin();
  {
    const trace::thread_scope scope("server", 3, "shard 1");
    const auto now = trace::now();
    for (std::size_t i = 0; i < trace::buffer::capacity - 1; ++i) trace::add(span(now, now));
    EXPECT_TRUE(out.writes.empty());
    trace::add(span(now, now));
    ASSERT_EQ(out.writes.size(), 1U);
    EXPECT_EQ(out.writes[0].size(), trace::buffer::capacity);
    trace::add(span(now, now));
  }
  EXPECT_EQ(out.writes.size(), 2U) << "the end of the scope writes the rest";
  EXPECT_EQ(out.threads, std::vector<std::string>{"server 3 shard 1"});
}

TEST_F(Trace, RecordsDoNotWaitLong) {
  begin();
  const trace::thread_scope scope("worker", 0, "x");
  trace::add(span(1, trace::now()));
  EXPECT_TRUE(out.writes.empty());
  trace::add(span(1, trace::now() + 2 * trace::buffer::longest_delay));
  ASSERT_EQ(out.writes.size(), 1U);
  EXPECT_EQ(out.writes[0].size(), 2U);
}

TEST_F(Trace, AWaitWritesWhatThereIs) {
  begin();
  const trace::thread_scope scope("worker", 0, "x");
  trace::idle();
  EXPECT_TRUE(out.writes.empty());
  trace::add(span(1, 1));
  trace::idle();
  trace::idle();
  EXPECT_EQ(out.writes.size(), 1U);
}

TEST_F(Trace, PhasesNest) {
  begin();
  {
    const trace::thread_scope scope("worker", 0, "x");
    const trace::phase_scope outer(trace::phase::superstep, 7);
    const trace::phase_scope inner(trace::phase::all_reduce, 0, std::size_t{1} << 40);
  }
  ASSERT_EQ(out.writes.size(), 1U);
  const auto& r = out.writes[0];
  ASSERT_EQ(r.size(), 2U);
  EXPECT_EQ(r[0].what, static_cast<std::uint8_t>(trace::phase::all_reduce));
  EXPECT_EQ(r[0].bytes, UINT32_MAX);
  EXPECT_EQ(r[1].what, static_cast<std::uint8_t>(trace::phase::superstep));
  EXPECT_EQ(r[1].sequence, 7U);
  EXPECT_LE(r[1].begin, r[0].begin);
  EXPECT_LE(r[0].end, r[1].end);
}

TEST_F(Trace, AnInnerScopeDoesNothing) {
  begin();
  const trace::thread_scope outer("worker", 0, "x");
  const auto* const mine = trace::mine;
  { const trace::thread_scope inner("worker", 1, "y"); }
  EXPECT_EQ(trace::mine, mine);
  EXPECT_EQ(out.threads.size(), 1U);
}

TEST_F(Trace, AThreadThatHasNotEnteredIsNotTraced) {
  begin();
  const trace::thread_scope scope("worker", 0, "x");
  std::thread([] {
    EXPECT_EQ(trace::mine, nullptr);
    trace::add(span(1, 2));
  }).join();
  trace::idle();
  EXPECT_TRUE(out.writes.empty());
}

TEST_F(Trace, EveryPhaseHasAName) {
  EXPECT_EQ(std::size(trace::names_of_phases), static_cast<std::size_t>(trace::phase::fold) + 1);
  EXPECT_STREQ(trace::names_of_phases[static_cast<std::size_t>(trace::phase::all_gather)], "all_gather");
}

}  // namespace
}  // namespace paracel
