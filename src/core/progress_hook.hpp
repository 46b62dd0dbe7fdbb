// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <string>

namespace paracel {

/// What a host process wants to be called with the progress of its own run (paralg::report_progress), by the program's
/// main thread; `rounds`: 0 if unknown. One for the process, as interruption_hook.
using progress_function = void (*)(int round, int rounds, double objective, const std::string& metric);
[[gnu::visibility("default")]] inline std::atomic<progress_function> progress_hook{nullptr};

}  // namespace paracel
