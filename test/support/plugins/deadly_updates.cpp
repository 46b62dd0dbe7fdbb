// SPDX-License-Identifier: BSD-3-Clause
//
// Functions that add, and terminate or block their server when the delta is negative.
#include <paracel/update.hpp>

#include <spawn.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using deed = void (*)();

/// Infinite recursion; the contents of each frame keep the compiler from turning it into a loop.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winfinite-recursion"
int overflow_stack(volatile char* above) {
  volatile char frame[4096];
  frame[0] = above != nullptr ? above[0] : char{1};
  return overflow_stack(frame) + frame[0];
}
#pragma GCC diagnostic pop

void segv() {
  static volatile std::size_t nowhere = 8;
  *reinterpret_cast<volatile int*>(nowhere) = 1;
}

template <deed Deed>
double add(double value, double delta) {
  if (delta < 0) Deed();
  return value + delta;
}

template <deed Deed>
void add_in_place(std::span<double> value, std::span<const double> delta) noexcept {
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = add<Deed>(value[i], delta[i]);
}

void overflows() { (void)overflow_stack(nullptr); }
void aborts() { std::abort(); }
void exits() { std::exit(3); }
void divides() { raise(SIGFPE); }
void hangs() {
  while (true) pause();
}
void loops() {
  volatile bool on = true;
  while (on) {
  }
}
void exits_at_once() { _exit(77); }
void exits_by_system_call() { syscall(SYS_exit_group, 3); }
void stops() { raise(SIGSTOP); }
void sets_an_alarm() {
  const itimerval soon{{0, 0}, {0, 1000}};
  setitimer(ITIMER_REAL, &soon, nullptr);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}
void crashes_in_a_thread() { std::thread(segv).join(); }
void exits_in_a_thread() { std::thread(exits_at_once).join(); }
void closes() {
  for (int i = 0; i < 4096; ++i) close(i);
}
/// 20 GB, page by page.
void allocates() {
  std::vector<std::vector<char>> all;
  for (int i = 0; i < 1280; ++i) all.emplace_back(std::size_t{16} << 20, 'x');
}

template <deed Deed>
bool passes(std::string_view key) {
  if (key == "deadly 1") Deed();
  return true;
}

/// A process that is neither in the group nor in the session of its parent, for two minutes.
[[noreturn]] void stay() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  setsid();
  alarm(120);
  while (true) pause();
}

/// Tries to start processes in every way that there is. Returns: how many there are.
double start_processes() {
  double started = 0;
  if (const auto child = fork(); child == 0) stay();
  else if (child > 0) ++started;
  if (const auto child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); child == 0) stay();
  else if (child > 0) ++started;
  if (const auto child = fork(); child == 0) {  // whose parent has ended
    if (fork() == 0) stay();
    _exit(0);
  } else if (child > 0) {
    waitpid(child, nullptr, 0);
    ++started;
  }
  pid_t pid = 0;
  char program[] = "setsid", sleep[] = "sleep", seconds[] = "120";
  char* const words[] = {program, sleep, seconds, nullptr};
  if (posix_spawnp(&pid, program, nullptr, nullptr, words, environ) == 0) ++started;
  if (std::system("setsid sleep 120 & :") == 0) ++started;
  std::fprintf(stderr, "%g processes were started\n", started);
  return started;
}

template <bool Hangs>
double add_processes(double value, double delta) {
  if (delta >= 0) return value + delta;
  const auto started = start_processes();
  if (Hangs) hangs();
  return value + started;
}

/// The number of open descriptors of the process that runs it, except the one used for counting.
double descriptors(double, double) {
  return static_cast<double>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {})) - 1;
}

}  // namespace

#define EXPORTED(kind, name, ...)     \
  extern "C" {                        \
  extern paracel::kind##_result name; \
  }                                   \
  paracel::kind##_result name = __VA_ARGS__

// For each deed, a function that adds and a filter.
#define DEADLY(name, deed)                                           \
  EXPORTED(update, deadly_##name, paracel::update_proxy(add<deed>)); \
  EXPORTED(filter, deadly_filter_##name, paracel::filter_proxy(passes<deed>))

DEADLY(segv, segv);
DEADLY(overflow, overflows);
DEADLY(abort, aborts);
DEADLY(exit, exits);
DEADLY(fpe, divides);
DEADLY(hang, hangs);
DEADLY(loop, loops);
DEADLY(alarm, sets_an_alarm);
DEADLY(allocation, allocates);
DEADLY(exit_at_once, exits_at_once);
DEADLY(exit_by_system_call, exits_by_system_call);
DEADLY(stop, stops);
DEADLY(thread, crashes_in_a_thread);
DEADLY(exit_in_a_thread, exits_in_a_thread);
DEADLY(close, closes);
EXPORTED(update, deadly_processes, paracel::update_proxy(add_processes<false>));
EXPORTED(update, deadly_processes_hang, paracel::update_proxy(add_processes<true>));
EXPORTED(update, deadly_in_place, paracel::update_in_place<double>(add_in_place<segv>));
EXPORTED(update, count_descriptors, paracel::update_proxy(descriptors));
