// SPDX-License-Identifier: BSD-3-Clause
//
// Faults of processes, connections and the disk, each of which ends after a while. job.cpp knows which of them a job
// can survive.
#pragma once

#include "test/sim/simulation.hpp"
#include "test/support/crash_disk.hpp"

namespace paracel::sim {

/// Lifetime: the simulation, the disk, the scheduler's process and all scheduled events must outlive it.
class faults {
 public:
  faults(simulation& in, test::crash_disk& disk, process& scheduler) : in_(in), disk_(disk), scheduler_(scheduler) {}

  void fill_disk();
  /// At one of the next steps of the disk, or soon if there are none.
  void lose_power();
  /// Suspends it, or cuts it off from the scheduler, for `time`.
  void hold_up(process& p, nanos time);
  /// The connections from `a` to `b`, mostly after some time of silence, in which messages accumulate.
  void break_connections(process& a, process& b);
  void break_scheduler_lines(process& p);
  /// Connections of the process to the scheduler, or the scheduler's to it, fall silent for ever.
  void silence_scheduler_lines(process& p);
  void cut_for_a_while(process& a, process& b);
  /// For less than a lease, and less than the time after which nodes consider it lost.
  void stop_scheduler();

 private:
  simulation& in_;
  test::crash_disk& disk_;
  process& scheduler_;
};

}  // namespace paracel::sim
