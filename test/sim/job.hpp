// SPDX-License-Identifier: BSD-3-Clause
//
// A simulated job with replicas: the scheduler, servers, workers with a client each, a launcher that replaces lost
// processes, and fault injection. The invariants (history.hpp) are checked at every step; that the replicas are
// complete and equal, and that everything is answered and counted, at the end. Jobs write checkpoints to a disk that is
// sometimes full; half of them lose power and resume from what is left on it, with different numbers of servers and
// workers.
#pragma once

#include <cstdint>

#include "test/sim/mutations.hpp"
#include "test/sim/simulation.hpp"

namespace paracel::sim {

struct job_options {
  std::uint64_t seed = 1;
  mutation broken = mutation::none;
  bool faults = true;
  bool verbose = false;
};

struct job_result {
  std::uint64_t hash = 0;
  std::uint64_t events = 0;
  std::uint64_t answers = 0;
  unsigned losses = 0;
  unsigned moves = 0;       ///< servers that joined or left
  unsigned rebalanced = 0;  ///< times that partitions have moved, because of the load
  unsigned checkpoints = 0;
  nanos time = 0;
};

/// Throws: violation.
job_result run_job(const job_options& options);

}  // namespace paracel::sim
