// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>

#include "core/trace.hpp"

namespace paracel {

/// What a host process (main_env.hpp) wants to be called while a call waits; it may throw, to end the wait. One for the
/// process: also an extension of an interpreter, compiled with hidden symbols, has no other.
[[gnu::visibility("default")]] inline std::atomic<void (*)()> interruption_hook{nullptr};

/// Called by every wait of a worker at least every 100 ms. Throws: what the hook throws.
inline void check_interruption() {
  trace::idle();
  if (auto* hook = interruption_hook.load(std::memory_order_relaxed); hook != nullptr) hook();
}

}  // namespace paracel
