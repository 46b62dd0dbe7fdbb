// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace paracel::test {

/// While it exists, files of this process cannot grow beyond this size, as on a full disk.
class file_size_limit {
 public:
  explicit file_size_limit(rlim_t bytes) : before_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit less{bytes, limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &less);
  }
  ~file_size_limit() {
    ::setrlimit(RLIMIT_FSIZE, &limit_);
    static_cast<void>(std::signal(SIGXFSZ, before_));
  }
  file_size_limit(const file_size_limit&) = delete;
  file_size_limit& operator=(const file_size_limit&) = delete;

 private:
  rlimit limit_{};
  void (*before_)(int);
};

}  // namespace paracel::test
