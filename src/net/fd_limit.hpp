// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/resource.h>

namespace paracel::net {

/// Raises the process's soft limit on descriptors to the hard limit. The usual soft limit of 1,024 exists for programs
/// that call select(); a server needs a descriptor for each client and a worker two for each server, or, where shard
/// threads do not share connections, for each of these threads: a large job would otherwise hang while it connects.
inline void raise_descriptor_limit() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace paracel::net
