// SPDX-License-Identifier: BSD-3-Clause
//
// Which partitions should move to which server, given what was measured. No clock, no membership: the scheduler asks
// (scheduler_rebalance.cpp) and carries it out (server_membership::move).
//
// A job waits for its busiest thread. A partition can only go to one thread of each server (shard_of), so the policy
// lowers the load of the busiest thread, relative to the weight of its server, by the moves that lower it most, as long
// as it is above the mean. It decides nothing unless
//
//   * the busiest thread is clearly above its fair share, by more than the sampling of the load can be wrong,
//   * the moves lower it by a noticeable part, likewise, and
//   * what it saves while the load stays as it is (for a minute, one assumes) is more than the moves cost: what is
//     read, sent and stored for the bytes of the partitions, and two new memberships in every process.
//
// With a limit of memory a server is given at most half of what is left of it: a replica is stored although it exceeds
// the limit, and later writes would fail.
//
// Nothing goes back and forth: each decision lowers the largest load by a fixed part of itself, so with the same load
// there are few, and the last one is to do nothing; a partition that has moved stays for some minutes, whatever is
// measured; and when a move did not help, since the load had meanwhile become another one, the next one has to wait
// longer, twice as long each time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/membership.hpp"
#include "net/clock_source.hpp"
#include "server/request/server_load.hpp"

namespace paracel::srv {

struct rebalance_limits {
  double excess = 0.2;        ///< of the busiest thread above its fair share, as a part of it; with less nothing moves
  double settled = 0.03;      ///< moves are chosen until it has no more than this
  double least_gain = 0.05;   ///< by which it has to become less, as a part of itself
  double deviations = 3;      ///< of the sampling, by which a load may be wrong
  double least_counted = 16;  ///< times that a partition was: what seems hot after fewer may be chance
  double horizon = 60;        ///< s for which the load is expected to stay as it is
  double bytes_a_key = 1024;  ///< that are moved in the time in which a thread serves a key
  double keys_a_change = 100'000;  ///< which a thread serves in the time that two new memberships take
  std::size_t most_moves = 256;    ///< at once
  std::chrono::seconds pause{10};  ///< between moves, at least
  std::chrono::seconds most_pause{3600};
  std::chrono::seconds stays{300};  ///< for which a partition that has moved does
};

/// A server that serves, with the load of the last seconds.
struct measured_server {
  std::uint32_t slot = 0;
  double weight = 1;
  std::uint32_t threads = 1;
  server_load load;
};

/// Thread-safety: owned by the scheduler's thread.
class rebalancer {
 public:
  using time_point = net::clock_source::time_point;

  explicit rebalancer(rebalance_limits limits = {}) : limits_(limits) {}

  /// The partitions that should move now, each with the slot that it should get; in the order of partitions.
  /// The loads must have been measured after the last moves were complete.
  /// Cost: O(moves x known partitions of a server x servers).
  [[nodiscard]] std::vector<placement> consider(std::span<const measured_server> servers, time_point now);

  /// How far the busiest thread is above its fair share: 1 if it is not.
  [[nodiscard]] static double imbalance(std::span<const measured_server> servers);

 private:
  const rebalance_limits limits_;
  std::map<std::uint16_t, time_point> moved_;  // partitions that stay, and since when
  struct promise {
    double before = 0;  // imbalance
    double after = 0;
  };
  std::optional<promise> promised_;  // by moves whose effect has not been seen yet
  time_point not_before_{};
  std::chrono::seconds pause_ = limits_.pause;
};

}  // namespace paracel::srv
