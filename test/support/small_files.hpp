// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/resource.h>

#include <cstddef>

namespace paracel::test {

/// While it exists, no file of this process, be it in memory, may be larger.
class small_files {
 public:
  explicit small_files(std::size_t most_bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit now = before_;
    now.rlim_cur = most_bytes;
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~small_files() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  small_files(const small_files&) = delete;
  small_files& operator=(const small_files&) = delete;

 private:
  rlimit before_{};
};

}  // namespace paracel::test
