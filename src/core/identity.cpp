// SPDX-License-Identifier: BSD-3-Clause
#include "core/identity.hpp"

#include <unistd.h>

#include <random>

namespace paracel {

std::uint64_t random_id() {
  std::random_device source;
  return (std::uint64_t{source()} << 32U | source()) | 1U;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

}  // namespace paracel
