// SPDX-License-Identifier: BSD-3-Clause
//
// BSP's updates are acknowledged when they are staged, and folded into the values when the clock ticks.
#pragma once

#include <cstdint>

namespace paracel {

class server_group;

/// Makes the servers fold all updates of iterations below `clock`, which every worker must have finished.
/// Blocks: until all have. Cost: a round trip to every shard, or more while there is much to fold.
/// Throws: the error of an update that could not be folded; its text names key, rank and iteration.
void fold_everywhere(server_group& client, std::uint32_t clock);

}  // namespace paracel
