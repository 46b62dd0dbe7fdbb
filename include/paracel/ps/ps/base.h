// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <limits>

#include "ps/internal/utils.h"

namespace ps {

#if defined(USE_KEY32) && USE_KEY32
using Key = std::uint32_t;
#else
using Key = std::uint64_t;
#endif
/// The largest key; it belongs to the last server.
inline constexpr Key kMaxKey = std::numeric_limits<Key>::max();

/// The scheduler's node id, and the groups; ids and groups can be added: kServerGroup + kWorkerGroup is both.
inline constexpr int kScheduler = 1;
inline constexpr int kServerGroup = 2;
inline constexpr int kWorkerGroup = 4;

}  // namespace ps
