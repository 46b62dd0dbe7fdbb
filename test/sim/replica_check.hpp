// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "test/sim/server_process.hpp"

namespace paracel::sim {

/// Checks that all replicas of these partitions are equal and complete, and also those of the clock.
/// `servers`: the live ones, by incarnation.
/// Throws: violation.
void compare_replicas(const std::map<std::uint64_t, server_process*>& servers,
                      const std::set<std::uint16_t>& partitions, std::uint32_t replicas, std::uint32_t threads);

}  // namespace paracel::sim
