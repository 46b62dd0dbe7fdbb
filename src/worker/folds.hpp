// SPDX-License-Identifier: BSD-3-Clause
//
// BSP's updates are acknowledged when they are staged, and folded into the values when the clock moves.
#pragma once

#include <cstdint>

namespace paracel {

class server_group;

/// The servers have folded all updates of iterations below `clock`, which every worker must have finished.
/// Blocks: until all have. Cost: a round trip to every shard, or more while there is much to fold.
/// Throws: what an update could not be folded with; its text names key, rank and iteration.
void fold_everywhere(server_group& client, std::uint32_t clock);

}  // namespace paracel
