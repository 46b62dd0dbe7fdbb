// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>

namespace paracel {

/// How many paralgs of this process have been made and not destroyed: whether std::exit comes in the middle of one.
inline std::atomic<int> live_algorithms{0};

}  // namespace paracel
