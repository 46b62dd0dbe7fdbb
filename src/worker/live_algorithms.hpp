// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>

namespace paracel {

/// The number of live paralgs of this process: whether std::exit interrupts one.
inline std::atomic<int> live_algorithms{0};

}  // namespace paracel
