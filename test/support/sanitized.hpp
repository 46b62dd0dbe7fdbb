// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#if defined(__SANITIZE_THREAD__)
#define PARACEL_UNDER_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define PARACEL_UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PARACEL_UNDER_TSAN 1
#elif __has_feature(address_sanitizer)
#define PARACEL_UNDER_ASAN 1
#endif
#endif

namespace paracel::test {

/// Whether the tests are built with sanitizers: slow tests then do less.
#ifdef PARACEL_UNDER_TSAN
inline constexpr bool thread_sanitized = true;
#else
inline constexpr bool thread_sanitized = false;
#endif
#ifdef PARACEL_UNDER_ASAN
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = thread_sanitized;
#endif

}  // namespace paracel::test
