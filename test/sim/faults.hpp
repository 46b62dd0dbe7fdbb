// SPDX-License-Identifier: BSD-3-Clause
//
// Faults of processes, connections and the disk, and their end after a while. Which of them a job can bear is known to
// job.cpp.
#pragma once

#include "test/sim/simulation.hpp"
#include "test/support/crash_disk.hpp"

namespace paracel::sim {

/// Lifetime: the simulation, the disk and the process of the scheduler must outlive it, and all that it has scheduled.
class faults {
 public:
  faults(simulation& in, test::crash_disk& disk, process& scheduler) : in_(in), disk_(disk), scheduler_(scheduler) {}

  void fill_disk();
  /// At one of the next steps of the disk, or soon if there are none.
  void lose_power();
  /// Stopped, or cut off from the scheduler, for `time`.
  void hold_up(process& p, nanos time);
  /// Those from `a` to `b`, mostly after some time without anything, in which messages pile up.
  void break_connections(process& a, process& b);
  void break_scheduler_lines(process& p);
  void cut_for_a_while(process& a, process& b);
  /// For less than the leases, and than the time after which nodes take it for lost.
  void stop_scheduler();

 private:
  simulation& in_;
  test::crash_disk& disk_;
  process& scheduler_;
};

}  // namespace paracel::sim
