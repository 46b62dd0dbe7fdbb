// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/resource.h>

namespace paracel::net {

/// Lets the process open as many descriptors as it is allowed to at all. The usual soft limit of 1,024 is there for
/// programs that call select(); a server needs a descriptor for each client and thread, a worker two for each shard
/// thread of the job, so that a job of 64 servers with 8 threads would already hang while it connects.
inline void raise_descriptor_limit() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace paracel::net
