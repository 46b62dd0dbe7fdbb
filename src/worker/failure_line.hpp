// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>
#include <string>

namespace paracel {

/// The name of a program without its folders.
[[nodiscard]] std::string program_name(const char* path);

/// Says on stderr what a program ends with: `program: error: ...`, one line. Returns: the exit status.
int tell_failure(const std::string& program, const std::exception_ptr& failure) noexcept;

/// The process ends with this status, unless main returns another one than 0: for failures that are found when nothing
/// can be thrown any more.
void end_with(int status) noexcept;

/// What no program catches, in whatever thread, ends the process with that line and status instead of SIGABRT.
void end_on_uncaught(const std::string& program);

}  // namespace paracel
