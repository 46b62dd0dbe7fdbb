// SPDX-License-Identifier: BSD-3-Clause
//
// A job with copies in a simulation: the scheduler, servers, workers with a client each, a launcher that replaces what
// is lost, and one who breaks things. What may never happen (history.hpp) is looked for at every step; that the copies
// are restored and equal, and that everything is answered and counted, at the end. All write checkpoints to a disk that
// is full at times; half of the jobs lose power and go on from what is left there, as another number of servers and
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
  unsigned moves = 0;  ///< servers that entered or left
  unsigned checkpoints = 0;
  nanos time = 0;
};

/// Throws: violation.
job_result run_job(const job_options& options);

}  // namespace paracel::sim
