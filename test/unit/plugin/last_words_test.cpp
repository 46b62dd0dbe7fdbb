// SPDX-License-Identifier: BSD-3-Clause
#include "server/plugin/last_words.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include "server/plugin/plugin_registry.hpp"
#include "server/plugin/system_call_filter.hpp"
#include "test/support/paths.hpp"
#include "test/support/temporary_folder.hpp"

namespace paracel::srv {
namespace {

TEST(PublishedCall, IsNeverSeenHalfWritten) {
  const std::string names[] = {"libx.so:f", "libother.so:g"};
  const std::string keys[] = {std::string(3, 'a'), std::string(70, 'b')};
  published_call call;
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (unsigned i = 0; !over; ++i) {
      const auto k = i % 2;
      call.begin({&names[k], k + 1, keys[k], k});
      if (i % 3 == 0) call.set_key(keys[k]);
      if (i % 5 == 0) call.end();
    }
  });
  const auto is_whole = [&](const user_call& c) {
    const auto k = c.function - 1;
    return k <= 1 && c.name == &names[k] && c.key.data() == keys[k].data() && c.key.size() == keys[k].size() &&
           c.row == k;
  };
  int broken = 0;
  for (int i = 0, seen = 0; i < 2'000'000 || seen < 1000; ++i) {
    const auto s = call.read();
    if (s.call.name == nullptr) continue;
    ++seen;
    if (!is_whole(s.call)) ++broken;
  }
  over = true;
  writer.join();
  EXPECT_EQ(broken, 0);
}

TEST(PublishedCall, WhatHasEndedIsStillKnown) {
  const std::string name = "libx.so:f";
  published_call call;
  EXPECT_EQ(call.read().call.name, nullptr);
  call.begin({&name, 5, "k"});
  EXPECT_TRUE(call.read().is_running);
  EXPECT_EQ(call.read().call.key, "k");
  call.end();
  EXPECT_FALSE(call.read().is_running);
  EXPECT_EQ(call.read().call.name, &name);
}

/// Whether the calling thread has a filter.
bool is_filtered() { return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 2; }

bool has_filters() {
  bool has = false;
  std::thread([&] { has = system_call_filter::forbid_processes(system_call_filter::endings::allowed); }).join();
  return has;
}

/// In a process of its own. Exit status: 0 if each step finds what it should.
void restrict_step_by_step() {
  last_words::install(0, pthread_self(), SIGUSR1, true);
  static const std::string name = "libx.so:f";
  std::atomic<int> step{0};
  bool other_is_free = false, other_is_restricted = false;
  std::thread other([&] {
    last_words::prepare_thread();
    while (step != 1) std::this_thread::yield();
    { const in_user_call call({&name, 1, "k"}); }
    other_is_free = !is_filtered();
    step = 2;
    while (step != 3) std::this_thread::yield();
    const bool not_yet = !is_filtered();
    const in_user_call call({&name, 1, "k"});
    other_is_restricted = not_yet && is_filtered();
  });
  bool own_is_free = false, own_is_restricted = false;
  std::thread([&] {
    last_words::prepare_thread();
    plugin_registry registry({test::plugin_folder()});
    (void)registry.load_update({}, {});
    own_is_free = !is_filtered();
    step = 1;
    while (step != 2) std::this_thread::yield();
    (void)registry.load_update("good_updates", "add_lists");
    own_is_restricted = is_filtered();
    step = 3;
    other.join();
  }).join();
  std::_Exit(own_is_free && other_is_free && own_is_restricted && other_is_restricted && !is_filtered() ? 0 : 1);
}

TEST(LastWords, ThreadsAreRestrictedFromTheFirstLibraryOfAUserOn) {
  if (!has_filters()) GTEST_SKIP() << "no seccomp filters here";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(restrict_step_by_step(), testing::ExitedWithCode(0), "");
}

/// A function that calls exit(3), in a process that is told nothing, and waits.
void exit_in_a_function() {
  rlimit core{};
  getrlimit(RLIMIT_CORE, &core);
  core.rlim_cur = core.rlim_max;
  setrlimit(RLIMIT_CORE, &core);
  const test::temporary_folder folder;
  if (chdir(folder.path().c_str()) != 0) _exit(9);
  last_words::install(0, pthread_self(), SIGUSR1, true);
  signal(SIGUSR1, [](int) {});
  // The patience is 1500 naps of a millisecond, which take longer on a busy machine.
  std::thread([] {
    for (int i = 0; i < 2500; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::_Exit(9);
  }).detach();
  std::thread([] {
    static const std::string name = "libx.so:f";
    last_words::prepare_thread();
    last_words::admit_user_code();
    const in_user_call call({&name, 1, "k"});
    std::exit(3);
  }).join();
}

TEST(LastWords, AnExitIsReportedOnceWaitsOnceAndDumpsNoCore) {
  if (!has_filters()) GTEST_SKIP() << "no seccomp filters here";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto without_core = [](int status) {
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS && !WCOREDUMP(status);
  };
  EXPECT_EXIT(exit_in_a_function(), without_core,
              "^start_server: error: s0 ends: exit\\(3\\) in libx.so:f at \"k\"\n$");
}

}  // namespace
}  // namespace paracel::srv
