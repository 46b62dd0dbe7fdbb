// SPDX-License-Identifier: BSD-3-Clause
//
// The place of a server (a slot) or of a worker (a rank) in a job, and the process that holds it.
//
// clang-format off
//   state        what it means                                           ends when
//   expected     no process has joined yet                               one joins
//   joined       its process takes part                                  it leaves, or is lost
//   blocked      a server whose user function does not return: it has    its last words, its death, or the end of its
//                been told to exit, and gets no further lease            lease: it is lost
//   awaited      a worker was lost, the others wait for a replacement    a process joins in its place
//   catching_up  the replacement repeats what the lost process had done  it has caught up, leaves, or is lost too
//   ejected      a worker was lost, the others continue without it       never
//   lost         its process is dead, or was silent: the job has ended,  a server: another process joins, in a new seat
//                or the replicas of the server have taken over
//   left         its process needs nothing more: it has left the job,    a server: as lost
//                or was told that the job, or its part in it, is over
// clang-format on
//
// Whether a server serves is another question: server_membership.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "net/clock_source.hpp"
#include "server/request/completion.hpp"
#include "server/request/server_load.hpp"

namespace paracel::srv {

enum class seat_state : std::uint8_t { expected, joined, blocked, awaited, catching_up, ejected, lost, left };

/// The transitions: all that the table above says, and what an end of the job adds.
[[nodiscard]] bool may_become(seat_state from, seat_state to) noexcept;

struct process {
  int pid = 0;
  std::string host{};
  std::uint64_t incarnation = 0;  ///< 0: unknown. Pods of one name may have the same pid, too

  /// Whether the body of a control message refers to this process. A launcher knows only the pid.
  [[nodiscard]] bool matches(const nlohmann::json& body) const;
};

/// Thread-safety: owned by the scheduler's thread.
class seat {
 public:
  using time_point = net::clock_source::time_point;

  [[nodiscard]] seat_state state() const noexcept { return state_; }
  [[nodiscard]] bool is(seat_state s) const noexcept { return state_ == s; }
  /// Some process has joined, whatever became of it.
  [[nodiscard]] bool has_joined() const noexcept { return was_held_; }
  /// A process takes part.
  [[nodiscard]] bool is_present() const noexcept {
    return is(seat_state::joined) || is(seat_state::blocked) || is(seat_state::catching_up);
  }
  /// No process takes part any more.
  [[nodiscard]] bool is_gone() const noexcept { return !is(seat_state::expected) && !is_present(); }
  /// Must be a transition of the table.
  void become(seat_state next);
  /// Its process has been told that it is not needed any more.
  void dismiss() {
    if (!is_gone()) become(seat_state::left);
  }

  /// Whether the process that holds the seat, or was the last to hold it, is the one that this body refers to.
  [[nodiscard]] bool is_held_by(const nlohmann::json& body) const { return has_joined() && holder.matches(body); }
  /// The same for a process that held it before.
  [[nodiscard]] bool was_held_by(const nlohmann::json& body) const;

  process holder{};
  std::vector<process> earlier{};  ///< that held it before
  std::string cause{};             ///< why it is blocked, awaited, ejected, or was lost
  /// Processes, by pid and, if known, host, that were reported dead while they did not hold it: their joins may still
  /// arrive.
  std::vector<std::pair<int, std::string>> reaped{};
  std::uint64_t client = 0;               ///< id of the client whose collectives are accepted
  std::string address{};                  ///< where other workers reach this one
  std::uint32_t turn = 0;                 ///< how many processes were this worker before
  std::uint32_t clock = 0;                ///< iterations that a worker had finished at its last heartbeat
  std::uint64_t memory_bytes = 0;         ///< of a server's keys and rows, at its last heartbeat
  std::uint64_t resident_bytes = 0;       ///< of a server's process; 0: unknown
  std::string usage{};                    ///< JSON of its last heartbeat, for samples; empty: none
  std::string metrics{};                  ///< of a server, likewise, for `scheduler::metrics`
  std::optional<server_load> load{};      ///< of a server, likewise
  std::array<double, 4> shares{};         ///< of a worker's time, in seconds, for the same
  time_point lost_at{};                   ///< of a worker that is awaited or catching up
  std::optional<time_point> last_sign{};  ///< start of the lease; empty until the first heartbeat
  process reserved_for{};                 ///< that no launcher has started, and that is about to join
  time_point reserved_until{};
  completion joining{};   ///< its parked join
  completion watching{};  ///< its parked watch

 private:
  seat_state state_ = seat_state::expected;
  bool was_held_ = false;
};

}  // namespace paracel::srv
