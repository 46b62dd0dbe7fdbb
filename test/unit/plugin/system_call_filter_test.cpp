// SPDX-License-Identifier: BSD-3-Clause
//
// The restrictions concern the thread that asks for them, and each test makes one.
#include "server/plugin/system_call_filter.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <set>
#include <thread>

namespace paracel::srv::system_call_filter {
namespace {

/// Runs it in a restricted thread. False: this system has no filters.
bool restricted(endings e, const std::function<void()>& what) {
  bool is_restricted = false;
  std::thread([&] {
    is_restricted = forbid_processes(e);
    if (is_restricted) what();
  }).join();
  return is_restricted;
}

/// The error that an attempt to start a process ends with; 0: there was a child.
int error_of(const std::function<long()>& start) {
  errno = 0;
  const auto child = start();
  if (child == 0) _exit(0);
  if (child < 0) return errno;
  waitpid(static_cast<pid_t>(child), nullptr, 0);
  return 0;
}

TEST(SystemCallFilter, ThreadsCanBeStartedAndProcessesCannot) {
  for (const auto e : {endings::allowed, endings::trapped}) {
    const bool was_on = restricted(e, [] {
      EXPECT_EQ(error_of([] { return static_cast<long>(fork()); }), EPERM);
      EXPECT_EQ(error_of([] { return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }), EPERM);
      EXPECT_EQ(error_of([] { return syscall(SYS_clone3, nullptr, 0); }), ENOSYS);
#ifdef SYS_vfork
      EXPECT_EQ(error_of([] { return syscall(SYS_fork); }), EPERM);
#endif
      pid_t pid = 0;
      char name[] = "true";
      char* const words[] = {name, nullptr};
      EXPECT_EQ(posix_spawnp(&pid, name, nullptr, nullptr, words, environ), EPERM);
      EXPECT_NE(std::system("true"), 0);
      int threads = 0;
      std::thread([&] {
        ++threads;
        EXPECT_EQ(error_of([] { return static_cast<long>(fork()); }), EPERM) << "it holds for its threads, too";
      }).join();
      EXPECT_EQ(threads, 1);
    });
    if (!was_on) GTEST_SKIP() << "no seccomp filters here";
  }
  EXPECT_EQ(error_of([] { return static_cast<long>(fork()); }), 0) << "other threads are free";
}

TEST(SystemCallFilter, EndingsAreTrappedIfAsked) {
  if (!restricted(endings::allowed, [] {})) GTEST_SKIP() << "no seccomp filters here";
  const auto in_thread = [](endings e, void (*deed)()) { restricted(e, deed); };
  const auto trap = testing::KilledBySignal(SIGSYS);
  EXPECT_EXIT(in_thread(endings::trapped, [] { _exit(3); }), trap, "");
  EXPECT_EXIT(in_thread(endings::trapped, [] { raise(SIGSTOP); }), trap, "");
  EXPECT_EXIT(in_thread(endings::trapped, [] { kill(getpid(), SIGKILL); }), trap, "");
  EXPECT_EXIT(in_thread(endings::trapped,
                        [] {
                          const auto self = syscall(SYS_pidfd_open, getpid(), 0);
                          syscall(SYS_pidfd_send_signal, self, SIGKILL, nullptr, 0);
                        }),
              trap, "");
  EXPECT_EXIT(in_thread(endings::trapped, [] { std::thread([] { _exit(3); }).join(); }), trap, "");
  EXPECT_EXIT(in_thread(endings::trapped, [] { std::abort(); }), testing::KilledBySignal(SIGABRT), "");
  EXPECT_EXIT(in_thread(endings::allowed, [] { _exit(3); }), testing::ExitedWithCode(3), "");
  EXPECT_TRUE(restricted(endings::trapped, [] { pthread_kill(pthread_self(), 0); })) << "other signals are allowed";
}

TEST(SystemCallFilter, TheTrappedSignalsAreThoseThatItsHeaderNames) {
  if (!restricted(endings::allowed, [] {})) GTEST_SKIP() << "no seccomp filters here";
  const std::set<int> trapped{SIGHUP,  SIGINT,  SIGQUIT, SIGKILL, SIGPIPE,   SIGALRM, SIGTERM,
                              SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGSTKFLT, SIGXFSZ, SIGIO};
  static int received = 0;
  for (int number = 1; number < NSIG; ++number) {
    if (trapped.contains(number)) {
      EXPECT_EXIT(restricted(endings::trapped, [&] { raise(number); }), testing::KilledBySignal(SIGSYS), "") << number;
    } else if (number != 32 && number != 33) {  // of the C library
      const auto before = signal(number, [](int n) { received = n; });
      EXPECT_TRUE(restricted(endings::trapped, [&] { raise(number); }));
      signal(number, before);
      EXPECT_EQ(received, number);
    }
  }
}

TEST(SystemCallFilter, ATrappedCallIsNamed) {
  if (!restricted(endings::allowed, [] {})) GTEST_SKIP() << "no seccomp filters here";
  struct sigaction act {};
  act.sa_flags = SA_SIGINFO;
  act.sa_sigaction = [](int, siginfo_t* info, void* context) {
    const auto call = trapped(*info, context);
    const bool as_made =
        (call.name == "_exit" && call.argument == 77) || (call.name == "kill" && call.argument == SIGSTOP);
    ::signal(SIGSYS, SIG_DFL);
    raise(as_made ? SIGABRT : SIGSYS);
  };
  const auto named = [&](void (*deed)()) {
    sigaction(SIGSYS, &act, nullptr);
    restricted(endings::trapped, deed);
  };
  const auto as_made = testing::KilledBySignal(SIGABRT);
  EXPECT_EXIT(named([] { _exit(77); }), as_made, "");
  EXPECT_EXIT(named([] { raise(SIGSTOP); }), as_made, "");
  EXPECT_EXIT(named([] { kill(getpid(), SIGSTOP); }), as_made, "");
}

}  // namespace
}  // namespace paracel::srv::system_call_filter
