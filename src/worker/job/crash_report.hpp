// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace paracel {

/// From here on a fault (SIGSEGV, SIGBUS, SIGFPE, SIGILL) or abort() of any thread writes to stderr
///
///     program: error: SIGSEGV at address 0x10 (process 123), in these calls:
///     fit::solve() at /home/me/fit.cpp:31
///     main at /home/me/fit.cpp:40
///
/// and then ends the process by that signal, with a core file if there would have been one. File and line come from
/// addr2line (binutils), where it is installed, and from what is compiled with -g1 or more; inlined calls are listed,
/// too. Signals that have a handler keep it. Blocks: in a crash, at most 10 s.
void report_crashes(const std::string& program);

}  // namespace paracel
