// SPDX-License-Identifier: BSD-3-Clause
#include "core/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace paracel {

void check_failed(const char* file, int line, const char* condition) noexcept {
  std::fprintf(stderr, "%s:%d: internal error: %s does not hold\n", file, line, condition);
  std::abort();
}

}  // namespace paracel
