// SPDX-License-Identifier: BSD-3-Clause
//
// Invariants of this code, which no input can violate: a failure is a bug, is reported on standard error
// with its location, and aborts the process (SIGABRT). Conditions that input can violate throw an exception.
//
//     PARACEL_CHECK(condition)    in every build: its cost is negligible where it is used
//     PARACEL_ASSERT(condition)   where PARACEL_ASSERTIONS is defined (tool/test.sh, sanitizers); elsewhere it is
//                                 compiled and not evaluated, so it may be expensive
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
