// SPDX-License-Identifier: BSD-3-Clause
//
// A program's view of its job, and commands to its processes; the calls are in `paralg`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <paracel/types.hpp>

namespace paracel {

/// A server or a worker of a job, as `prun.py status` shows it.
struct job_node {
  bool is_server = false;
  std::size_t number = 0;  ///< a server's slot, a worker's rank
  /// "missing" (has not joined), "up", "gone"; for a server also "down", "joining", "entering", "leaving" and "left",
  /// for a worker "ejected", "awaited" and "catching up".
  str_type state;
  str_type host;              ///< empty while no process fills it
  double silent_seconds = 0;  ///< since its last heartbeat
  bool is_dead = false;       ///< it has died, and no other process has taken its place
  str_type cause;             ///< why it died
  std::uint32_t clock = 0;    ///< for a worker: iterations committed as of its last heartbeat
};

/// The recipients of a command.
struct command_target {
  bool is_server = false;
  std::optional<std::size_t> number;  ///< a rank or a server's slot; empty: all of them

  [[nodiscard]] static command_target workers() { return {}; }
  [[nodiscard]] static command_target worker(std::size_t rank) { return {false, rank}; }
  [[nodiscard]] static command_target servers() { return {true, {}}; }
  [[nodiscard]] static command_target server(std::size_t slot) { return {true, slot}; }
};

/// One recipient's answer.
struct command_answer {
  std::size_t number = 0;  ///< its rank or slot
  bool ok = false;
  str_type text;  ///< what its function returned, or why there is no answer
};

}  // namespace paracel
