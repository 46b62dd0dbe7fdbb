// SPDX-License-Identifier: BSD-3-Clause
//
// A large job in simulated time: the scheduler, servers, shards, clock and clients of the product, with links and
// threads that take as long as the constants say. Compared with what doc/scale.md computes from the same constants.
// Nothing fails in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "test/sim/simulation.hpp"

namespace paracel::sim {

/// FlexRR's patterns of slow workers.
enum class stragglers : std::uint8_t {
  none,
  one,     ///< one worker computes three times as long
  pauses,  ///< each pauses for 40 ms, in one of ten iterations
  power,   ///< the time of an iteration is distributed by a power law with exponent 3: 1.5 times as long on average
};

struct big_options {
  std::uint64_t seed = 1;
  std::uint32_t servers = 100;
  std::uint32_t threads = 1;  ///< of each
  std::uint32_t workers = 1000;
  std::uint32_t iterations = 20;
  std::uint32_t staleness = 0;
  std::uint64_t keys = 1'000'000;  ///< of 20 characters, with a double each
  std::uint32_t keys_each = 1000;  ///< that a worker reads and updates in an iteration
  bool sets = false;               ///< by prepared sets
  nanos compute = 20'000'000;      ///< of a worker in an iteration
  stragglers slow = stragglers::none;
  // Measured (doc/scale.md). Units: ns; bytes per ns.
  double link = 1.25;  ///< each process's, in each direction
  nanos latency = 25'000;
  nanos key = 86;        ///< of a shard thread
  nanos request = 1000;  ///< of a shard thread, besides its keys
  nanos reply = 3300;    ///< of a worker's thread
  nanos message = 1000;  ///< of the I/O thread of a process
  nanos tick = 2200;     ///< of the clock thread
};

/// Of an iteration: computed, or counted and timed in the run.
struct big_figures {
  double messages = 0;   ///< of a worker, sent and received
  double bytes = 0;      ///< likewise
  double server_in = 0;  ///< bytes of a server, on average
  double server_out = 0;
  double shard_ms = 0;   ///< that the busiest shard thread works
  double clock_ms = 0;   ///< that the clock's thread works
  double io_ms = 0;      ///< that the busiest server's I/O thread works
  double wire_ms = 0;    ///< that the busiest server's link is in use, in its busier direction
  double worker_ms = 0;  ///< that a worker's thread works on replies
  double ms = 0;         ///< its duration
};

struct big_result {
  big_figures computed;
  big_figures run;
  double longest_ms = 0;  ///< the slowest iteration of the run
  double joined_ms = 0;   ///< from the start to the last worker's first request
  double simulated_s = 0;
  std::uint64_t events = 0;
  std::uint64_t hash = 0;
};

/// What doc/scale.md says of an iteration.
big_figures computed_for(const big_options& o);
/// Throws: violation, when a key's value at the end is not the number of its updates, or an iteration begins before the
/// staleness allows.
big_result run_big_job(const big_options& o);

/// One line of JSON.
std::string to_json(const big_options& o, const big_result& r);

}  // namespace paracel::sim
