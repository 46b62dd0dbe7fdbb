// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>
#include <string>

namespace paracel {

/// The name of a program without its folders.
[[nodiscard]] std::string program_name(const char* path);

/// Prints on stderr why a program fails: `program: error: ...`, one line. Returns: the exit status.
int tell_failure(const std::string& program, const std::exception_ptr& failure) noexcept;

/// The process exits with this status, unless main returns another nonzero one: for failures found when it is too late
/// to throw.
void end_with(int status) noexcept;

/// An uncaught exception, in whatever thread, ends the process with that line and status instead of SIGABRT.
void end_on_uncaught(const std::string& program);

}  // namespace paracel
