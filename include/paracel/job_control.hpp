// SPDX-License-Identifier: BSD-3-Clause
//
// What a program sees of its job, and commands to its processes: calls of `paralg`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <paracel/types.hpp>

namespace paracel {

/// A server or a worker of a job, as `prun.py status` shows it.
struct job_node {
  bool is_server = false;
  std::size_t number = 0;  ///< a server's place, a worker's rank
  /// "missing" (has not joined), "up", "gone"; of a server also "down", "joining", "entering", "leaving" and "left", of
  /// a worker "ejected", "awaited" and "catching up".
  str_type state;
  str_type host;              ///< empty while no process has its place
  double silent_seconds = 0;  ///< since its last heartbeat
  bool is_dead = false;       ///< it has died, and no other process has taken its place
  str_type cause;             ///< of its death
  std::uint32_t clock = 0;    ///< of a worker: iterations that it had committed at its last heartbeat
};

/// Whom a command goes to.
struct command_target {
  bool is_server = false;
  std::optional<std::size_t> number;  ///< a rank or a server's place; empty: all of them

  [[nodiscard]] static command_target workers() { return {}; }
  [[nodiscard]] static command_target worker(std::size_t rank) { return {false, rank}; }
  [[nodiscard]] static command_target servers() { return {true, {}}; }
  [[nodiscard]] static command_target server(std::size_t slot) { return {true, slot}; }
};

/// The answer of one of them.
struct command_answer {
  std::size_t number = 0;  ///< its rank or place
  bool ok = false;
  str_type text;  ///< what its function has returned, or why there is no answer
};

}  // namespace paracel
