// SPDX-License-Identifier: BSD-3-Clause
// Names that tell processes apart.
#pragma once

#include <cstdint>
#include <string>

namespace paracel {

/// A random number that is not 0, from the system's source. Two of them are equal with probability 2^-63.
[[nodiscard]] std::uint64_t random_id();

/// What this host calls itself; "unknown" if it does not say.
[[nodiscard]] std::string host_name();

}  // namespace paracel
