// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "alg/gbdt/host_functions.hpp"

namespace paracel::py {

/// A line that a program wrote to stdout or stderr, without its end. Called by threads of the program, one at a time.
using line_sink = std::function<void(bool to_stderr, std::string_view line)>;

/// What a run calls in this process. All but `lines` by the program's main thread.
struct run_host {
  line_sink lines;
  /// After each round; may be empty. Must not throw.
  std::function<void(int round, int rounds, double objective, const std::string& metric)> progress;
  alg::host_functions functions;
};

/// Runs the main function of a program of the toolbox in this process: one worker with the server inside. What it
/// prints with C's streams goes to `host.lines`; so does what other threads print with them meanwhile. The process's
/// settings that a program changes are as before afterwards. Once `interrupted` is true, the run ends with an error
/// after the round or the wait in which it is. Returns: its exit status. Throws: error for an unknown name.
/// Thread-safety: any thread; a second run waits until the first one has ended.
int run_hosted(const std::string& program, const std::vector<std::string>& arguments, const run_host& host,
               const std::atomic<bool>& interrupted);

/// The names of all programs, sorted.
std::vector<std::string> program_names();

}  // namespace paracel::py
