// SPDX-License-Identifier: BSD-3-Clause
//
// Invariants of this code, which no input can break: a failure is a mistake of the program, is written to standard
// error with its place, and ends the process (SIGABRT). What input can break is an exception.
//
//     PARACEL_CHECK(condition)    in every build: costs nothing beside what stands around it
//     PARACEL_ASSERT(condition)   where PARACEL_ASSERTIONS is defined (tool/test.sh, sanitizers); elsewhere it is
//                                 compiled and not evaluated, so that it may cost time
//
// For .cpp files of the library: a header may be compiled with and without PARACEL_ASSERTIONS in one program.
#pragma once

namespace paracel {

/// Writes `file:line: internal error: condition does not hold` and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition) noexcept;

}  // namespace paracel

#define PARACEL_CHECK(...) \
  ((__VA_ARGS__) ? static_cast<void>(0) : ::paracel::check_failed(__FILE__, __LINE__, #__VA_ARGS__))

#ifdef PARACEL_ASSERTIONS
#define PARACEL_ASSERT(...) PARACEL_CHECK(__VA_ARGS__)
#else
#define PARACEL_ASSERT(...) static_cast<void>(sizeof((__VA_ARGS__) ? 1 : 0))
#endif
