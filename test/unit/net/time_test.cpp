// SPDX-License-Identifier: BSD-3-Clause
//
// The clock used for leases, and how a process that was suspended judges silence.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include <paracel/error.hpp>

#include "net/attention.hpp"
#include "net/clock_source.hpp"
#include "net/heartbeat.hpp"
#include "net/inproc_transport.hpp"
#include "net/protocol.hpp"
#include "test/support/flaky_transport.hpp"

namespace paracel {
namespace {

using namespace std::chrono_literals;

bool write_file(const char* path, std::string_view text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  const bool ok = fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (fd >= 0) close(fd);
  return ok;
}

/// In a time namespace whose CLOCK_BOOTTIME is an hour ahead, as after an hour of suspension. 0: the jump is visible;
/// 1: it is not; 2: such a namespace cannot be created here.
int look_from_after_an_hour() {
  const auto before = net::boot_clock::now();
  const auto steady_before = std::chrono::steady_clock::now();
  if (unshare(CLONE_NEWTIME) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWTIME) != 0) return 2;
  if (!write_file("/proc/self/timens_offsets", "boottime 3600 0")) return 2;
  const int child = fork();
  if (child < 0) return 2;
  if (child == 0) {
    const bool steady_is_as_before = std::chrono::steady_clock::now() - steady_before < 30min;
    _exit(steady_is_as_before && net::boot_clock::now() - before >= 1h ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

TEST(BootClock, CountsTheTimeForWhichTheMachineWasSuspended) {
  const int child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(look_from_after_an_hour());
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no time namespaces here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Attention, ALongTurnIsAnAbsence) {
  net::boot_clock::time_point now{5h};
  net::attention own(now, 250ms);
  EXPECT_EQ(own.absence(now += 250ms), 0ms);
  EXPECT_EQ(own.absence(now += 4s), 4s);
  EXPECT_EQ(own.absence(now += 50ms), 0ms);
}

class hand_clock final : public net::clock_source {
 public:
  time_point now() const override { return at; }
  time_point at{5h};
};

class Beating : public testing::Test {
 protected:
  /// Like the heartbeat thread for `time`, without replies.
  bool is_over_after(net::clock_source::time_point::duration time) {
    for (const auto end = clock.at + time; clock.at < end; clock.at += 50ms) {
      subject.beat_if_due();
      if (subject.listen(0ms) == net::heartbeat_driver::outcome::over) return true;
    }
    return false;
  }
  net::inproc_transport nobody;
  std::unique_ptr<net::port> port = nobody.open();
  hand_clock clock;
  std::atomic<std::uint32_t> followed{0};
  int ends = 0;
  net::heartbeat_driver subject{*port,
                                {.scheduler = "inproc://nobody", .job = 1, .interval = 500ms, .limit = 9s},
                                [] { return std::string("{}"); },
                                [this](const net::directive& o) {
                                  ++ends;
                                  EXPECT_EQ(o.status, exit_status::scheduler_lost);
                                },
                                followed,
                                clock};
};

TEST_F(Beating, AProcessThatWasAwayDoesNotTakeThatForTheSilenceOfTheScheduler) {
  EXPECT_FALSE(is_over_after(2s));
  clock.at += 1h;  // suspended between two iterations
  EXPECT_FALSE(is_over_after(9s));
  clock.at += 1h;
  EXPECT_FALSE(subject.listen(0ms) == net::heartbeat_driver::outcome::over) << "stopped while it listens";
  EXPECT_TRUE(is_over_after(9s + 100ms)) << "it is silent all the same";
  EXPECT_EQ(ends, 1);
}

/// A scheduler whose answers take a while.
class BeatingTo : public testing::Test {
 protected:
  void work_for(net::clock_source::time_point::duration time, net::clock_source::time_point::duration delay = {}) {
    for (const auto end = clock.at + time; clock.at < end; clock.at += 50ms) {
      subject.beat_if_due();
      for (net::incoming in; scheduler->receive(in, 0ms);) {
        net::request_view r;
        ASSERT_EQ(net::decode(in.frame, in.tail.size(), r), nullptr);
        due.push_back({clock.at + delay, in.from, r.header});
      }
      for (; !due.empty() && due.front().at <= clock.at; due.pop_front()) {
        net::reply_header h{.what = due.front().asked.what, .sequence = due.front().asked.sequence};
        h.count = net::known_sender;
        net::reply_bytes head;
        net::encode(h, head);
        scheduler->reply(due.front().from, {.head = head});
      }
      while (subject.listen(0ms) == net::heartbeat_driver::outcome::heard) {
      }
      longest = std::max(longest, clock.at - answered);
    }
  }
  struct answer {
    net::clock_source::time_point at;
    net::peer from;
    net::request_header asked;
  };
  test::flaky_transport over{1};
  std::unique_ptr<net::port> scheduler = over.open();
  const std::string address = scheduler->bind("inproc://*");
  std::unique_ptr<net::port> port = over.open();
  hand_clock clock;
  std::atomic<std::uint32_t> followed{0};
  net::clock_source::time_point answered = clock.at;  // when the last beat that was answered was sent
  net::clock_source::time_point::duration longest{};
  std::deque<answer> due;
  int ends = 0;
  net::heartbeat_driver subject{
      *port,
      {.scheduler = address,
       .job = 1,
       .interval = 500ms,
       .limit = 9s,
       .on_answer = [this](net::clock_source::time_point sent) { answered = std::max(answered, sent); }},
      [] { return std::string("{}"); },
      [this](const net::directive&) { ++ends; },
      followed,
      clock};
};

TEST_F(BeatingTo, AConnectionThatHasFallenSilentIsRenewedBeforeTheProcessCountsAsLost) {
  for (int i = 0; i < 5; ++i) {
    work_for(2s);
    over.swallow_all();
  }
  work_for(2s);
  EXPECT_EQ(ends, 0);
  EXPECT_LT(longest, 1200ms) << "a lease is valid for two seconds";
}

TEST_F(BeatingTo, ASlowSchedulerIsNotGivenUp) {
  work_for(60s, 4s);
  EXPECT_EQ(ends, 0);
  EXPECT_LT(longest, 6s);
}

TEST(Heartbeat, AnEpochThatIsFollowedWhileABeatIsUnansweredIsWatchedOnceItIs) {
  net::inproc_transport over;
  const auto scheduler = over.open();
  net::heartbeat_options options;
  options.scheduler = scheduler->bind("inproc://*");
  options.interval = 100s;
  options.limit = 1000s;
  net::heartbeat beating(
      over, options, [] { return std::string("{}"); }, [](const net::directive&) {});
  net::incoming in;
  net::request_view r;
  ASSERT_TRUE(scheduler->receive(in, 10s));
  ASSERT_EQ(net::decode(in.frame, in.tail.size(), r), nullptr);
  ASSERT_EQ(r.header.what, net::verb::heartbeat);
  beating.follow(7);
  net::reply_header answer;
  answer.what = r.header.what;
  answer.sequence = r.header.sequence;
  net::reply_bytes head;
  net::encode(answer, head);
  scheduler->reply(in.from, {.head = head});
  do {
    ASSERT_TRUE(scheduler->receive(in, 10s)) << "it waits for its next beat";
    ASSERT_EQ(net::decode(in.frame, in.tail.size(), r), nullptr);
  } while (r.header.what != net::verb::watch);
  EXPECT_EQ(r.header.epoch, 7U);
}

}  // namespace
}  // namespace paracel
