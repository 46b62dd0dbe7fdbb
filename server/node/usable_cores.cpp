// SPDX-License-Identifier: BSD-3-Clause
#include "server/node/usable_cores.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

namespace paracel::srv {

namespace fs = std::filesystem;

namespace {

constexpr auto no_quota = std::numeric_limits<unsigned>::max();

unsigned cores_of_mask() {
  std::array<cpu_set_t, 16> cpus{};  // the kernel has at most 8,192; a cpu_set_t holds 1,024
  if (sched_getaffinity(0, sizeof cpus, cpus.data()) != 0) return 1;
  return static_cast<unsigned>(CPU_COUNT_S(sizeof cpus, cpus.data()));
}

/// The control group of this process, as a path below the root.
fs::path own_group() {
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("0::/")) return line.substr(4);
  }
  return {};
}

}  // namespace

unsigned cores_of_quota(const fs::path& root, const fs::path& own) {
  auto least = no_quota;
  auto group = root;
  const auto look = [&] {
    std::ifstream in(group / "cpu.max");  // "200000 100000": microseconds in a period; "max 100000": no quota
    std::uint64_t quota = 0;
    std::uint64_t period = 0;
    if (in >> quota >> period && period != 0) {
      least = static_cast<unsigned>(std::clamp<std::uint64_t>(quota / period, 1, least));
    }
  };
  look();
  for (const auto& name : own) {
    group /= name;
    look();
  }
  return least;
}

unsigned usable_cores() {
  return std::max(1U, std::min(cores_of_mask(), cores_of_quota("/sys/fs/cgroup", own_group())));
}

}  // namespace paracel::srv
