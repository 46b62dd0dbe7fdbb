// SPDX-License-Identifier: BSD-3-Clause
//
// System calls that a user function must not make. A child process would outlive the job: it can leave its group and
// its session, and lose its parent. Calls that end or stop the process by themselves would leave no trace of the
// function that made them.
#pragma once

#include <csignal>
#include <cstdint>
#include <string_view>

namespace paracel::srv::system_call_filter {

enum class endings : std::uint8_t {
  allowed,
  /// _exit raises SIGSYS instead, and so does sending one of these signals, to whichever process or thread: SIGHUP,
  /// SIGINT, SIGQUIT, SIGKILL, SIGPIPE, SIGALRM, SIGTERM, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGSTKFLT, SIGXFSZ,
  /// SIGIO. Not the others that end a process without a handler: those of faults and aborts, which have one here, and
  /// those with which the threads of a language's runtime stop each other.
  trapped,
};

/// From now on the calling thread, and every thread and program that it starts, can create threads but no processes:
/// fork, vfork and posix_spawn fail with EPERM. It cannot be undone.
/// Returns: false: this system has no such filters (seccomp), or it is a sanitizer build, whose reports need them.
/// Cost: 40 ns for each system call of the thread (Linux 6.18).
[[nodiscard]] bool forbid_processes(endings e) noexcept;

/// What the SIGSYS of a trapped call was about.
struct trapped_call {
  std::string_view name;  ///< "_exit" or "kill"; empty: it was no such call
  int argument = 0;       ///< the status or the signal
};
/// Signal-safe. `context` as passed to the signal handler.
[[nodiscard]] trapped_call trapped(const siginfo_t& info, const void* context) noexcept;

}  // namespace paracel::srv::system_call_filter
