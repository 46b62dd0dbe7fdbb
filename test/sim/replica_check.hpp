// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "test/sim/server_process.hpp"

namespace paracel::sim {

/// All copies of these partitions are equal, and as many as there are to be; and so are those of the clock.
/// `servers`: those that live, by incarnation.
/// Throws: violation.
void compare_copies(const std::map<std::uint64_t, server_process*>& servers, const std::set<std::uint16_t>& partitions,
                    std::uint32_t replicas, std::uint32_t threads);

}  // namespace paracel::sim
