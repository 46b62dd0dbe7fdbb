// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <signal.h>

namespace paracel {

/// Adds `number` to `signals` unless this process was started to ignore it. A blocked signal is queued even if it is
/// ignored, so who takes it by signalfd or sigwaitinfo would heed it: but in a job of Slurm's only the launcher acts on
/// the signals that announce the end (tool/launcher/engines/slurm.py).
/// Thread-safety: any thread. Cost: a system call.
inline void add_heeded(sigset_t& signals, int number) {
  struct sigaction now {};
  if (sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) return;
  sigaddset(&signals, number);
}

}  // namespace paracel
