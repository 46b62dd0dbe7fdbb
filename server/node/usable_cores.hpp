// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>

namespace paracel::srv {

/// Cores that this process may use: those of its affinity mask, or fewer if the CPU quota of its control group is less
/// (cgroup v2); at least 1. The same as usable_cores in tool/launcher/engines/hosts.py.
/// Thread-safety: any thread. Cost: some small files are read.
[[nodiscard]] unsigned usable_cores();

/// Whole cores that the quotas (cpu.max) of the control group `own`, a path below `root`, and of all above it allow, at
/// least 1; the largest unsigned number if there is no quota.
[[nodiscard]] unsigned cores_of_quota(const std::filesystem::path& root, const std::filesystem::path& own);

}  // namespace paracel::srv
