// SPDX-License-Identifier: BSD-3-Clause
//
// Ejected workers leave the clock: the scheduler ticks it for them, once their processes are dead for certain.
//
// The clock is kept by a server, which may change or die meanwhile. A request is therefore repeated until the clock has
// acknowledged it, each time to the server that keeps the clock in the newest membership; a repeated one has no effect.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/membership.hpp"
#include "net/clock_source.hpp"
#include "net/protocol.hpp"
#include "server/scheduler/checkpoint_coordinator.hpp"

namespace paracel::srv {

/// The address of the thread that keeps the clock.
[[nodiscard]] const std::string& clock_address(const membership& members);

/// Thread-safety: owned by the scheduler's thread.
class clock_removals {
 public:
  using time_point = net::clock_source::time_point;
  /// A lost server is replaced, or its replica takes over, in three seconds.
  static constexpr std::chrono::milliseconds limit{20'000};

  explicit clock_removals(checkpoint_coordinator::send_request send) : send_(std::move(send)) {}

  /// Removes this worker from the clock. A second call has no effect.
  void remove(std::uint32_t rank, const membership& members, time_point now);
  /// A reply to a request sent from here; others are ignored.
  void on_reply(std::uint64_t number, const net::reply_view& reply, time_point now);
  /// Repeats requests that were refused or are unanswered. Returns: a worker that could not be removed within the
  /// limit.
  [[nodiscard]] std::optional<std::uint32_t> tick(const membership& members, time_point now);
  /// The scheduler was suspended for this long.
  void was_away(time_point::duration missed) noexcept;

 private:
  struct removal {
    time_point until;
    time_point again;
    std::uint32_t epoch = 0;  ///< of the membership by which it was sent last
    bool done = false;
  };
  void put(std::uint32_t rank, removal& r, const membership& members, time_point now);

  checkpoint_coordinator::send_request send_;
  std::map<std::uint32_t, removal> removals_;  // by rank
};

}  // namespace paracel::srv
