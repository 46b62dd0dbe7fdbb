// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <exception>
#include <new>

namespace paracel {

/// What a `main` prints about an exception: its text, or, when memory has run out, which process it was and what helps.
/// Thread-safety: any thread. Lifetime: of the text, until the next call in this thread, or that of `e`. Cost:
/// allocates nothing.
[[nodiscard]] inline const char* failure_text(const std::exception& e) noexcept {
  if (dynamic_cast<const std::bad_alloc*>(&e) == nullptr) return e.what();
  static thread_local std::array<char, 320> text;
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  std::snprintf(
      text.data(), text.size(),
      "out of memory (%s): process %d held up to %ld MB; want fewer processes on this host, a smaller input, or "
      "a higher limit (ulimit -v, the memory limit of its cgroup)",
      e.what(), static_cast<int>(getpid()), used.ru_maxrss / 1024);
  return text.data();
}

}  // namespace paracel
