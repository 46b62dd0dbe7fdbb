// SPDX-License-Identifier: BSD-3-Clause
#include "server/node/resident_memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace paracel::srv {
namespace {

constexpr std::size_t megabyte = std::size_t{1} << 20;
constexpr std::size_t allowed = 32 * megabyte;
constexpr std::chrono::seconds quiet_for{2};
constexpr std::chrono::seconds most_patience{60};

}  // namespace

std::size_t resident_bytes() {
  std::ifstream in("/proc/self/statm");  // pages: size, resident, ...
  std::size_t pages = 0;
  const bool told = static_cast<bool>(in >> pages >> pages);
  return told ? pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

bool allocator_watch::is_due(const state& s, time_point now) noexcept {
  if (s.served != served_) quiet_since_ = now;
  served_ = s.served;
  const auto unused = excess(s);
  useless_ = std::min(useless_, unused);
  if (unused <= allowed + s.live / 8 || unused <= useless_ + useless_ / 8 + 8 * megabyte) {
    wanted_since_ = now;
    return false;
  }
  return now - quiet_since_ >= quiet_for || now - wanted_since_ >= most_patience;
}

}  // namespace paracel::srv
